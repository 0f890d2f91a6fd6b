package settlement

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/free"
)

// Limiter is what has reserved a lease, or resumed it.
type Limiter interface {
	// Send passes a request to the layers, and its event to the observer.
	Send(context.Context, *backend.Request) error
	// Refused returns err, and passes the observer an event of what was not sent because of it.
	Refused(op backend.Op, key string, err error) error
	// CheckRequest refuses what the layers would refuse.
	CheckRequest(context.Context, *backend.Request) error
	// Background is where a Close goes on that no store has decided.
	Background() Background
}

// Lease is a key that a call has reserved, as this process settles it. A nil Lease and the zero
// Lease have nothing to settle. It is safe for concurrent use, but for its fields, which are
// written before its first use.
type Lease struct {
	Limiter Limiter       // nil: nothing to settle
	Group   backend.Group // the key, the policies, and the estimates as Costs
	Asked   backend.Lease // as a request has it
	At      []int         // of each policy, its index in the list of the limiter that resumed it; nil: the same
	Listed  int           // how many policies that list has
	nothing bool          // it cost nothing, and no store has it
	part    int           // of a First: which alternative it is of
	set     *set
}

// Reserve makes the group one that reserves, and l its lease. asked has the length, and whether
// it is Late. name is an ID of the caller's; empty: none.
func (l *Lease) Reserve(by Limiter, g *backend.Group, asked backend.Lease, name string) {
	if g.Costs = slices.Clone(g.Costs); g.Costs == nil {
		g.Costs = slices.Repeat([]int64{1}, len(g.Policies))
	}
	if _, _ = rand.Read(asked.ID[:]); name != "" { // which never fails
		sum := sha256.Sum256([]byte(name))
		asked.Named = true
		copy(asked.ID[:], sum[:])
	}
	l.Resume(by, g, asked)
	l.nothing = free.Costs(g.Costs)
	//mutant:lease-begun
	l.set.begin(time.Now())
	if g.Lease = l.asked(); asked.Named {
		g.Lease.Attempt = newAttempt(true)
	}
}

// Resume makes l the lease of a group that was reserved at an unknown time.
func (l *Lease) Resume(by Limiter, g *backend.Group, asked backend.Lease) {
	l.Limiter, l.Group, l.Asked, l.set = by, *g, asked, new(set)
	l.Group.Each = nil // the caller's
	l.set.one[0] = l
	l.set.leases = l.set.one[:]
}

// asked returns the lease of a new request.
func (l *Lease) asked() *backend.Lease {
	lease := l.Asked
	return &lease
}

// Held reports whether there is something to settle.
func (l *Lease) Held() bool { return l != nil && l.Limiter != nil }

// Stored reports whether a store has the lease, or may have it.
func (l *Lease) Stored() bool { return l.Held() && !l.nothing }

// Single reports whether its own settlement settles no other lease.
func (l *Lease) Single() bool { return len(l.set.leases) == 1 }

// refused returns err with an event of it, if there is something to settle.
func (l *Lease) refused(op backend.Op, err error) error {
	if !l.Held() {
		return err
	}
	return l.Limiter.Refused(op, l.Group.Key, err)
}

// Commit settles by what was used, in the order of the list that reserved or resumed the lease,
// and fills each. Nothing given is the estimate. It leaves the estimates of others of its set.
func (l *Lease) Commit(ctx context.Context, each []backend.State, actual []int64) error {
	clear(each)
	if !l.Held() {
		return nil
	}
	units, err := l.lists(each, actual)
	if err != nil {
		l.set.refuse()
		return l.refused(backend.Settle, err)
	}
	return l.commit(ctx, each, func(m *Lease) []int64 {
		if m != l {
			return m.Group.Costs
		}
		return units
	})
}

// commit is settle, and records if what was used is refused.
func (l *Lease) commit(ctx context.Context, each []backend.State, units func(*Lease) []int64) error {
	err := l.settle(ctx, each, units)
	if errors.As(err, new(*backend.InvalidError)) {
		l.set.refuse()
	}
	return err
}

// lists returns what a Commit settles by. An error is why its lists do not fit the lease.
// Lists in the order of the lease are the request's, which Check compares with its policies.
func (l *Lease) lists(each []backend.State, actual []int64) (units []int64, err error) {
	switch units = l.units(actual); {
	case units == nil:
		err = &backend.InvalidError{What: "actual costs", Value: len(actual), Want: "none, or one for each policy"}
	case each != nil && l.At != nil && len(each) != l.Listed:
		err = &backend.InvalidError{What: "len(each)", Value: len(each), Want: "a state per policy, or nil"}
	}
	return units, err
}

// units returns what a Commit settles by, in the order of the lease; nil if actual has
// another length than the limiter's list.
func (l *Lease) units(actual []int64) []int64 {
	switch {
	case len(actual) == 0:
		return l.Group.Costs
	case l.At == nil && len(actual) == len(l.Group.Costs):
		return actual
	case l.At == nil || len(actual) != l.Listed:
		return nil
	}
	ordered := make([]int64, len(l.At))
	for i, j := range l.At {
		ordered[i] = actual[j]
	}
	return ordered
}

