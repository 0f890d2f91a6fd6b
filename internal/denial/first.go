package denial

import (
	"context"
	"slices"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// first decides a request of alternatives. Those that are known to be denied are left out, up to
// the first one that is not. A denial that counted lent units leaves none out: these may have come
// back, and a later alternative would be charged in vain.
func (s *Store) first(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	vs, rest := make([]visit, 1+len(r.And)), 0
	for from, to := range r.Alternatives() {
		q, one := layer.Slice(r, from, to), backend.Decision{}
		for i := from; i < to; i++ {
			vs[i].firm = to < len(vs)
		}
		if !s.enter(ctx, &q, &one, vs[from:to]) {
			break
		}
		sooner(r, &one, from, d)
		rest = to
	}
	if rest == len(vs) {
		return nil
	}
	for i := rest; r.Op.Known() && i < len(vs); i++ {
		if own, ok := layer.Own(r.GroupAt(i), s); ok && own.ttl != 0 && vs[i].store == nil {
			vs[i].begin(own, r.GroupAt(i))
		}
	}
	q, one := layer.Slice(r, rest, len(vs)), backend.Decision{}
	q.And = slices.Clone(q.And)
	for i := range vs[rest:] {
		if g := q.GroupAt(i); vs[rest+i].store != nil && g.Each == nil {
			g.Each = make([]backend.State, len(g.Policies)) // of an alternative that is denied
		}
	}
	err := s.next.Do(ctx, &q, &one)
	noteFirst(vs[rest:], &q, &one, err)
	if err != nil {
		*d = backend.Decision{}
		return err
	}
	sooner(r, &one, rest, d)
	return nil
}

// sooner makes d the decision of later groups, unless these are denied for longer.
func sooner(r *backend.Request, one *backend.Decision, from int, d *backend.Decision) {
	//mutant:soonest-known
	if d.Policy == "" || one.Allowed || one.Err != nil || one.RetryAfter < d.RetryAfter {
		*d = *one
		d.At += from
		d.Key = r.GroupAt(d.At).Key
	}
}

// noteFirst notes the denials of the alternatives that the store has denied: of each that of the
// group that binds.
func noteFirst(vs []visit, r *backend.Request, d *backend.Decision, err error) {
	if err != nil || d.Source != backend.FromStore || d.Err != nil {
		return
	}
	passed, _ := r.Alternative(d.At)
	for from, to := range r.Alternatives() {
		if d.Allowed && from == passed {
			return
		}
		at, longest := from, backend.State{}
		for i := from; i < to; i++ {
			g := r.GroupAt(i)
			if g.Each == nil {
				continue
			}
			by := backend.Binding(g.Policies, g.Each)
			if s := g.Each[by]; s.Known != backend.NotCounted && !g.Policies[by].Shadow && s.RetryAfter > longest.RetryAfter {
				at, longest = i, s
			}
		}
		vs[at].note(r, at, &longest)
	}
}
