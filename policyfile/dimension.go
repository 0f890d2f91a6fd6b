package policyfile

import (
	"slices"
	"time"

	"github.com/headgate-go/headgate"
)

// list is what a plan or a tenant has.
type list struct {
	policies []headgate.Policy // that count only by the key; nil: it is blocked
	scoped   []Scoped          // that count by a dimension too
	settings
}

// List is what a plan or a tenant has. The zero List has no limits.
type List struct {
	Policies []headgate.Policy // in the file's order, those that count by a dimension left out
	Scoped   []Scoped          // those that count by a dimension
	Shards   int               // as headgate.Options.Shards
	Borrow   time.Duration     // as headgate.Options.Borrow
	First    []string          // the policies of which the first one that has room is charged, in order; nil: all are charged
	Blocked  bool              // its tenants get nothing
}

// Scoped is a policy that counts by a dimension beside the key, such as the model or the
// route of a call.
type Scoped struct {
	Policy  headgate.Policy // of a blocked one only the name
	Per     string          // the dimension
	Only    []string        // the values that it limits; nil: all
	Blocked bool            // a call with such a value gets nothing
}

// exported returns the list, which the caller may change.
func (l list) exported() List {
	all := List{Policies: slices.Clone(l.policies), Shards: l.shards, Borrow: l.borrow, First: slices.Clone(l.first), Blocked: l.policies == nil}
	for _, s := range l.scoped {
		s.Only = slices.Clone(s.Only)
		all.Scoped = append(all.Scoped, s)
	}
	return all
}

// limiter returns the limiter of the policies, on the store of first, which has no settings.
func (l *list) limiter(first *headgate.Limiter) (*headgate.Limiter, error) {
	made, err := first.With(l.policies...)
	if err == nil && l.shards != 0 {
		made, err = made.WithShards(l.shards)
	}
	if err == nil && l.borrow != 0 {
		made, err = made.WithBorrow(l.borrow)
	}
	return made, err
}

// dimensions returns the dimensions of the list, in the file's order.
func (l *list) dimensions() (all []string) {
	for i := range l.scoped {
		if per := l.scoped[i].Per; !slices.Contains(all, per) {
			all = append(all, per)
		}
	}
	return all
}

// values returns the values that policies of a dimension name, and "" for all others.
func (l *list) values(per string) []string {
	all := []string{""}
	for i := range l.scoped {
		if l.scoped[i].Per == per {
			all = append(all, l.scoped[i].Only...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// of returns the list of the calls that have a value of a dimension.
func (l *list) of(per, value string) list {
	of := list{policies: []headgate.Policy{}, settings: l.settings}
	of.settings.first = nil
	for i := range l.scoped {
		switch s := &l.scoped[i]; {
		case s.Per != per || s.Only != nil && !slices.Contains(s.Only, value):
		case s.Blocked:
			return list{}
		default:
			of.policies = append(of.policies, s.Policy)
		}
	}
	return of
}

// each calls f for the list of the key, and for that of each value of each dimension.
func (l *list) each(f func(per, value string, of list) error) error {
	if err := f("", "", *l); err != nil {
		return err
	}
	for _, per := range l.dimensions() {
		for _, value := range l.values(per) {
			if err := f(per, value, l.of(per, value)); err != nil {
				return err
			}
		}
	}
	return nil
}

// scope returns a rule's dimension, "" for none, and the values that it limits.
func (r rule) scope() (per string, only []string, err error) {
	v, scoped := r.fields["per"]
	values, some := r.fields["only"]
	switch {
	case !scoped && some:
		return "", nil, r.at.missing("per", "the dimension that only has values of")
	case !scoped:
		return "", nil, nil
	}
	if per, err = v.text(); err != nil || !some {
		return per, nil, err
	}
	all := []value{values}
	if values.isNames() {
		if all, err = values.names(); len(all) == 0 && err == nil {
			return "", nil, values.errorf("an empty list; want a value, or several")
		}
	}
	for _, v := range all {
		name, err := v.text()
		if err != nil {
			return "", nil, err
		}
		only = append(only, name)
	}
	return per, only, err
}
