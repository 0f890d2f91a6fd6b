package httplimit

import (
	"math/bits"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/adapter"
	"github.com/headgate-go/headgate/middleware/internal/field"
)

// memberSep separates the members of a list field.
const memberSep = ", "

// fields are the settings of the header fields. They never change and are shared by all
// requests.
type fields struct {
	units   map[string]string
	names   func(string) string // of policies; nil: their own
	fixed   bool                // units, Cost or Settle determine the units, not the cost of each request
	kept    bool                // by a middleware: limiters keep texts for it
	exposed []string            // the line of Access-Control-Expose-Headers; nil for none
	x       bool                // X-RateLimit-* too
	epoch   bool                // X-RateLimit-Reset is an instant
}

func newFields(opts *Options) *fields {
	f := &fields{units: opts.Units, names: opts.Names, x: opts.XRateLimit, epoch: opts.ResetEpoch}
	f.fixed = len(opts.Units) > 0 || opts.Cost != nil || opts.Settle != nil
	if opts.ExposeHeaders {
		names := "RateLimit, RateLimit-Policy, Retry-After"
		if opts.XRateLimit {
			names += ", X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"
		}
		f.exposed = []string{names}
	}
	return f
}

// texts are what the fields have of a limiter's policies and what is the same for all
// responses. They are made once per limiter, so that a response allocates only its own
// numbers.
type texts struct {
	policies []text   // in the limiter's order
	line     []string // of RateLimit-Policy, where all costs are 1; nil where all policies are shadows
	leased   bool     // only a reservation can charge one of the policies
	fixed    bool     // a cost does not change the unit
}

// text has what the fields have of one policy.
type text struct {
	name    string // "name"; with the quotes and the semicolon; "" for a shadow policy, which limits no client
	quota   string // its member in RateLimit-Policy
	limit   int64  // units
	unit    bool   // quota names a unit other than requests
	second  bool   // its windows end on whole seconds of the store's clock
	running bool   // of calls in flight, whose window is unknown
}

// textsKey is the key of a limiter's texts: by the fields where these determine the units,
// and else one for all.
type textsKey struct{ of *fields }

func (f *fields) texts(l *headgate.Limiter) *texts {
	key := textsKey{f}
	switch {
	//mutant:names-of-the-fields
	case !f.fixed && f.names == nil:
		key.of = nil
	case !f.kept: // else each call would leave its texts at the limiter
		return f.newTexts(adapter.Of(l))
	}
	return adapter.Of(l).Value(key, func() any { return f.newTexts(adapter.Of(l)) }).(*texts)
}

// newTexts relies on the names of policies: they have no character that a structured
// field would have to escape.
func (f *fields) newTexts(l *adapter.Limiter) *texts {
	policies := l.Policies
	ts := &texts{policies: make([]text, len(policies)), fixed: f.fixed}
	var line []string
	for i := range policies {
		p := &policies[i]
		ts.leased = ts.leased || p.Algorithm.Kind().Leased()
		name := f.name(p.Name)
		//mutant:shadow-hidden
		if p.Shadow || name == "" {
			continue
		}
		t := &ts.policies[i]
		t.name, t.limit, t.running = `"`+name+`";`, p.Algorithm.Max(), p.Algorithm.Kind().Leased()
		t.quota = string(appendQuota([]byte(t.name), &p.Algorithm))
		//mutant:borrowed-ends-in-between
		t.second = l.Borrow == 0 && onSecond(p) // units that a process borrows come back in between
		t.unit = t.running
		unit := f.units[p.Name]
		//mutant:unit-of-the-set-up
		if f.fixed && len(f.units) == 0 {
			unit = "units"
		}
		if unit != "" && !t.running {
			t.quota, t.unit = t.quota+`;qu="`+unit+`"`, unit != "requests"
		}
		line = append(line, t.quota)
	}
	if line != nil {
		ts.line = []string{strings.Join(line, memberSep)}
	}
	return ts
}

// onSecond reports whether a policy's windows end on whole seconds.
func onSecond(p *headgate.Policy) bool {
	switch p.Algorithm.Kind() {
	case rule.KindFixedWindow, rule.KindCalendar:
		return p.Algorithm.Limit().Period%time.Second == 0
	}
	return false
}

