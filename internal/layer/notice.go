package layer

import (
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Change is why what was known of a key is no longer true.
type Change uint8

// The changes.
const (
	Removed  Change = iota + 1 // a Reset has removed counts of the key, or is about to, or may have
	Returned                   // units or slots may have been given back, or units have been lent
	Passed                     // the store let a call pass; not of a store in this process, of which no denial is known
	Closing                    // the store is about to be closed, with all keys
)

// Notice is a change of a key.
type Notice struct {
	Change
	Group *backend.Group // the key; nil for Closing. Of Passed the costs are what was charged
	Sent  time.Duration  // of Passed: by Shared.Now, before the request was sent
}

// Subscribe makes the store's shared part call f with each change of a key. f has returned
// before the request that has caused the change does, or Close. It is not called after Close.
func (s *Shared) Subscribe(f func(Notice)) {
	for {
		old, all := s.subscribed.Load(), []func(Notice){f}
		if old != nil {
			all = slices.Concat(*old, all)
		}
		if s.subscribed.CompareAndSwap(old, &all) {
			return
		}
	}
}

// Sending notifies the subscribers of what a request is about to change, and returns the time.
// The layer that passes whole calls to the store calls it before, and Sent after.
func (s *Shared) Sending(r *backend.Request) (at time.Duration) {
	if s.removed(r); s.Local {
		return 0
	}
	return s.Now()
}

// Sent notifies the subscribers of what a request has changed that was sent at an instant and
// ended with d and err. A Reset may have taken effect though it has failed, and what came in
// between is from before it.
func (s *Shared) Sent(r *backend.Request, d *backend.Decision, at time.Duration, err error) {
	//mutant:reset-shows-after
	s.removed(r)
	switch {
	//mutant:return-published
	case r.Op.Returns(): // also one that is perhaps counted
		s.publish(Notice{Change: Returned, Group: &r.Group})
	//mutant:returned-units-published
	case err == nil && (r.Op.Ends() || r.Loan != nil && r.Loan.Lent.Units > r.Loan.Keep):
		for i := range 1 + len(r.And) {
			s.publish(Notice{Change: Returned, Group: r.GroupAt(i)})
		}
	//mutant:passes-published
	case d.Allowed && d.Source == backend.FromStore && d.Err == nil && !s.Local && r.Op.Charges() && r.Op.Decides():
		from, to := r.Alternative(d.At)
		//mutant:passed-alternative-published
		for i := from; i < to; i++ {
			g := r.GroupAt(i)
			if g.UpTo {
				charged := *g
				charged.Costs, charged.UpTo, g = nil, false, &charged
				for p := range g.Policies {
					charged.Costs = append(charged.Costs, r.Charged(p, d.Passed))
				}
			}
			s.publish(Notice{Passed, g, at})
		}
	}
}

func (s *Shared) removed(r *backend.Request) {
	//mutant:reset-shows-at-once
	if r.Op == backend.Reset {
		s.publish(Notice{Change: Removed, Group: &r.Group})
	}
}

func (s *Shared) publish(n Notice) {
	for _, f := range s.subscribers() {
		f(n)
	}
}

func (s *Shared) subscribers() []func(Notice) {
	if all := s.subscribed.Load(); all != nil {
		return *all
	}
	return nil
}
