package breaker

import (
	"context"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// failing is a group of a request that no store decided.
type failing struct {
	*layer.Verdict
	part   backend.Request // of the group
	shares backend.Request // of its policies that fail local
	at     []int           // their indexes in the group
}

// failKeys decides a request of several keys, each group by its own list. First come what is
// known to be denied and the groups that don't fail local. If they pass, the others are
// decided in this process, all or nothing. So a denied call is charged to none. It returns
// the layer of the key that binds.
func (s *Store) failKeys(ctx context.Context, r *backend.Request, d *backend.Decision, err error) (by *Store) {
	all, local, denied := make([]layer.Verdict, 1+len(r.And)), []*failing(nil), false
	for i := range all {
		own, _ := layer.Own(r.GroupAt(i), s)
		f := &failing{Verdict: &all[i], part: layer.Part(r, i)}
		g := &f.part.Group
		switch {
		case own.known(&f.part, &f.Decision, err):
		case mode(&g.Policies[strictest(g.Policies)]) == backend.FailLocal:
			own.uncounted(&f.part, err)
			f.shares, f.at = own.shares(&f.part)
			local = append(local, f)
			continue
		default:
			_ = own.fail(ctx, &f.part, &f.Decision, err, nil) // does not fail local
		}
		f.Made, denied = true, denied || !f.Allowed
	}
	//mutant:local-after-the-others
	if !denied && len(local) > 0 {
		s.localKeys(context.WithoutCancel(ctx), local, err)
	}
	layer.Bind(r, all, d)
	by, _ = layer.Own(r.GroupAt(d.At), s)
	return by
}

// localKeys decides groups in this process. One whose policies cost nothing is only looked at.
// If one is denied, the others are charged nothing.
func (s *Store) localKeys(ctx context.Context, groups []*failing, err error) {
	var charged []*failing
	denied := false
	for _, f := range groups {
		if f.shares.Op.Charges() && exceeded(&f.shares) < 0 {
			charged = append(charged, f)
			continue
		}
		if i := exceeded(&f.shares); i >= 0 {
			refuse(&f.part, &f.Decision, f.at[i])
		} else {
			s.localOnce(ctx, []*failing{f})
		}
		f.made(err)
		denied = denied || !f.Allowed
	}
	if !denied && len(charged) > 0 {
		s.localOnce(ctx, charged).made(err)
	}
}

// localOnce decides groups by one request, and returns the one that binds.
func (s *Store) localOnce(ctx context.Context, groups []*failing) *failing {
	q, d := groups[0].shares, backend.Decision{}
	for _, f := range groups[1:] {
		q.And = append(q.And, f.shares.Group)
	}
	if s.opts.Local.Do(ctx, &q, &d) != nil {
		refuse(&groups[0].part, &groups[0].Decision, groups[0].at[0])
		return groups[0]
	}
	groups[d.At].Decision = d
	for _, f := range groups {
		for i, state := range f.shares.Each {
			f.part.Each[f.at[i]] = state
		}
	}
	return groups[d.At]
}

// made makes the decision one of FailLocal.
func (f *failing) made(err error) { f.Made, f.Source, f.Err = true, backend.FromFailLocal, err }
