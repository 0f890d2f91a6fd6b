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
	"github.com/headgate-go/headgate/middleware/internal/field"
)

// memberSep separates the members of a list field.
const memberSep = ", "

// fields writes the header fields of a decision. What is the same for all
// responses is made once by newFields, so a response allocates only its own
// numbers. fields never changes and is shared by all requests.
type fields struct {
	names   []string // per policy: "name";r= in the limiter's order; "" for a shadow policy, which limits no client
	running []bool   // per policy: of calls in flight, whose window nobody can tell
	policy  []string // the line of RateLimit-Policy; nil where all policies are shadows
	exposed []string // the line of Access-Control-Expose-Headers; nil for none
	x       bool     // X-RateLimit-* too
}

// newFields relies on the names of policies: they have no character that a
// structured field would have to escape.
func newFields(policies []headgate.Policy, opts *Options) *fields {
	f := &fields{x: opts.XRateLimit}
	var line []byte
	f.names, f.running = make([]string, len(policies)), make([]bool, len(policies))
	for i := range policies {
		p := &policies[i]
		if p.Shadow { // mutant: shadow-hidden
			continue
		}
		name := `"` + p.Name + `";` // of letters, digits, _ and -
		f.names[i] = name + field.Available + "="
		f.running[i] = p.Algorithm.Kind().Leased()
		if len(line) > 0 {
			line = append(line, memberSep...)
		}
		line = appendQuota(append(line, name...), &p.Algorithm)
	}
	if len(line) > 0 {
		f.policy = []string{string(line)}
	}
	if opts.ExposeHeaders {
		names := "RateLimit, RateLimit-Policy, Retry-After"
		if opts.XRateLimit {
			names += ", X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"
		}
		f.exposed = []string{names}
	}
	return f
}

// appendQuota appends q and, where it is a second or more, w. Of a TokenBucket
// they are the burst and the time in which it fills. Calls in flight have no window,
// and a unit of their own.
func appendQuota(b []byte, a *algo.Algorithm) []byte {
	limit := a.Limit()
	b = strconv.AppendInt(append(b, "q="...), a.Max(), 10)
	if a.Kind().Leased() {
		return append(b, `;qu="concurrent-requests"`...)
	}
	periods, of := int64(1), int64(1)
	if a.Kind() == algo.KindTokenBucket {
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

// write sets the fields of a decision in h, but for Retry-After. It uses buf
// and returns it, perhaps grown, for the next request. X-RateLimit-* have the
// binding policy's numbers, as they can show one policy only.
func (f *fields) write(h http.Header, buf []byte, each []headgate.State, d *headgate.Decision) []byte {
	f.replace(h, field.Policy, f.policy)
	if f.exposed != nil {
		addOnce(h, "Access-Control-Expose-Headers", f.exposed)
	}
	if buf = f.appendStates(buf, each); len(buf) > 0 {
		f.replace(h, field.Limit, []string{string(buf)})
	} else {
		f.replace(h, field.Limit, nil)
	}
	if f.x && d.Counted && f.policy != nil {
		h["X-Ratelimit-Limit"] = []string{itoa(d.Limit)}
		h["X-Ratelimit-Remaining"] = []string{itoa(d.Remaining)}
		h["X-Ratelimit-Reset"] = []string{itoa(window(&d.State))}
	}
	return buf
}

// replace adds a line to a list field, in place of the members of the same
// policies. Two numbers of one name would contradict each other. Members of
// other middleware stay. The line has capacity 1, so that an append copies it.
func (f *fields) replace(h http.Header, name string, line []string) {
	var kept []string
	for _, l := range h[name] {
		if l = f.others(l); l != "" {
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
func (f *fields) others(line string) string {
	var kept []string
	for _, member := range strings.Split(line, memberSep) {
		if !slices.ContainsFunc(f.names, func(name string) bool {
			return name != "" && strings.HasPrefix(member, name[:strings.IndexByte(name, ';')+1])
		}) {
			kept = append(kept, member)
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

// appendStates appends the line of RateLimit. A policy that nobody counted has
// no member: its zeros would tell a client that nothing is left. Nor has a shadow
// policy: a client that read its numbers would slow down.
func (f *fields) appendStates(b []byte, each []headgate.State) []byte {
	for i := range each {
		s := &each[i]
		if f.names[i] == "" {
			continue
		}
		if !s.Counted { // mutant: uncounted-hidden
			continue
		}
		if len(b) > 0 {
			b = append(b, memberSep...)
		}
		b = strconv.AppendInt(append(b, f.names[i]...), s.Remaining, 10)
		if f.running[i] {
			continue
		}
		b = strconv.AppendInt(append(b, ";"+field.Window+"="...), window(s), 10)
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

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
