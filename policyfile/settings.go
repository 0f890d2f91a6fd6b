package policyfile

import (
	"errors"
	"time"

	"github.com/headgate-go/headgate"
)

// settings are what a list has beside its policies.
type settings struct {
	shards int
	borrow time.Duration
	first  []string // the policies that are alternatives, in order; nil: none is
}

// perPlan is a section that has a value for all plans, or one for each of some.
type perPlan struct {
	section string
	all     *value // nil: the section has plans
	plans   map[string]value
}

// perPlan reads such a section: a value, or values by the names of plans.
func (p *parser) perPlan(v value) error {
	of := perPlan{section: v.field, plans: map[string]value{}}
	if v.isText() || v.isNames() {
		of.all = &v
	} else if err := v.each(func(plan string, v value) error { of.plans[plan] = v; return nil }); err != nil {
		return err
	}
	p.fields[of.section] = of
	return nil
}

// knownPlans refuses such a section that names no plan of the file.
func (p *parser) knownPlans() error {
	for _, section := range sorted(p.fields) {
		of := p.fields[section]
		for _, name := range sorted(of.plans) {
			if _, ok := p.file.plans[name]; !ok || name == "" {
				return of.plans[name].unknown("plan", name, p.file.Plans())
			}
		}
	}
	return nil
}

// fieldsOf returns the values of such sections for a plan.
func (p *parser) fieldsOf(plan string) map[string]value {
	fields := map[string]value{}
	for section, of := range p.fields {
		if v, ok := of.plans[plan]; ok {
			fields[section] = v
		} else if of.all != nil {
			fields[section] = *of.all
		}
	}
	return fields
}

// settings returns the numbers. Their ranges are checked by headgate; blame then finds the field.
func (l *plan) settings() (s settings, err error) {
	if v, ok := l.fields["shards"]; ok {
		n, err := v.number()
		if err != nil {
			return s, err
		}
		s.shards = nearestInt(n)
	}
	if v, ok := l.fields["borrow"]; ok {
		if s.borrow, err = v.duration(); err != nil {
			return s, err
		}
	}
	if v, ok := l.fields[firsts]; ok {
		s.first, err = l.first(v)
	}
	return s, err
}

// blame returns err at the field whose value it is about, or at the whole list.
func blame(err error, fields map[string]value, list value) error {
	var invalid *headgate.InvalidError
	if errors.As(err, &invalid) {
		if v, ok := fields[invalid.What]; ok {
			return v.error(err)
		}
	}
	return list.error(err)
}
