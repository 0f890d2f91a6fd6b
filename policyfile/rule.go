package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate-go/headgate"
)

// rule is a policy as the file has it. Each field stands by itself, so that
// plans and tenants can replace one, and that an error can name its line.
type rule struct {
	name   string
	at     value
	fields map[string]value
}

var ruleFields = slices.Concat([]string{"algorithm", "limit"}, numbers, []string{"on-failure", "shadow", "per", "only"})

// readRule returns the fields under at, for the policy of that name.
func readRule(name string, at value) (rule, error) {
	r := rule{name: name, at: at, fields: map[string]value{}}
	err := at.each(func(key string, v value) error {
		if !slices.Contains(ruleFields, key) {
			return v.unknown("field", key, ruleFields)
		}
		r.fields[key] = v
		return nil
	})
	return r, err
}

// readRules adds the fields under each policy at v.
func readRules(v value, rules map[string]rule) error {
	return v.each(func(policy string, v value) (err error) {
		rules[policy], err = readRule(policy, v)
		return err
	})
}

// with returns the rule with some of its fields replaced. An error then is at
// the place of the change, where a reader can mend it.
func (r rule) with(changes rule) rule {
	fields := maps.Clone(r.fields)
	maps.Copy(fields, changes.fields)
	return rule{r.name, changes.at, fields}
}

// The words that a limit can have in place of a number.
const (
	unlimited = "unlimited" // the policy is left out
	blocked   = "blocked"   // whoever has the policy gets nothing
)

// limitWord returns the word that stands in place of the limit, "" for a number.
func (r rule) limitWord() string {
	v, ok := r.fields["limit"]
	if !ok || !v.isText() {
		return ""
	}
	if word := v.target().Value; word == unlimited || word == blocked {
		return word
	}
	return ""
}

// policy returns the policy that the fields make. Ranges are checked by
// headgate; blame then finds the field.
func (p *parser) policy(r rule) (headgate.Policy, error) {
	a, err := r.algorithm()
	if err != nil {
		return headgate.Policy{}, err
	}
	mode, err := r.mode(p.onFailure)
	if err != nil {
		return headgate.Policy{}, err
	}
	shadow, err := r.flag("shadow")
	if err != nil {
		return headgate.Policy{}, err
	}
	policy := headgate.Policy{Name: r.name, Algorithm: a, OnFailure: mode, Shadow: shadow}
	if _, err := p.probe.With(policy); err != nil {
		return headgate.Policy{}, r.blame(err)
	}
	return policy, nil
}

// number returns a field that is a number. Without the field, that is absent,
// or an error where absent is negative.
func (r rule) number(field string, absent int64) (int64, error) {
	v, ok := r.fields[field]
	switch {
	case ok && field == "limit":
		return v.limit()
	case ok:
		return v.number()
	case absent < 0:
		return 0, r.at.missing(field, "a whole number")
	}
	return absent, nil
}

// flag returns a field that is true or false. Without the field, that is false.
func (r rule) flag(field string) (bool, error) {
	v, ok := r.fields[field]
	if !ok {
		return false, nil
	}
	return v.flag()
}

// word returns a field that is one of some words.
func (r rule) word(field string, words []string) (v value, word string, err error) {
	v, ok := r.fields[field]
	if !ok {
		return v, "", r.at.missing(field, oneOf(words))
	}
	word, err = v.text()
	return v, word, err
}

var modes = map[string]headgate.FailureMode{
	"open": headgate.FailOpen, "closed": headgate.FailClosed, "local": headgate.FailLocal,
}

// mode returns absent only where the file has no field. 0 is no mode, so
// without either the field is missing.
func (r rule) mode(absent headgate.FailureMode) (headgate.FailureMode, error) {
	words := []string{"open", "closed", "local"}
	if _, ok := r.fields["on-failure"]; !ok && absent != 0 {
		return absent, nil
	}
	v, word, err := r.word("on-failure", words)
	if err != nil {
		return 0, err
	}
	mode, ok := modes[word]
	if !ok {
		return 0, v.unknown("failure mode", word, words)
	}
	return mode, nil
}

// fieldOf are the fields of what an InvalidError is about, where its first word is
// no field's name.
var fieldOf = map[string]string{"time zone": "zone", "calendar period": "anchor", "max delay": "max-delay"}

// blame returns err at the field whose value it is about, or at the whole rule.
func (r rule) blame(err error) error {
	var invalid *headgate.InvalidError
	if errors.As(err, &invalid) {
		word, _, _ := strings.Cut(invalid.What, " ")
		if v, ok := r.fields[cmp.Or(fieldOf[invalid.What], word)]; ok && word == "limit" {
			return v.error(fmt.Errorf("%w, or %s or %s", invalid, unlimited, blocked))
		} else if ok {
			return v.error(invalid)
		}
		return r.at.error(invalid)
	}
	return r.at.error(err)
}
