package rls

import (
	"sync"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/cmd/headgated/internal/limits"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// call is one request while it is decided.
type call struct {
	service     *Service
	req         *rls.RateLimitRequest
	descriptors []descriptor
	parts       []part
	returned    []part // of descriptors with negative hits, which are no part of the decision

	descriptorBuffer [4]descriptor
	partBuffer       [4]part
}

// calls are those that no request uses: one is a kilobyte.
var calls = sync.Pool{New: func() any { return new(call) }}

// release gives the call back. Nothing of it is in the response.
func (c *call) release() {
	*c = call{}
	calls.Put(c)
}

// descriptor is one of a request.
type descriptor struct {
	match limits.Match
	hits  int64
	part  int // index of its count among the parts; -1 if it has none
}

// part is one count of a request: that of one descriptor or of several.
type part struct {
	rule  *limits.Rule
	key   string
	hits  int64 // of all its descriptors
	most  int64 // of one of them
	later int64 // of those whose statuses are filled: they come after the next
	how   how
	over  bool
	error error             // why no store decided
	state [1]headgate.State // NotCounted if no store decided
}

// how is the operation by which a part is decided.
type how int

const (
	ask      how = iota // charged if the request is admitted
	record              // charged always
	look                // never charged
	nothing             // its limit is 0: no store is asked
	giveBack            // taken out of what is counted
)

// maxHits is more than any limit. The protocol has room for more hits.
const maxHits = 1 << 33

func hitsOf(req *rls.RateLimitRequest, d *common.RateLimitDescriptor) int64 {
	if h := d.GetHitsAddend(); h != nil {
		return int64(min(h.GetValue(), maxHits))
	}
	return max(1, int64(req.GetHitsAddend()))
}

// resolve finds the limits of the descriptors, and then their counts.
func (c *call) resolve(config *limits.Config) error {
	c.descriptors, c.parts = c.descriptorBuffer[:0], c.partBuffer[:0]
	var replaced map[string]bool
	for _, d := range c.req.Descriptors {
		//mutant:negative-hits-charge-nothing
		if d.GetIsNegativeHits() { // whatever limit it brings
			c.service.opts.Observer.NegativeHits(c.req.Domain, c.returns(config, d))
			c.descriptors = append(c.descriptors, descriptor{part: -1})
			continue
		}
		m, err := config.Find(c.req.Domain, d)
		if err != nil {
			return invalid(BadOverride, "%v", err)
		}
		if m.Rule != nil {
			for _, name := range m.Rule.Replaces {
				if replaced == nil {
					replaced = map[string]bool{}
				}
				replaced[name] = true
			}
		}
		c.descriptors = append(c.descriptors, descriptor{match: m, hits: hitsOf(c.req, d), part: -1})
	}
	return c.divide(replaced)
}

// returns notes what a descriptor with negative hits returns, and reports whether it has a count
// of which units are returned.
func (c *call) returns(config *limits.Config, d *common.RateLimitDescriptor) bool {
	m, err := config.Find(c.req.Domain, d)
	switch r := m.Rule; {
	case err != nil, r == nil, r.Unlimited, r.Limiter == nil, !r.Policy.Algorithm.Kind().Returns():
		return false
	//mutant:negative-hits-bounded
	case len(c.returned) >= maxParts:
		return false
	}
	c.returned = append(c.returned, part{rule: m.Rule, key: m.Key, hits: hitsOf(c.req, d), how: giveBack})
	return true
}

// divide finds the counts of the descriptors whose limits are not replaced.
func (c *call) divide(replaced map[string]bool) error {
	for i := range c.descriptors {
		d := &c.descriptors[i]
		if r := d.match.Rule; r != nil && !r.Unlimited && r.Limit.Name != "" && replaced[r.Limit.Name] {
			d.match.Rule = nil
		}
		if r := d.match.Rule; r == nil || r.Unlimited {
			continue
		}
		if d.part = c.partOf(d); d.part >= maxParts {
			return invalid(ManyCounts, "more than %d counts", maxParts)
		}
	}
	for i := range c.parts {
		c.parts[i].how = howOf(&c.parts[i])
	}
	return nil
}

// partOf returns the index of the descriptor's count, and adds its hits. Descriptors of
// one count are one part, with the least of their limits.
func (c *call) partOf(d *descriptor) int {
	r := d.match.Rule
	for i := range c.parts {
		if p := &c.parts[i]; p.key == d.match.Key && sameCount(p.rule, r) {
			p.hits += d.hits
			p.most = max(p.most, d.hits)
			if r.Max() < p.rule.Max() {
				p.rule = r
			}
			return i
		}
	}
	c.parts = append(c.parts, part{rule: r, key: d.match.Key, hits: d.hits, most: d.hits})
	return len(c.parts) - 1
}

// sameCount reports whether two rules count one key together.
func sameCount(a, b *limits.Rule) bool {
	return a == b || a.Limiter != nil && b.Limiter != nil && a.Policy.Shadow == b.Policy.Shadow &&
		a.Policy.Algorithm.Identity() == b.Policy.Algorithm.Identity()
}

func howOf(p *part) how {
	switch {
	case p.rule.Limiter == nil:
		p.over = true
		return nothing
	case p.hits == 0:
		return look
	case p.rule.Charge == limits.ChargeAlways || p.rule.Charge == limits.ChargeDefault && p.most > 1:
		return record
	}
	return ask
}

// ordinary reports whether the part denies a request by itself.
func (p *part) ordinary() bool { return !p.rule.Shadow && !p.rule.Quota }

// denied reports whether the parts that are decided deny the request: an ordinary one is
// over, or all quotas are.
func (c *call) denied() bool {
	quotas, left := 0, 0
	for i := range c.parts {
		p := &c.parts[i]
		switch {
		case p.ordinary() && p.over:
			return true
		case p.rule.Quota && !p.rule.Shadow:
			quotas++
			if !p.over {
				left++
			}
		}
	}
	return quotas > 0 && left == 0
}
