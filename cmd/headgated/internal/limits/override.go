package limits

import (
	"fmt"
	"sync"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// maxOverrides is the number of limits of requests that are kept. Clients choose them,
// so there may be any number: if the cache is full it is emptied, and the counts, which
// are the store's, stay.
const maxOverrides = 1000

// overrides are the rules of the limits that requests bring.
type overrides struct {
	parser *parser // no config is being parsed any more: its options and defaults
	mu     struct {
		sync.RWMutex
		rules map[override]*Rule
	}
}

// override is a limit of a request.
type override struct {
	requests uint32
	unit     typev3.RateLimitUnit
	times    uint32 // the unit's factor
}

// overrideOf returns the limit of a descriptor that has one.
func overrideOf(l *common.RateLimitDescriptor_RateLimitOverride) override {
	limit := override{l.GetRequestsPerUnit(), l.GetUnit(), 1}
	if f := l.GetUnitMultiplier(); f != nil {
		limit.times = f.GetValue()
	}
	return limit
}

func newOverrides(p *parser) *overrides {
	o := &overrides{parser: &parser{opts: p.opts, algorithm: p.algorithm, onFailure: p.onFailure, charge: p.charge, borrow: p.borrow}}
	o.mu.rules = map[override]*Rule{}
	return o
}

// override returns the match of a descriptor that brings its own limit. It has the key
// of the descriptor, so it shares the count of a limit of the same unit.
func (c *Config) override(domain string, d *common.RateLimitDescriptor) (Match, error) {
	r, err := c.overrides.rule(overrideOf(d.GetLimit()))
	if err != nil {
		return Match{}, err
	}
	steps := make([]step, len(d.GetEntries()))
	for i, e := range d.GetEntries() {
		steps[i] = step{key: e.GetKey(), value: e.GetValue()}
	}
	label := OverrideLabel(domain)
	m := Match{Rule: r, Path: label, Label: label}
	if r.Limiter != nil {
		m.Key = countKey(domain, steps)
	}
	return m, nil
}

// OverrideLabel is the path of such limits. No descriptor of the domain has it: a dot stands
// between a domain and a key.
func OverrideLabel(domain string) string { return domain + " override" }

func (o *overrides) rule(limit override) (*Rule, error) {
	o.mu.RLock()
	r := o.mu.rules[limit]
	o.mu.RUnlock()
	if r != nil {
		return r, nil
	}
	r, err := o.create(limit)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.mu.rules) >= maxOverrides {
		clear(o.mu.rules)
	}
	o.mu.rules[limit] = r
	return r, nil
}

func (o *overrides) create(limit override) (*Rule, error) {
	if periods[Unit(limit.unit)] == 0 || limit.times == 0 {
		return nil, fmt.Errorf("a descriptor's limit has the unit %v times %d", limit.unit, limit.times)
	}
	r := &Rule{Limit: &rls.RateLimitResponse_RateLimit{RequestsPerUnit: limit.requests}, Charge: o.parser.charge,
		Shadow: o.parser.opts.Shadow, Quota: o.parser.opts.Quota}
	r.setUnit(Unit(limit.unit), limit.times)
	if limit.requests == 0 { // decided, whatever the period is
		r.Algorithm = o.parser.algorithm
		return r, nil
	}
	p := *o.parser
	if p.opts.NewOverride != nil {
		p.opts.New = p.opts.NewOverride
	}
	return r, p.limit(r, p.algorithm, civil{}, p.onFailure, unset)
}
