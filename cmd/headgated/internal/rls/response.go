package rls

import (
	"math"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/cmd/headgated/internal/limits"
	"google.golang.org/protobuf/types/known/durationpb"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// response makes the answer of the parts that are decided.
func (c *call) response() *rls.RateLimitResponse {
	resp := &rls.RateLimitResponse{
		OverallCode: rls.RateLimitResponse_OK,
		Statuses:    make([]*rls.RateLimitResponse_DescriptorStatus, len(c.descriptors)),
	}
	// One allocation for all statuses, and one for all durations.
	statuses := make([]rls.RateLimitResponse_DescriptorStatus, len(c.descriptors))
	for i := len(c.descriptors) - 1; i >= 0; i-- { // backwards: a status includes the hits of later descriptors
		st := &statuses[i]
		c.status(st, i)
		resp.Statuses[i] = st
	}
	if c.denied() && !c.service.opts.ShadowMode {
		resp.OverallCode = rls.RateLimitResponse_OVER_LIMIT
	}
	c.addHeaders(resp)
	if c.service.opts.Metadata {
		resp.DynamicMetadata = c.metadata()
	}
	return resp
}

// status fills the status of a descriptor, and reports it to the observer.
func (c *call) status(st *rls.RateLimitResponse_DescriptorStatus, i int) {
	d := &c.descriptors[i]
	st.Code = rls.RateLimitResponse_OK
	if d.part < 0 {
		if r := d.match.Rule; r != nil && r.Unlimited {
			st.LimitRemaining = math.MaxUint32
			c.service.opts.Observer.Descriptor(d.match.Path, d.match.Label, OK)
			c.service.opts.Observer.Counted(&d.match, &headgate.State{}, OK)
		}
		return
	}
	p, r := &c.parts[d.part], d.match.Rule
	over := p.over
	if r.Max() != p.rule.Max() && p.state[0].Known != backend.NotCounted { // the part has the least limit of its descriptors
		over = p.state[0].Used+c.uncharged(p) > r.Max()
	}
	outcome := OK
	if over {
		if outcome = OverLimit; !p.ordinary() {
			outcome = ShadowOverLimit
		}
		//mutant:own-shadow-is-ok
		if !r.OwnShadow {
			st.Code = rls.RateLimitResponse_OVER_LIMIT
		}
	}
	c.service.opts.Observer.Descriptor(d.match.Path, d.match.Label, outcome)
	//mutant:page-of-no-store
	if p.state[0].Known == backend.NotCounted && r.Limiter != nil {
		outcome = Undecided
	}
	c.service.opts.Observer.Counted(&d.match, &p.state[0], outcome)
	c.numbers(st, d, p)
	p.later += d.hits
}

// reportUndecided reports the descriptors of a request that is answered with an error.
func (c *call) reportUndecided() {
	for i := range c.descriptors {
		if d := &c.descriptors[i]; d.part >= 0 {
			c.service.opts.Observer.Counted(&d.match, &headgate.State{}, Undecided)
		}
	}
}

// uncharged returns the hits of a part that its state does not include.
func (c *call) uncharged(p *part) int64 {
	if p.how != record && p.over {
		return p.hits
	}
	return 0
}

// numbers fills the limit and what is left of it. What no store counted has none, since
// a proxy would show them to its clients.
func (c *call) numbers(st *rls.RateLimitResponse_DescriptorStatus, d *descriptor, p *part) {
	r := d.match.Rule
	if r.Limiter == nil { // a limit of 0
		st.CurrentLimit = r.Limit
		st.DurationUntilReset = &durationpb.Duration{Seconds: untilReset(r)}
		return
	}
	s := &p.state[0]
	if s.Known == backend.NotCounted {
		return
	}
	st.CurrentLimit = r.Limit
	//mutant:left-below-zero
	left := r.Max() - s.Used        // and not Remaining, which is never below 0
	if !p.over || p.how == record { // charged, with those of later descriptors: one came after the other
		left += p.later
	}
	st.LimitRemaining = uint32(max(0, min(left, math.MaxUint32)))
	seconds := int64((s.ResetAfter + time.Second - 1) / time.Second)
	if kind := r.Policy.Algorithm.Kind(); seconds == 0 && (kind == rule.KindFixedWindow || kind == rule.KindCalendar) {
		seconds = untilReset(r) // nothing is counted: when the window ends
	}
	st.DurationUntilReset = &durationpb.Duration{Seconds: seconds}
}

// untilReset returns the seconds until the window of a rule ends.
func untilReset(r *limits.Rule) int64 {
	return int64((r.UntilReset(time.Now()) + time.Second - 1) / time.Second)
}
