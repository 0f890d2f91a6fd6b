package policyfile

import (
	"maps"
	"slices"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
)

// parser reads one file. Rules keep the order of the file, which is the order
// of every list of policies and so of headgate.Call.Costs.
type parser struct {
	onFailure  headgate.FailureMode // of policies that name none
	dimensions []string             // that policies may count by; nil: any
	reserves   bool                 // no policy may have shards
	first      bool                 // a list may have first
	probe      *headgate.Limiter    // refuses, by its With, what no limiter could use
	rules      []rule               // the policies, in the file's order
	plans      map[string]plan      // that of the default under ""
	fields     map[string]perPlan   // shards and borrow
	file       *File
}

// plan is what a plan has in the file.
type plan struct {
	rules  []rule
	fields map[string]value // shards and borrow
}

// sections are the fields of a file.
var sections = []string{service, "policies", "plans", "default", "tenants", "shards", "borrow", firsts}

// parse reads the sections in the order in which they build on each other,
// whatever their order in the file is.
func (p *parser) parse(root value) (*File, error) {
	p.plans, p.fields = map[string]plan{}, map[string]perPlan{}
	p.file = &File{plans: map[string]list{}, tenants: map[string]tenant{}}
	found, err := p.sections(root)
	if err != nil {
		return nil, err
	}
	for _, section := range []struct {
		name string
		read func(value) error
	}{
		{"shards", p.perPlan},
		{"borrow", p.perPlan},
		{firsts, p.firstPerPlan},
		{service, p.service},
		{"policies", func(v value) error { return v.each(p.rule) }},
		{"plans", func(v value) error { return v.each(p.plan) }},
	} {
		if v, ok := found[section.name]; ok {
			if err := section.read(v); err != nil {
				return nil, err
			}
		}
	}
	for i := range p.rules {
		p.file.names = append(p.file.names, p.rules[i].name)
	}
	if err := p.base(root, found); err != nil {
		return nil, err
	}
	if err := p.knownPlans(); err != nil {
		return nil, err
	}
	if v, ok := found["tenants"]; ok {
		if err := v.each(p.tenant); err != nil {
			return nil, err
		}
	}
	return p.file, nil
}

// sections finds the sections before any of them is read, since the file may
// have them in any order.
func (p *parser) sections(root value) (map[string]value, error) {
	found := map[string]value{}
	err := root.each(func(key string, v value) error {
		if !slices.Contains(sections, key) {
			return v.unknown("field", key, sections)
		}
		found[key] = v
		return nil
	})
	return found, err
}

// service reads the policy of a rate limiter service, whose file has no failure mode.
func (p *parser) service(v value) error {
	r, err := readService(v)
	if err != nil {
		return err
	}
	if p.onFailure == 0 {
		return v.errorf("no failure mode; want Options.OnFailure, as this section has no field for it")
	}
	return p.add(r)
}

func (p *parser) rule(name string, v value) error {
	r, err := readRule(name, v)
	if err != nil {
		return err
	}
	return p.add(r)
}

// add keeps a policy that could be used as it is. It is checked even if no plan
// uses it: a mistake should show when it is written, not when a plan comes to
// need it.
func (p *parser) add(r rule) error {
	for _, other := range p.rules {
		if other.name == r.name {
			return r.at.errorf("given twice; the other is %s", other.at.field)
		}
	}
	if _, _, err := p.scope(r); err != nil {
		return err
	}
	if r.limitWord() == "" { // else a plan gives the limit
		if _, err := p.policy(r); err != nil {
			return err
		}
	}
	p.rules = append(p.rules, r)
	return nil
}

// plan reads a list of policies, or policies with the fields that differ. Both
// become changes to the rules, and policies that the plan does not name are
// left out.
func (p *parser) plan(name string, v value) (err error) {
	changes := map[string]rule{}
	if v.isNames() {
		changes, err = named(v)
	} else {
		err = readRules(v, changes)
	}
	if err != nil {
		return err
	}
	rules, err := changed(p.rules, changes)
	if err != nil {
		return err
	}
	rules = slices.DeleteFunc(rules, func(r rule) bool { _, ok := changes[r.name]; return !ok })
	return p.list(name, v, rules)
}

// named returns the policies of a list, without changes.
func named(v value) (map[string]rule, error) {
	names, err := v.names()
	changes := map[string]rule{}
	for _, v := range names {
		name, err := v.text()
		if err != nil {
			return nil, err
		}
		if _, ok := changes[name]; ok {
			return nil, v.errorf("%.80q given twice", name)
		}
		changes[name] = rule{name: name, at: v}
	}
	return changes, err
}

// changed returns the rules with the changes made, in the order of the rules. A
// change to a policy that is not among them is an error: it would limit
// nothing.
func changed(rules []rule, changes map[string]rule) ([]rule, error) {
	all, known := make([]rule, len(rules)), map[string]bool{}
	for i, r := range rules {
		known[r.name] = true
		if c, ok := changes[r.name]; ok {
			r = r.with(c)
		}
		all[i] = r
	}
	for _, name := range sorted(changes) {
		if !known[name] {
			return nil, changes[name].at.unknown("policy", name, sorted(known))
		}
	}
	return all, nil
}

