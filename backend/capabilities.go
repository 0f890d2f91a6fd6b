package backend

// Capabilities are what a store can do. The zero Capabilities are nothing.
// Later releases may add fields; their zero values mean what stores of today do.
type Capabilities struct {
	Ops  Ops // the operations; every store has Take and Peek
	Keys int // the maximum number of keys of one request, at least 1
}

// Basic are the capabilities that Headgate's own limiter needs.
var Basic = Capabilities{Ops: OpsOf(Take, Peek, Reset), Keys: 1}

// Ops is a set of operations.
type Ops uint32

// OpsOf returns the set of these operations.
func OpsOf(ops ...Op) (set Ops) {
	for _, o := range ops {
		set |= 1 << o
	}
	return set
}

// Has reports whether the operation is in the set.
func (s Ops) Has(o Op) bool { return s&(1<<o) != 0 }