// appendQuota appends q and, where it is a second or more, w. Of a TokenBucket or a LeakyQueue
// they are the burst and the time in which it fills. Calls in flight have no window,
// and a unit of their own.
func appendQuota(b []byte, a *algo.Algorithm) []byte {
	limit := a.Limit()
	b = strconv.AppendInt(append(b, "q="...), min(a.Max(), field.MaxInteger), 10)
	if a.Kind().Leased() {
		return append(b, `;qu="concurrent-requests"`...)
	}
	periods, of := int64(1), int64(1)
	if a.Kind().Rates() {
		periods, of = a.Max(), limit.Events
	}
	hi, lo := bits.Mul64(uint64(periods), uint64(limit.Period.Microseconds()))
	second := uint64(of) * 1e6
	w, rest := bits.Div64(hi, lo, second) // hi is below 2^20, whatever the ranges of package algo
	if w == 0 || w >= field.MaxInteger {
		return b
	}
	if rest > 0 {
		w++
	}
	return strconv.AppendUint(append(b, ";w="...), w, 10)
}

// member is a policy of a response.
type member struct {
	*text
	state *headgate.State
	cost  int64 // 1 if it does not determine the unit
}

// counted reports whether a state has numbers that clients may see.
func counted(s *headgate.State) bool { return s.Known != backend.NotCounted }

// outranks reports whether m is shown in place of a member of the same name. That is the one
// that denies longer, and of those that pass the one with less remaining.
func (m *member) outranks(other *member) bool {
	switch s, o := m.state, other.state; {
	case counted(s) != counted(o):
		return counted(s)
	case s.RetryAfter != o.RetryAfter:
		return s.RetryAfter > o.RetryAfter
	default:
		return s.Remaining < o.Remaining
	}
}

// choose fills the members of a decision, one per name.
func (s *scratch) choose(list []headgate.Part) {
	s.members = s.members[:0]
	for i := range list {
		call, ts := &list[i].Call, s.texts[i]
		for j := range min(len(ts.policies), len(call.Each)) {
			m := member{&ts.policies[j], &call.Each[j], 1}
			if m.name == "" {
				continue
			}
			//mutant:cost-changes-no-unit
			if j < len(call.Costs) && !ts.fixed {
				m.cost = call.Costs[j]
			}
			s.add(&m, i > 0)
		}
	}
}

// add adds a member, or puts it in place of one of its name, which only another part
// may have.
func (s *scratch) add(m *member, others bool) {
	at := -1
	if others {
		at = slices.IndexFunc(s.members, func(o member) bool { return o.name == m.name })
	}
	switch {
	case at < 0:
		s.members = append(s.members, *m)
	//mutant:less-remaining-shown
	case m.outranks(&s.members[at]):
		s.members[at] = *m
	}
}

// write sets the fields of a decision in h, but for Retry-After.
func (s *scratch) write(f *fields, h http.Header, list []headgate.Part, d *headgate.Decision) {
	if len(s.texts) != len(list) {
		s.look(f, list)
	}
	s.choose(list)
	s.replace(h, field.Policy, s.policies(list))
	if f.exposed != nil {
		addOnce(h, "Access-Control-Expose-Headers", f.exposed)
	}
	if s.buf = s.appendStates(s.buf[:0]); len(s.buf) > 0 {
		s.replace(h, field.Limit, []string{string(s.buf)})
	} else {
		s.replace(h, field.Limit, nil)
	}
	if f.x && counted(&d.State) && len(s.members) > 0 {
		m := s.shown(d)
		h["X-Ratelimit-Limit"] = []string{itoa(m.limit)}
		h["X-Ratelimit-Remaining"] = []string{itoa(m.state.Remaining)}
		h["X-Ratelimit-Reset"] = []string{itoa(f.reset(&m))}
	}
}

// shown returns the member that X-RateLimit-* have, as they can show one policy only. Its
// limit is that of RateLimit-Policy: under FailLocal the decision has this process's share.
func (s *scratch) shown(d *headgate.Decision) member {
	var least *member
	for i := range s.members {
		m := &s.members[i]
		switch {
		case !d.Allowed: // the policy that denies
			//mutant:one-limit-in-all-fields
			if m.state.Policy == d.Policy {
				return member{m.text, &d.State, m.cost}
			}
		case counted(m.state) && (least == nil || m.binds(least)):
			least = m
		}
	}
	if least == nil {
		return member{&text{limit: d.Limit}, &d.State, 1}
	}
	return *least
}