// Cancel gives all back: it is a Commit of nothing used.
func (l *Lease) Cancel(ctx context.Context) error {
	if !l.Held() {
		return nil
	}
	return l.settle(ctx, nil, func(m *Lease) []int64 { return make([]int64, len(m.Group.Costs)) })
}

// Close settles what is not settled. If no store decides it, a lease without an ID of the caller's is
// settled in the background.
func (l *Lease) Close() error {
	if !l.Held() {
		return nil
	}
	s := l.set
	actual := s.final(s.used(func(m *Lease) []int64 { return m.Group.Costs }))
	if s.settled() {
		return nil
	}
	settle := func(ctx context.Context) error { return s.settle(ctx, actual, nil) }
	err := settle(context.Background())
	switch {
	case errors.Is(err, backend.ErrNotHeld):
		return nil
	//mutant:close-goes-on
	case backend.Undecided(err) && !l.Asked.Named: // or it would end what was reserved under the ID meanwhile
		l.Limiter.Background().Cancel(l.Asked.Length, settle)
	}
	return err
}

// Extend moves the end of the lease to its length from now.
func (l *Lease) Extend(ctx context.Context) error {
	//mutant:settled-not-extended
	if !l.Held() || l.set.settled() {
		return l.refused(backend.Extend, backend.ErrNotHeld)
	}
	return l.extend(ctx)
}

func (l *Lease) extend(ctx context.Context) error {
	if l.nothing {
		return nil
	}
	sent, r := time.Now(), &backend.Request{Op: backend.Extend, Group: l.Group}
	r.Cost, r.Costs, r.Lease = 0, nil, l.asked()
	err := l.Limiter.Send(ctx, r)
	if l.Asked.Unresolved && (errors.Is(err, backend.ErrNotHeld) || backend.Undecided(err)) {
		err = l.endedHere(sent)
	}
	if err == nil {
		l.set.begin(sent)
	}
	return err
}

// endedHere is the error of an extension that no store decided: under FailLocal of a lease that was
// left for two lengths, whose record in this process has left too.
func (l *Lease) endedHere(at time.Time) error {
	begun := l.set.begun()
	for _, p := range backend.Enforced(l.Group.Policies) {
		//mutant:left-here-has-ended
		if p.OnFailure == backend.FailLocal && !begun.IsZero() && at.Sub(begun) >= 2*l.Asked.Length {
			return backend.ErrLeaseEnded
		}
	}
	return nil
}

// settle settles the set by these units of each lease. The states are those of the set's first
// lease after it, in the order of the list that resumed it; nil: not wanted.
func (l *Lease) settle(ctx context.Context, each []backend.State, units func(*Lease) []int64) error {
	states := each
	if l != l.set.leases[0] {
		states = nil
	} else if each != nil && l.At != nil {
		states = make([]backend.State, len(l.At))
	}
	err := l.set.settle(ctx, l.set.used(units), states)
	if states != nil {
		//mutant:resumed-states-in-order
		for i, j := range l.At {
			each[j] = states[i]
		}
	}
	return err
}

// used returns what was used of all leases of the set, one after the other.
func (s *set) used(units func(*Lease) []int64) (all []int64) {
	for _, l := range s.leases {
		all = append(all, units(l)...)
	}
	return all
}

// settle sends a settlement of all leases of the set, and once more if no answer came.
func (s *set) settle(ctx context.Context, actual []int64, each []backend.State) error {
	var try backend.Lease
	if !s.attempt(&try, actual) {
		return s.leases[0].refused(backend.Settle, backend.ErrNotHeld)
	}
	send := func() error { return s.answered(ctx, &try, s.send(ctx, &try, each)) }
	err := send()
	//mutant:lost-settle-repeated
	if errors.Is(err, backend.ErrPerhapsCounted) && ctx.Err() == nil {
		err = send()
	}
	s.ended(&try, err)
	//mutant:states-of-no-error
	if err != nil { // a layer may have filled them before it failed
		clear(each)
	}
	return err
}

// send sends one request for all leases of the set: the one that was charged is settled.
func (s *set) send(ctx context.Context, try *backend.Lease, each []backend.State) error {
	first, r, used := s.leases[0], &backend.Request{Op: backend.Settle}, try.Actual
	//mutant:nothing-is-not-settled
	if first.nothing && free.Costs(used) {
		return nil
	}
	for i, l := range s.leases {
		g, n := l.Group, len(l.Group.Costs)
		g.Lease = l.asked()
		g.Lease.Attempt, g.Lease.Actual, used = try.Attempt, used[:n], used[n:]
		if i == 0 {
			r.Group = g
			continue
		}
		g.Else = l.part != s.leases[i-1].part
		r.And = append(r.And, g)
	}
	r.Each = each
	return first.Limiter.Send(ctx, r)
}
