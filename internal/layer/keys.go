package layer

import (
	"time"

	"github.com/headgate-go/headgate/backend"
)

// over is a layer: a Store over another.
type over interface{ Next() backend.Store }

// Own returns the layer of s's kind that a group's own limiter has. It is s itself where the
// group names no other, and false if that limiter has none. So what a limiter brings to a layer
// goes with its group.
func Own[S backend.Store](g *backend.Group, s S) (own S, ok bool) {
	if g.Via == nil {
		return s, true
	}
	for at := g.Via; at != nil; {
		if own, ok = at.(S); ok {
			return own, true
		}
		o, is := at.(over)
		if !is {
			break
		}
		at = o.Next()
	}
	return own, false
}

// Part returns a request of the i-th group only.
func Part(r *backend.Request, i int) backend.Request {
	return backend.Request{Op: r.Op, Group: *r.GroupAt(i), StoreTime: r.StoreTime}
}

// Slice returns a request of the groups from one up to before another. Its Else says that others
// come before it.
func Slice(r *backend.Request, from, to int) backend.Request {
	q := Part(r, from)
	if q.Again = r.Again; to > from+1 {
		q.And = r.And[from : to-1]
	}
	return q
}

// Verdict is the decision of one group of a request.
type Verdict struct {
	backend.Decision
	Made bool // else no store was asked for the group, and it has no part in the answer
}

// Bind writes to d the decision of a request whose groups were decided one by one: that of
// the group that binds.
func Bind(r *backend.Request, all []Verdict, d *backend.Decision) {
	at, longest := -1, time.Duration(0)
	for i := range all {
		if all[i].Made && (at < 0 || binds(r, all, i, at)) {
			at = i
		}
		longest = max(longest, all[i].Delay)
	}
	*d = all[at].Decision
	//mutant:longest-delay-of-keys
	if d.Key, d.At = r.GroupAt(at).Key, at; d.Allowed {
		d.Delay = longest
	}
}

// binds reports whether the decision of the i-th group outranks that of an earlier one.
func binds(r *backend.Request, all []Verdict, i, earlier int) bool {
	d, e := &all[i].Decision, &all[earlier].Decision
	switch mine, its := rank(r.GroupAt(i), d), rank(r.GroupAt(earlier), e); {
	case mine != its:
		return mine > its
	case d.Allowed:
		return mine <= 0 && d.Remaining < e.Remaining
	}
	return d.RetryAfter > e.RetryAfter
}

// rank orders the decisions: a counted denial first, then the denials by failure modes, the
// strictest first. Last come those by which the call passes uncounted. A group of shadows
// by itself comes last.
func rank(g *backend.Group, d *backend.Decision) int {
	switch {
	case !enforces(g.Policies):
		return -1
	//mutant:counted-denial-wins
	case !d.Allowed && (d.Err == nil || d.Source == backend.FromDenyCache): // a known one too, of a call that was perhaps counted
		return 5
	case d.Source == backend.FromFailClosed:
		return 4
	case !d.Allowed:
		return 3
	case d.Source == backend.FromFailLocal:
		return 2
	case d.Source == backend.FromFailOpen:
		return 1
	}
	return 0
}

// enforces reports whether a list has a policy that can deny a call.
func enforces(list []backend.Policy) bool {
	for range backend.Enforced(list) {
		return true
	}
	return false
}
