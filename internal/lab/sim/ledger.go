package sim

// ledger is what the nodes have charged.
type ledger struct{}

// done is how one call of a group ended.
type done struct {
	costs   []int64
	passed  bool
	granted int64
}

func (l *ledger) charge(proc int, n *node, all []*asked, now int64) {}
