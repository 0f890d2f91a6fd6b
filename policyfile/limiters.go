package policyfile

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/adapter"
	"github.com/headgate-go/headgate/internal/listed"
)

// Limiters are a limiter for each plan and tenant of one file. They are
// immutable and safe for concurrent use. All are on one store and share its
// circuits and deny cache, and equal policies share their counts. Limiters of a
// new file replace the old ones as a whole.
type Limiters struct {
	plans, tenants map[string]entry // the default plan under ""
	dimensions     []string         // of all plans and tenants
	names          []string         // of the file's policies
	unknown        *unknown
	logger         *slog.Logger
}

// unknown reports the first name of each kind that a call has and the file does not.
type unknown struct{ dimension, policy sync.Once }

// entry is what a plan or a tenant has, or the calls of it with a value of a dimension.
// Without a limiter it has no limits, or is blocked.
type entry struct {
	limiter *headgate.Limiter
	names   []string // of the limiter's policies
	blocked bool
	firsts  []entry // instead of limiter, one of which is charged
	by      []axis  // in the file's order
}

// axis is a dimension, with what each value has; "" is any that the file does not name.
type axis struct {
	per    string
	values map[string]entry
}

// of returns what a value has.
func (a *axis) of(value string) entry {
	if e, ok := a.values[value]; ok {
		return e
	}
	return a.values[""]
}