// binds reports whether m is shown in place of another member of a request that passes.
// Requests come before other units, so that a client gets the numbers of one unit.
func (m *member) binds(other *member) bool {
	//mutant:requests-shown-first
	if m.requests() != other.requests() {
		return m.requests()
	}
	return m.state.Remaining < other.state.Remaining
}

// requests reports whether the policy counts requests: no unit is named, and this one costs 1.
func (m *member) requests() bool { return m.cost == 1 && !m.unit }

// answerTime is the most that passes between the store's answer and its use here, in
// which the clocks of the two may differ too.
const answerTime = 100 * time.Millisecond

// reset returns X-RateLimit-Reset. As an instant it is rounded up. Seen from here, the end
// of a window lies up to answerTime after its second, and would be rounded to the next.
func (f *fields) reset(m *member) int64 {
	if !f.epoch {
		return window(m.state)
	}
	in := m.state.ResetAfter
	if m.state.RetryAfter > 0 {
		in = m.state.RetryAfter
	}
	//mutant:window-ends-on-its-second
	if m.second {
		in = max(0, in-answerTime)
	}
	return time.Now().Add(in + time.Second - 1).Unix() // rounded up
}

// policies returns the line of RateLimit-Policy: the limiter's own where there is one
// part and each cost is 1.
func (s *scratch) policies(list []headgate.Part) []string {
	if len(list) == 1 && list[0].Call.Costs == nil {
		return s.texts[0].line
	}
	var b []byte
	for i := range s.members {
		m := &s.members[i]
		if len(b) > 0 {
			b = append(b, memberSep...)
		}
		//mutant:costs-are-no-requests
		if b = append(b, m.quota...); m.cost != 1 && !m.unit {
			b = append(b, `;qu="units"`...)
		}
	}
	if b == nil {
		return nil
	}
	return []string{string(b)}
}

// replace adds a line to a list field, in place of the members of the same
// policies. Two numbers of one name would contradict each other. Members of
// other middleware stay. The line has capacity 1, so that an append copies it.
func (s *scratch) replace(h http.Header, name string, line []string) {
	var kept []string
	for _, l := range h[name] {
		if l = s.others(l); l != "" {
			kept = append(kept, l)
		}
	}
	if kept != nil {
		line = append(kept, line...)
	}
	if line != nil {
		h[name] = line
	} else {
		delete(h, name)
	}
}

// others returns a line without the members of this middleware's policies. No
// string of a list holds what ends a member and begins one of these.
func (s *scratch) others(line string) string {
	var kept []string
	for _, m := range strings.Split(line, memberSep) {
		if !slices.ContainsFunc(s.members, func(own member) bool { return strings.HasPrefix(m, own.name) }) {
			kept = append(kept, m)
		}
	}
	return strings.Join(kept, memberSep)
}

// addOnce adds a line of capacity 1 that all responses share, once.
func addOnce(h http.Header, name string, line []string) {
	switch lines := h[name]; {
	case lines == nil:
		h[name] = line
	case !slices.Contains(lines, line[0]):
		h[name] = append(lines, line[0])
	}
}

// appendStates appends the line of RateLimit. A policy that no store counted has
// no member: its zeros would tell a client that nothing is left. Nor has a shadow
// policy: a client that read its numbers would slow down.
func (s *scratch) appendStates(b []byte) []byte {
	for i := range s.members {
		m := &s.members[i]
		//mutant:uncounted-hidden
		if !counted(m.state) {
			continue
		}
		if len(b) > 0 {
			b = append(b, memberSep...)
		}
		b = append(append(b, m.name...), field.Available+"="...)
		b = strconv.AppendInt(b, min(m.state.Remaining, field.MaxInteger), 10)
		if m.running {
			continue
		}
		b = strconv.AppendInt(append(b, ";"+field.Window+"="...), window(m.state), 10)
	}
	return b
}

// window returns the seconds in which a policy's available units hold: where
// it denies until the same request would pass, else until nothing is counted.
func window(s *headgate.State) int64 {
	if s.RetryAfter > 0 {
		return field.Seconds(s.RetryAfter)
	}
	return field.Seconds(s.ResetAfter)
}

// jitter returns whole seconds from 0 to most, as Retry-After has no fraction.
func jitter(most time.Duration) int64 { return rand.Int64N(int64(most/time.Second) + 1) }

func itoa(n int64) string { return strconv.FormatInt(min(n, field.MaxInteger), 10) }
