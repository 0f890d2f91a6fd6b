package rls

import (
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// Headers are the response headers that the service asks the proxy to add. They stand
// beside the X-RateLimit fields that the proxy makes of the statuses by itself.
type Headers struct {
	// Limit, Remaining and Reset are the names of three headers with the numbers of one
	// descriptor. It is the one which is over its limit, or else has the least left. ""
	// is none.
	Limit, Remaining, Reset string
	// Draft adds RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11,
	// and on a denial Retry-After.
	Draft bool
}

func (c *call) addHeaders(resp *rls.RateLimitResponse) {
	h := &c.service.opts.Headers
	if h.Limit != "" || h.Remaining != "" || h.Reset != "" {
		if st := c.binding(resp); st != nil {
			add(resp, h.Limit, int64(st.CurrentLimit.RequestsPerUnit))
			add(resp, h.Remaining, int64(st.LimitRemaining))
			add(resp, h.Reset, st.DurationUntilReset.GetSeconds())
		}
	}
	if h.Draft {
		c.addDraft(resp)
	}
}

func add(resp *rls.RateLimitResponse, name string, value int64) {
	if name != "" {
		addText(resp, name, strconv.FormatInt(value, 10))
	}
}

func addText(resp *rls.RateLimitResponse, name, value string) {
	resp.ResponseHeadersToAdd = append(resp.ResponseHeadersToAdd, &core.HeaderValue{Key: name, Value: value})
}

// binding returns the status that the headers are about. It is the last one that is over its
// limit, else the first with the least left; nil if none has numbers.
func (c *call) binding(resp *rls.RateLimitResponse) (by *rls.RateLimitResponse_DescriptorStatus) {
	least := uint32(math.MaxUint32)
	for i, st := range resp.Statuses {
		switch d := &c.descriptors[i]; {
		case st.CurrentLimit == nil:
		case st.Code == rls.RateLimitResponse_OVER_LIMIT && !d.match.Rule.Quota:
			by, least = st, 0
		case st.LimitRemaining < least:
			by, least = st, st.LimitRemaining
		}
	}
	return by
}

// addDraft adds a member per descriptor that has numbers and denies. Its name is that of
// the rate_limit, or the descriptor's last key.
func (c *call) addDraft(resp *rls.RateLimitResponse) {
	var policies, left []byte
	retry := time.Duration(0)
	for i, st := range resp.Statuses {
		d := &c.descriptors[i]
		if st.CurrentLimit == nil || d.part < 0 || !c.parts[d.part].ordinary() {
			continue
		}
		if len(policies) > 0 {
			policies, left = append(policies, ", "...), append(left, ", "...)
		}
		name := c.draftName(i)
		policies = appendParameter(append(policies, name...), "q", int64(st.CurrentLimit.RequestsPerUnit))
		policies = appendParameter(policies, "w", int64(max(d.match.Rule.Period, d.match.Rule.Policy.Algorithm.Limit().Period)/time.Second)) // of a month the longest
		left = appendParameter(append(left, name...), "r", int64(st.LimitRemaining))
		left = appendParameter(left, "t", st.DurationUntilReset.GetSeconds())
		if p := &c.parts[d.part]; p.over {
			retry = max(retry, p.state[0].RetryAfter, time.Duration(st.DurationUntilReset.GetSeconds())*time.Second)
		}
	}
	if len(policies) == 0 {
		return
	}
	addText(resp, "RateLimit-Policy", string(policies))
	addText(resp, "RateLimit", string(left))
	if resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT && retry > 0 {
		add(resp, "Retry-After", int64((retry+time.Second-1)/time.Second))
	}
}

func appendParameter(b []byte, name string, value int64) []byte {
	return strconv.AppendInt(append(append(append(b, ';'), name...), '='), value, 10)
}

// draftName returns the name of a member as a string of structured fields, which has
// printable ASCII only.
func (c *call) draftName(i int) []byte {
	name := c.descriptors[i].match.Rule.Limit.Name
	if entries := c.req.Descriptors[i].GetEntries(); name == "" && len(entries) > 0 {
		name = entries[len(entries)-1].GetKey()
	}
	b := append(make([]byte, 0, len(name)+2), '"')
	for i := 0; i < len(name); i++ {
		switch ch := name[i]; {
		case ch < ' ' || ch > '~':
			b = append(b, '_')
		case ch == '"' || ch == '\\':
			b = append(b, '\\', ch)
		default:
			b = append(b, ch)
		}
	}
	return append(b, '"')
}
