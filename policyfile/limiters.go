package policyfile

import (
	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
)

// Limiters are a limiter for each plan and tenant of one file. They are
// immutable and safe for concurrent use. All are on one store and share its
// circuits and deny cache, and equal policies share their counts. Limiters of a
// new file replace the old ones as a whole.
type Limiters struct {
	plans, tenants map[string]entry // the default plan under ""
}

// entry is what a plan or a tenant has. Without a limiter it has no limits, or is
// blocked.
type entry struct {
	limiter *headgate.Limiter
	blocked bool
}

// Limiters returns a limiter on s for each plan and tenant. opts are
// headgate.New's.
func (f *File) Limiters(s backend.Store, opts *headgate.Options) (*Limiters, error) {
	if len(f.plans) == 0 {
		return nil, &headgate.InvalidError{What: "file", Value: "a zero File", Want: "one that Parse or Load returned"}
	}
	first, err := usable(s, opts)
	if err != nil {
		return nil, err
	}
	return f.limiters(first)
}

// limiters makes those of each plan and tenant of any limiter on their store. A
// tenant without fields of its own gets its plan's limiter.
func (f *File) limiters(first *headgate.Limiter) (*Limiters, error) {
	l := &Limiters{map[string]entry{}, map[string]entry{}}
	var err error
	for name, policies := range f.plans {
		if l.plans[name], err = newEntry(first, policies); err != nil {
			return nil, err
		}
	}
	for name, t := range f.tenants {
		if l.tenants[name] = l.plans[t.plan]; !t.changed {
			continue
		}
		if l.tenants[name], err = newEntry(first, t.own); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func newEntry(first *headgate.Limiter, policies []headgate.Policy) (e entry, err error) {
	if e.blocked = policies == nil; len(policies) == 0 {
		return e, nil
	}
	e.limiter, err = first.With(policies...)
	return e, err
}

// For returns the limiter of a tenant: the default plan's where the file does
// not list the tenant. It is a look-up in a map. It is nil, whose calls return an error,
// for a tenant that has no limits or is blocked. Use Parts where a file may have such.
func (l *Limiters) For(tenant string) *headgate.Limiter { return l.entry(tenant).limiter }

// Parts returns what limits a call of a tenant by the key, for headgate.All and for
// NewAll of package middleware/httplimit. It returns none for a tenant without limits, and
// headgate.ErrBlocked for one that is blocked. costs are those of Limiter.Call.
func (l *Limiters) Parts(tenant, key string, costs ...int64) ([]headgate.Part, error) {
	switch e := l.entry(tenant); {
	case e.blocked:
		return nil, headgate.ErrBlocked
	case e.limiter == nil:
		return nil, nil
	default:
		return []headgate.Part{e.limiter.Call(key, costs...)}, nil
	}
}

func (l *Limiters) entry(tenant string) entry {
	if t, ok := l.tenants[tenant]; ok {
		return t
	}
	if p, ok := l.plans[""]; ok {
		return p
	}
	return entry{limiter: &headgate.Limiter{}} // of zero Limiters: its calls return an error
}

// Plan returns the limiter of a plan, and whether the file has that plan. "" is
// the default. It is a look-up in a map. The limiter is nil for a plan that has no
// limits or is blocked.
func (l *Limiters) Plan(name string) (*headgate.Limiter, bool) {
	p, ok := l.plans[name]
	return p.limiter, ok
}
