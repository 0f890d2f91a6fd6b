// Package free passes calls that cost nothing. It is the outermost layer. A key whose costs are
// all 0 is sent to no store and to no other layer: there is nothing to count. It is refused if a
// call of one unit would be, such as for its key.
//
// A Reserve of nothing is in no store. Its lease is unresolved: a Settle above 0 leaves a
// tombstone of its ID and charges as a Record does.
package free

import (
	"context"
	"slices"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// Checked is a layer that can refuse a request before it is sent.
type Checked interface {
	backend.Store
	CheckRequest(context.Context, *backend.Request) error
}

// Store is a backend.Store over another. Safe for concurrent use.
type Store struct {
	next    backend.Store
	checked Checked
	local   bool // the store is in this process
}

// New returns the layer over next. checked is the layer below that refuses requests.
func New(next backend.Store, checked Checked, local bool) *Store {
	return &Store{next, checked, local}
}

// Costs reports whether all costs are given, and are 0.
func Costs(units []int64) bool {
	return len(units) > 0 && !slices.ContainsFunc(units, func(n int64) bool { return n != 0 })
}

// Of reports whether a request of the group would charge or return, and costs nothing.
func Of(op backend.Op, g *backend.Group) bool {
	return (op.Charges() || op.Returns()) && op != backend.Borrow && (Costs(g.Costs) || g.Costs == nil && g.Cost == 0)
}

// Do passes the groups that cost nothing, and has next decide the others.
func (s *Store) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if len(r.And) > 0 {
		return s.keys(ctx, r, d)
	}
	//mutant:free-call-asks-nobody
	if !Of(r.Op, &r.Group) {
		return s.next.Do(ctx, r, d)
	}
	if err := s.CheckRequest(ctx, r); err != nil {
		return err
	}
	pass(&r.Group, d)
	return nil
}

// keys decides several keys. An alternative that costs nothing passes if those before it are
// denied. The layers of one limiter decide those that cost something: of one
// whose store is not in this process, if there is one.
func (s *Store) keys(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	rest, at, by, last := *r, []int(nil), s, -1
	rest.And = nil
	for from, to := range r.Alternatives() {
		before := len(at)
		for i := from; i < to; i++ {
			g := *r.GroupAt(i)
			if Of(r.Op, &g) {
				pass(&g, d)
				continue
			}
			if g.Else = before > 0 && len(at) == before; at == nil {
				rest.Group = g
			} else {
				rest.And = append(rest.And, g)
			}
			if own, _ := layer.Own(&g, s); at == nil || by.local {
				by = own
			}
			at = append(at, i)
		}
		//mutant:free-alternative-passes
		if len(at) == before { // nothing of the next ones is asked
			last = from
			break
		}
	}
	if at == nil {
		return nil
	}
	*d = backend.Decision{}
	err := by.next.Do(ctx, &rest, d)
	//mutant:place-in-the-list
	d.At = at[d.At]
	if err == nil && last >= 0 && !d.Allowed && d.Err == nil {
		pass(r.GroupAt(last), d)
		d.At = last
	}
	reserved(r, d)
	return err
}

// reserved leaves a lease to groups that cost nothing only in the alternative that passed.
func reserved(r *backend.Request, d *backend.Decision) {
	from, to := r.Alternative(d.At)
	for i := range 1 + len(r.And) {
		//mutant:free-part-holds-nothing
		if g := r.GroupAt(i); g.Lease != nil && Of(r.Op, g) {
			g.Lease.Unresolved = i >= from && i < to
		}
	}
}

// pass passes a group.
func pass(g *backend.Group, d *backend.Decision) {
	for i := range g.Each {
		g.Each[i] = uncounted(&g.Policies[i])
	}
	if g.Lease != nil {
		g.Lease.Unresolved = true
	}
	by := max(0, slices.IndexFunc(g.Policies, func(p backend.Policy) bool { return !p.Shadow }))
	*d = backend.Decision{Allowed: true, Source: backend.FromNone, State: uncounted(&g.Policies[by])}
}

func uncounted(p *backend.Policy) backend.State {
	return backend.State{Policy: p.Name, Limit: p.Algorithm.Max()}
}

// CheckRequest refuses what Do refuses before anything is sent.
func (s *Store) CheckRequest(ctx context.Context, r *backend.Request) error {
	one := *r
	//mutant:free-call-checked
	if Of(r.Op, &r.Group) {
		if one.Cost = 1; r.Costs != nil {
			one.Costs = slices.Repeat([]int64{1}, len(r.Costs))
		}
	}
	return s.checked.CheckRequest(ctx, &one)
}

// Check asks next.
func (s *Store) Check(policies []backend.Policy) error { return s.next.Check(policies) }

// Capabilities returns those of next.
func (s *Store) Capabilities() backend.Capabilities { return s.next.Capabilities() }

// Close closes next.
func (s *Store) Close() error { return s.next.Close() }

// Next returns the store below.
func (s *Store) Next() backend.Store { return s.next }
