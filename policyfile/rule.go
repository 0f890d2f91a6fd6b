package policyfile

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
)

// rule is a policy as the file has it. Each field stands by itself, so that
// plans and tenants can replace one, and that an error can name its line.
type rule struct {
	name   string
	at     value
	fields map[string]value
}

var ruleFields = []string{"algorithm", "limit", "period", "burst", "buckets", "on-failure", "shards"}

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

// policy returns the policy that the fields make. Ranges are checked by
// headgate; blame then finds the field. Shards beyond an int of 32 bits are cut
// to its maximum, which is out of range as well.
func (p *parser) policy(r rule) (headgate.Policy, error) {
	a, err := r.algorithm()
	if err != nil {
		return headgate.Policy{}, err
	}
	mode, err := r.mode(p.onFailure)
	if err != nil {
		return headgate.Policy{}, err
	}
	shards, err := r.number("shards", 0)
	if err != nil {
		return headgate.Policy{}, err
	}
	policy := headgate.Policy{Name: r.name, Algorithm: a, OnFailure: mode, Shards: int(min(shards, 1<<31-1))}
	if _, err := p.probe.With(policy); err != nil {
		return headgate.Policy{}, r.blame(err)
	}
	return policy, nil
}

// algorithms are the names of the algorithms, each with what makes it of a
// limit and the number that it alone has.
var algorithms = map[string]struct {
	own  string // the field of that number; "" where there is none
	make func(l algo.Limit, own int64) algo.Algorithm
}{
	"fixed-window":    {"", func(l algo.Limit, _ int64) algo.Algorithm { return algo.FixedWindow(l) }},
	"sliding-window":  {"", func(l algo.Limit, _ int64) algo.Algorithm { return algo.SlidingWindow(l) }},
	"bucketed-window": {"buckets", algo.BucketedWindow},
	"sliding-log":     {"", func(l algo.Limit, _ int64) algo.Algorithm { return algo.SlidingLog(l) }},
	"compact-log":     {"", func(l algo.Limit, _ int64) algo.Algorithm { return algo.CompactLog(l) }},
	"token-bucket":    {"burst", algo.TokenBucket},
}

// algorithm refuses a number that the algorithm does not have: a burst of a
// fixed window would be silently ignored.
func (r rule) algorithm() (a algo.Algorithm, err error) {
	v, name, err := r.word("algorithm", sorted(algorithms))
	if err != nil {
		return a, err
	}
	kind, ok := algorithms[name]
	if !ok {
		return a, v.unknown("algorithm", name, sorted(algorithms))
	}
	for _, field := range []string{"burst", "buckets"} {
		if v, ok := r.fields[field]; ok && field != kind.own {
			return a, v.errorf("given; a %s has none", name)
		}
	}
	own := int64(0)
	if kind.own != "" {
		if own, err = r.number(kind.own, -1); err != nil {
			return a, err
		}
	}
	l, err := r.limit()
	return kind.make(l, own), err
}

// limit joins two fields, each with its own error.
func (r rule) limit() (algo.Limit, error) {
	events, err := r.number("limit", -1)
	if err != nil {
		return algo.Limit{}, err
	}
	v, ok := r.fields["period"]
	if !ok {
		return algo.Limit{}, r.at.missing("period", "a duration, as 1m")
	}
	period, err := v.duration()
	return algo.Per(events, period), err
}

// number returns a field that is a number. Without the field, that is absent,
// or an error where absent is negative.
func (r rule) number(field string, absent int64) (int64, error) {
	v, ok := r.fields[field]
	switch {
	case ok:
		return v.number()
	case absent < 0:
		return 0, r.at.missing(field, "a whole number")
	}
	return absent, nil
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

// blame returns err at the field whose value it is about, or at the whole rule.
// An InvalidError's What begins with the name of the number, which the fields
// have too.
func (r rule) blame(err error) error {
	var invalid *headgate.InvalidError
	if errors.As(err, &invalid) {
		if v, ok := r.fields[strings.SplitN(invalid.What, " ", 2)[0]]; ok {
			return v.error(invalid)
		}
		return r.at.error(invalid)
	}
	return r.at.error(err)
}
