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
	plans, tenants map[string]*headgate.Limiter // the default plan under ""
}

// Limiters returns a limiter on s for each plan and tenant. opts are
// headgate.New's.
func (f *File) Limiters(s backend.Store, opts *headgate.Options) (*Limiters, error) {
	first, err := headgate.New(s, f.For(""), opts)
	if err != nil {
		return nil, err
	}
	return f.limiters(first)
}

// limiters makes those of each plan and tenant of any limiter on their store. A
// tenant without fields of its own gets its plan's limiter.
func (f *File) limiters(first *headgate.Limiter) (*Limiters, error) {
	l := &Limiters{map[string]*headgate.Limiter{}, map[string]*headgate.Limiter{}}
	var err error
	for name, policies := range f.plans {
		if l.plans[name], err = first.With(policies...); err != nil {
			return nil, err
		}
	}
	for name, t := range f.tenants {
		if l.tenants[name] = l.plans[t.plan]; t.own == nil {
			continue
		}
		if l.tenants[name], err = first.With(t.own...); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// For returns the limiter of a tenant: the default plan's where the file does
// not list the tenant. It is a look-up in a map.
func (l *Limiters) For(tenant string) *headgate.Limiter {
	if t, ok := l.tenants[tenant]; ok {
		return t
	}
	if t, ok := l.plans[""]; ok {
		return t
	}
	return &headgate.Limiter{} // of zero Limiters: its calls return an error
}

// Plan returns the limiter of a plan, and whether the file has that plan. "" is
// the default. It is a look-up in a map.
func (l *Limiters) Plan(name string) (*headgate.Limiter, bool) {
	p, ok := l.plans[name]
	return p, ok
}
