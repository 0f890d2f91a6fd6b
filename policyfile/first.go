package policyfile

import (
	"slices"

	"github.com/headgate-go/headgate"
)

// firsts is the field that lists the policies of which the first with room is charged.
const firsts = "first"

// first reads that field: two policies or more, each of the plan, by the key alone and with a limit.
func (l *plan) first(v value) (all []string, err error) {
	if !v.isNames() {
		return nil, v.errorf("no list; want the policies in the order in which they are tried")
	}
	names, err := v.names()
	if err != nil {
		return nil, err
	}
	var known []string
	for _, r := range l.rules {
		if per, _, err := r.scope(); err == nil && per == "" && r.limitWord() == "" {
			known = append(known, r.name)
		}
	}
	for _, n := range names {
		name, err := n.text()
		switch {
		case err != nil:
			return nil, err
		case slices.Contains(all, name):
			return nil, n.errorf("%.80q given twice", name)
		//mutant:alternative-has-a-limit
		case !slices.Contains(known, name):
			return nil, n.unknown("policy with a limit by the key", name, known)
		}
		all = append(all, name)
	}
	if len(all) < 2 {
		return nil, v.errorf("%d policies; want two or more", len(all))
	}
	return all, nil
}

// mayFirst refuses the field for a service that decides all policies of a list.
func (p *parser) mayFirst(v value) error {
	//mutant:first-only-where-decided
	if !p.first {
		return v.errorf("the service decides all policies of a list, and none by first (Options.First)")
	}
	return nil
}

func (p *parser) firstPerPlan(v value) error {
	if err := p.mayFirst(v); err != nil {
		return err
	}
	return p.perPlan(v)
}

// alternatives returns a list for each policy of first: it and those that are counted always.
func (l *list) alternatives() (all []list) {
	for _, name := range l.settings.first {
		one := *l
		one.settings.first = nil
		one.policies = slices.DeleteFunc(slices.Clone(l.policies), func(p headgate.Policy) bool {
			return p.Name != name && slices.Contains(l.settings.first, p.Name)
		})
		all = append(all, one)
	}
	return all
}

// FirstFor returns what limits a call of a tenant by the key, for headgate.First and for NewFirst of
// package middleware/httplimit. A tenant whose list has first has a part for each policy named
// there, with the list's other policies in each. Any other tenant has one part. All else is as
// PartsFor has it: the parts of dimensions are in each part.
func (l *Limiters) FirstFor(tenant, key string, u Use) (parts []headgate.Part, err error) {
	return l.alternatives(l.entry(tenant), key, u)
}

// PlanFirst is FirstFor by the name of a plan, "" for the default. The error is as that of PlanParts.
func (l *Limiters) PlanFirst(plan, key string, u Use) (parts []headgate.Part, err error) {
	e, err := l.planEntry(plan)
	if err != nil {
		return nil, err
	}
	return l.alternatives(e, key, u)
}

func (l *Limiters) alternatives(e entry, key string, u Use) (parts []headgate.Part, err error) {
	l.known(&u)
	all := e.firsts
	if all == nil {
		all = []entry{e}
	}
	for _, one := range all {
		one.by = e.by
		keys, err := u.parts(&one, key)
		if err != nil {
			return nil, err
		}
		if len(keys) > 0 {
			keys[0].And = keys[1:]
			parts = append(parts, keys[0])
		}
	}
	return parts, nil
}

// errFirst is that of a call that decides all policies of a list with first.
var errFirst = &headgate.InvalidError{What: "call", Value: "of a plan with first", Want: "Limiters.FirstFor"}
