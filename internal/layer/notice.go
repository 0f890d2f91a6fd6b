package layer

import (
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// Change is why what was known of a key is no longer true.
type Change uint8

// The changes.
const (
	Removed  Change = iota + 1 // a Reset has removed counts of the key, or is about to, or may have
	Returned                   // a settlement was counted, which may have given units or slots back, or units have been lent
)

// Subscribe makes Sending and Sent call f with each group whose key changes. f has returned
// before the request that has caused the change does.
func (s *Shared) Subscribe(f func(g *backend.Group, c Change)) {
	for {
		old, all := s.subscribed.Load(), []func(*backend.Group, Change){f}
		if old != nil {
			all = slices.Concat(*old, all)
		}
		if s.subscribed.CompareAndSwap(old, &all) {
			return
		}
	}
}

// Sending notifies the subscribers of what a request is about to change. The layer that passes
// requests to the store calls it before, and Sent after.
func (s *Shared) Sending(r *backend.Request) {
	//mutant:reset-shows-at-once
	if r.Op == backend.Reset {
		s.changed(&r.Group, Removed)
	}
}

// Sent notifies the subscribers of what a request that ended with err has changed. A Reset may
// have taken effect though it has failed, and what came in between is from before it.
func (s *Shared) Sent(r *backend.Request, err error) {
	//mutant:returned-units-published
	if s.Sending(r); err == nil && (r.Op.Ends() || r.Loan != nil && r.Loan.Lent.Units > r.Loan.Keep) {
		s.changed(&r.Group, Returned)
	}
}

func (s *Shared) changed(g *backend.Group, c Change) {
	if all := s.subscribed.Load(); all != nil {
		for _, f := range *all {
			f(g, c)
		}
	}
}