// Limiters returns a limiter on s for each plan and tenant. opts are
// headgate.New's, but for Shards and Borrow, which the file has.
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
	l := &Limiters{
		plans: map[string]entry{}, tenants: map[string]entry{},
		dimensions: f.Dimensions(), names: f.names, unknown: new(unknown), logger: adapter.Of(first).Logger(),
	}
	var err error
	for name, policies := range f.plans {
		if l.plans[name], err = newEntry(first, f.names, policies, f.class(name)); err != nil {
			return nil, err
		}
	}
	for name, t := range f.tenants {
		if l.tenants[name] = l.plans[t.plan]; !t.changed {
			continue
		}
		if l.tenants[name], err = newEntry(first, f.names, t.own, f.class(t.plan)); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// class returns the class of a plan's keys, those of its tenants too. A flood of one plan's keys
// leaves counts in memory to the other plans. The keys of a file's only plan have none, since a
// class has at most half of the counts.
func (f *File) class(plan string) string {
	//mutant:only-plan-has-all
	if len(f.plans) <= 2 { // it is under its name and, as the default, under ""
		return ""
	}
	return cmp.Or(plan, f.fallback)
}

func newEntry(first *headgate.Limiter, names []string, l list, class string) (e entry, err error) {
	err = l.each(func(per, value string, of list) error {
		one, err := oneEntry(first, names, of, class)
		if err != nil {
			return err
		}
		switch last := len(e.by) - 1; {
		case per == "":
			e = one
		case last >= 0 && e.by[last].per == per:
			e.by[last].values[value] = one
		default:
			e.by = append(e.by, axis{per, map[string]entry{value: one}})
		}
		return nil
	})
	return e, err
}

// oneEntry returns the entry of a list's policies, those that count by a dimension left out.
func oneEntry(first *headgate.Limiter, names []string, of list, class string) (one entry, err error) {
	one.blocked = of.policies == nil

	if all := of.alternatives(); all != nil && !one.blocked {
		for _, a := range all {
			e, err := oneEntry(first, names, a, class)
			if err != nil {
				return one, err
			}
			one.firsts = append(one.firsts, e)
		}
		return one, nil
	}
	policies := slices.Clone(of.policies)
	for i := range policies {
		one.names = append(one.names, policies[i].Name)
		//mutant:plan-is-a-class
		policies[i].Class = class
	}
	if len(policies) > 0 {
		of.policies = policies
		if one.limiter, err = of.limiter(first); err != nil {
			return one, err
		}
		adapter.Of(one.limiter).Value(listed.Policies{}, func() any { return names })
	}
	return one, nil
}

// For returns the limiter of a tenant: the default plan's where the file does
// not list the tenant. It is a look-up in a map. It is nil, whose calls return an error,
// for a tenant that has no limits or is blocked. Use Parts where a file may have such.
func (l *Limiters) For(tenant string) *headgate.Limiter { return l.entry(tenant).limiter }

// Parts returns what limits a call of a tenant by the key, for headgate.All and for
// NewAll of package middleware/httplimit. It returns none for a tenant without limits, and
// headgate.ErrBlocked for one that is blocked. costs are those of Limiter.Part: plans of
// different policies need PartsFor, which takes costs by name. Policies that count by a
// dimension are left out.
func (l *Limiters) Parts(tenant, key string, costs ...int64) ([]headgate.Part, error) {
	switch e := l.entry(tenant); {
	case e.blocked:
		return nil, headgate.ErrBlocked
	//mutant:first-is-not-all
	case e.firsts != nil:
		return nil, errFirst
	case e.limiter == nil:
		return nil, nil
	default:
		return []headgate.Part{e.limiter.Part(key, costs...)}, nil
	}
}

// Use is what a call uses beside its key. The zero Use is a unit of each policy.
type Use struct {
	// Costs are units by the names of policies. A policy that is not named costs 1. A name that
	// the tenant's plan does not have is no mistake: its policy may be unlimited. Of one that no
	// policy of the file has, the Logger of Options.Limiter gets a line, the first of each
	// version of the file. What a call has used is reported by the same names, by ReportPolicy
	// of the middleware.
	Costs map[string]int64
	// Of is the call's value of each dimension, such as {"model": "large"}. A dimension without a
	// value limits nothing, and neither does the value "". A dimension by which no plan or tenant
	// of the file counts limits nothing too. The Logger of Options.Limiter gets the first such
	// name of each version of the file. A value that a client chooses freely has a count of its
	// own for each: check it before.
	Of map[string]string
}

// PartsFor is Parts for a call with costs by name, and with dimensions. Each dimension of
// which the call has a value is a part of its own. That has the policies of the file that
// count per this dimension, and the key followed by the dimension and the value, as
// "tenant:acme:model:large". An empty key stays empty, so that the call is refused. It
// returns headgate.ErrBlocked too for a value that is blocked. The parts are decided all
// or nothing.
func (l *Limiters) PartsFor(tenant, key string, u Use) ([]headgate.Part, error) {
	e := l.entry(tenant)
	l.known(&u)
	return u.parts(&e, key)
}

// PlanParts is PartsFor by the name of a plan, "" for the default. The error is a
// headgate.InvalidError if the file has no such plan.
func (l *Limiters) PlanParts(plan, key string, u Use) ([]headgate.Part, error) {
	e, err := l.planEntry(plan)
	if err != nil {
		return nil, err
	}
	l.known(&u)
	return u.parts(&e, key)
}

func (l *Limiters) planEntry(plan string) (entry, error) {
	e, ok := l.plans[plan]
	if !ok {
		return e, &headgate.InvalidError{What: "plan", Value: plan, Want: "one of the file"}
	}
	return e, nil
}

// known reports dimensions and policies that the file does not have, which may be misspelt.
// It is no error: a change of the file may have removed them while the service runs.
func (l *Limiters) known(u *Use) {
	if l.unknown == nil {
		return
	}
	for name := range u.Of {
		l.report(&l.unknown.dimension, "dimension", name, l.dimensions, "a call has a dimension by which no plan or tenant counts, so it limits nothing")
	}
	for name := range u.Costs {
		l.report(&l.unknown.policy, "policy", name, l.names, "a call has a cost of a policy that is not in the file, so it is not charged")
	}
}

func (l *Limiters) report(once *sync.Once, what, name string, known []string, text string) {
	if !slices.Contains(known, name) {
		once.Do(func() {
			l.logger.Warn("headgate: policy file: "+text, "error", &headgate.InvalidError{What: what, Value: name, Want: oneOf(known)})
		})
	}
}

func (u *Use) parts(e *entry, key string) (parts []headgate.Part, err error) {
	if parts, err = u.add(parts, e, key); err != nil {
		return nil, err
	}
	for i := range e.by {
		a := &e.by[i]
		value := u.Of[a.per]
		if value == "" {
			continue
		}
		of, scoped := a.of(value), "" // an empty key stays empty, so that it is refused
		if key != "" {
			scoped = key + ":" + headgate.Key(a.per, value)
		}
		if parts, err = u.add(parts, &of, scoped); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// add appends the part of an entry, if it has limits.
func (u *Use) add(parts []headgate.Part, e *entry, key string) ([]headgate.Part, error) {
	switch {
	case e.blocked:
		return nil, headgate.ErrBlocked
	case e.firsts != nil:
		return nil, errFirst
	case e.limiter == nil:
		return parts, nil
	}
	part := e.limiter.Part(key)
	if u.Costs != nil {
		part.Call.Costs, _ = listed.Units(e.names, nil, u.Costs) // known reports a name that no policy of the file has
	}
	return append(parts, part), nil
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
// limits or is blocked: PlanParts distinguishes them.
func (l *Limiters) Plan(name string) (*headgate.Limiter, bool) {
	p, ok := l.plans[name]
	return p.limiter, ok
}