// list keeps the list of a plan, which is at v.
func (p *parser) list(name string, v value, rules []rule) (err error) {
	p.plans[name] = plan{rules, p.fieldsOf(name)}
	p.file.plans[name], err = p.policies(v, p.plans[name])
	return err
}

// scope returns a rule's dimension and values, as rule.scope does, and refuses a dimension
// that no call has.
func (p *parser) scope(r rule) (per string, only []string, err error) {
	per, only, err = r.scope()
	//mutant:unlisted-dimension
	if err == nil && per != "" && p.dimensions != nil && !slices.Contains(p.dimensions, per) {
		err = r.fields["per"].errorf("%q is no dimension of the service's calls; want one of %q", per, p.dimensions)
	}
	return per, only, err
}

// scoped returns the policy of a rule, and the dimension that it counts by.
func (p *parser) scoped(r rule) (s Scoped, err error) {
	s.Policy.Name, s.Blocked = r.name, r.limitWord() == blocked
	if s.Per, s.Only, err = p.scope(r); err == nil && !s.Blocked {
		s.Policy, err = p.policy(r)
	}
	return s, err
}

// policies returns the list of a plan or tenant at v. It checks each policy,
// then the list, as policies that are right by themselves may not go together.
func (p *parser) policies(v value, of plan) (l list, err error) {
	l.policies = []headgate.Policy{}
	if l.settings, err = of.settings(); err != nil {
		return list{}, err
	}
	rules, blocks := of.rules, false
	for _, r := range rules {
		if r.limitWord() == unlimited { // a policy without a limit is left out
			continue
		}
		s, err := p.scoped(r)
		switch {
		case err != nil:
			return list{}, err
		case s.Per != "":
			l.scoped = append(l.scoped, s)
		case s.Blocked:
			blocks = true
		default:
			l.policies = append(l.policies, s.Policy)
		}
	}
	if blocks {
		return list{}, nil
	}
	if err := p.spread(&l); err != nil {
		return list{}, of.fields["shards"].error(err)
	}
	fields := of.fields
	return l, l.each(func(_, _ string, of list) error {
		if len(of.policies) == 0 && (len(rules) > 0 || of.policies == nil) {
			return nil
		}
		if _, err := of.limiter(p.probe); err != nil {
			return blame(err, fields, v)
		}
		return nil
	})
}

// spread returns what a list that is spread gives up.
func (p *parser) spread(l *list) error {
	switch {
	case l.shards < 2:
		return nil
	//mutant:shards-beside-per
	case len(l.scoped)+len(l.first) > 0: // each dimension is one more key of a call, and each of first
		return backend.CheckSpread(backend.Take, 2)
	//mutant:shards-of-reservations
	case p.reserves:
		return backend.CheckSpread(backend.Reserve, 1)
	}
	return nil
}

// base decides which list tenants get that the file does not name. With plans
// the file must name a default: to guess one could give strangers the largest
// plan.
func (p *parser) base(root value, found map[string]value) error {
	v, ok := found["default"]
	switch {
	case ok:
		name, err := p.planAt(v)
		p.file.fallback, p.plans[""], p.file.plans[""] = name, p.plans[name], p.file.plans[name]
		return err
	case len(p.plans) > 0:
		return root.missing("default", oneOf(sorted(p.plans)))
	case len(p.rules) == 0:
		return root.missing("policies", "at least one policy")
	}
	return p.list("", root, p.rules)
}

// planAt returns the plan that v names.
func (p *parser) planAt(v value) (string, error) {
	name, err := v.text()
	if err != nil {
		return "", err
	}
	if _, ok := p.plans[name]; !ok {
		return "", v.unknown("plan", name, sorted(p.plans))
	}
	return name, nil
}

// tenant reads a tenant: its plan, or the fields that differ from its plan.
func (p *parser) tenant(name string, v value) (err error) {
	t, changes, fields := tenant{}, map[string]rule{}, map[string]value{}
	if v.isText() {
		t.plan, err = p.planAt(v)
	} else {
		t.plan, err = p.tenantFields(v, changes, fields)
	}
	if err == nil && len(changes)+len(fields) > 0 {
		t.changed = true
		t.own, err = p.changedPlan(t.plan, v, changes, fields)
	}
	p.file.tenants[name] = t
	return err
}

// changedPlan returns a plan's list with the changes of one tenant.
func (p *parser) changedPlan(name string, v value, changes map[string]rule, fields map[string]value) (list, error) {
	rules, err := changed(p.plans[name].rules, changes)
	if err != nil {
		return list{}, err
	}
	own := plan{rules, maps.Clone(p.plans[name].fields)}
	maps.Copy(own.fields, fields)
	return p.policies(v, own)
}

var tenantFields = []string{"plan", "policies", "shards", "borrow", firsts}

// tenantFields fills changes and fields. It returns the plan, "" where the tenant names none.
func (p *parser) tenantFields(v value, changes map[string]rule, fields map[string]value) (plan string, err error) {
	err = v.each(func(key string, v value) (err error) {
		switch key {
		case "plan":
			plan, err = p.planAt(v)
		case "policies":
			err = readRules(v, changes)
		case "shards", "borrow":
			fields[key] = v
		case firsts:
			fields[key], err = v, p.mayFirst(v)
		default:
			err = v.unknown("field", key, tenantFields)
		}
		return err
	})
	return plan, err
}
