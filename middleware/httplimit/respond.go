package httplimit

import (
	"net/http"
	"slices"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/middleware/internal/field"
	"github.com/headgate-go/headgate/middleware/internal/parts"
)

// Allow decides the parts inside of a handler. Use it where keys or costs come from what
// the handler has read, such as the body of a login. It sets the header fields of the
// decision. It reports whether the request passes, and has answered one that does not:
//
//	if !httplimit.Allow(w, r, nil, attempts.Part(headgate.Key("user", form.Name))) {
//		return
//	}
//
// With Call.Each of a part, one State per policy, the handler gets what remains; see the
// example. The header has the same as text, in RateLimit.
//
// A form without a name gets 400, since headgate.Key of an empty part is empty. The store
// and observers have such a key as text, unlike that of Header, which is a hash.
//
// The options are those of New, of which Skip and those of a settlement do nothing. Cost
// and Settle only determine the unit, as in Options.Units. Options that New refuses are an
// error for OnError. A part with a policy of calls in flight is an error too: reserve it by
// headgate.ReserveAll.
func Allow(w http.ResponseWriter, r *http.Request, opts *Options, list ...headgate.Part) bool {
	if opts == nil {
		opts = &Options{}
	}
	m, err := newMiddleware(opts)
	if err != nil {
		parts.Log(list, err)
		WriteError(w, r, err)
		return false
	}
	m.fields.kept = false
	m.parts = func(_ *http.Request, s *scratch) error {
		s.parts = append(s.parts[:0], list...)
		return nil
	}
	return m.allow(w, r)
}

// allow decides without a reservation.
func (m *middleware) allow(w http.ResponseWriter, r *http.Request) bool {
	s := new(scratch)
	list, err := m.list(r, s)
	if err != nil {
		return m.undecided(w, r, s.parts, err)
	}
	if len(list) == 0 {
		return true
	}
	parts.MarksOf(list[0].Limiter).Meet(r.Context(), list)
	s.room(m.fields, list)
	var d headgate.Decision
	if err := decide(r.Context(), list, nil, &d); err != nil {
		m.failed(w, r, list, err)
		return false
	}
	s.write(m.fields, w.Header(), list, &d)
	if !d.Allowed {
		m.deny(w, r, list, d)
	}
	return d.Allowed
}

// WriteFields sets the header fields of a decision that the caller has made by the
// parts. These are RateLimit, RateLimit-Policy, those of the options, and Retry-After on
// a denial. Each part's Call.Each has the states, one per policy: without them RateLimit
// is absent. It is for frameworks that are not net/http: copy the fields from h. The
// answer to a denial is Denial.Problem.
func WriteFields(h http.Header, opts *Options, d headgate.Decision, list ...headgate.Part) {
	if opts == nil {
		opts = &Options{}
	}
	new(scratch).write(newFields(opts), h, list, &d)
	if !d.Allowed {
		h["Retry-After"] = []string{retryAfter(d, opts.RetryJitter)}
	}
}

// Upstream returns a function for httputil.ReverseProxy.ModifyResponse, which takes the
// rate limit fields of the upstream out of its response: RateLimit, RateLimit-Policy and
// X-RateLimit-*. With a prefix they stay under another name, such as
// "Upstream-RateLimit" for "Upstream-". Without this function a client receives the
// fields of both, and a client that reads X-RateLimit-* gets two values. Retry-After
// stays.
//
// The upstream may send an informational response, as 103, or 100 to an Expect. Then the
// ReverseProxy clears all fields that were set before: the final response has none of the
// middleware's.
func Upstream(prefix string) func(*http.Response) error {
	return func(resp *http.Response) error {
		for _, name := range ownFields {
			lines := slices.Clone(resp.Header[name])
			delete(resp.Header, name)
			if prefix != "" && lines != nil {
				resp.Header[http.CanonicalHeaderKey(prefix+name)] = lines
			}
		}
		return nil
	}
}

// ownFields are the fields that this package writes.
var ownFields = []string{field.Limit, field.Policy, "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}

// retryAfter is never 0, which clients take for "at once".
func retryAfter(d headgate.Decision, most time.Duration) string {
	return itoa(max(1, field.Seconds(d.RetryAfter)+jitter(most)))
}
