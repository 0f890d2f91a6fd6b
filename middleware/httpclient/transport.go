package httpclient

import (
	"cmp"
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-go/headgate"
)

// DefaultMaxWait is how long a Transport makes a request wait where MaxWait is
// not set.
const DefaultMaxWait = time.Minute

// The bounds of what a server can make a client do.
const (
	mostQuotas  = 32               // per scope: what a server may make a client keep
	longestHold = 24 * time.Hour   // a server is asked again after that, whatever it said
	longestPace = time.Second      // between two requests while units are left, and between two probes
	longestBare = 30 * time.Second // after a denial that names no time
	mostScopes  = 10_000
	longestName = 256         // of a scope; a longer one is hashed
	denialHold  = time.Second // at least, so that Retry-After: 0 is no loop
)

// Transport is an http.RoundTripper for clients of servers with rate limits. It
// obeys Retry-After and RateLimit, so that a client slows down before it is
// denied. The zero Transport is ready to use. It is safe for concurrent use; do
// not copy it or change its fields once it is used.
//
// While the RateLimit field shows less than half of a quota, requests are
// spread over its window, with at most a second between two. With no unit left
// they wait for the window's end. Each request is taken to cost one unit. A policy of
// another unit than requests, such as tokens, spreads none. Requests wait only while it has
// no unit left.
// Requests are sent in the order in which they come. Above a cache that stores responses
// without an Age, a stored RateLimit counts as new at each hit: put the Transport below
// the cache.
//
// A denial is a 429, a 503, 529 or another 4xx with Retry-After, or a 403 with nothing
// remaining. After a denial no request is sent before the time that the server
// named. That lasts a day at most. Then one is sent, and the others once that one has
// passed, or after a second. The denied request is sent again if its body can be had
// again (http.Request.GetBody). After a 503 or 529 the request must also be safe to
// repeat. After any other 4xx than 403, 418, 420, 429 and 498 it is not sent again.
//
// The time is that of Retry-After: seconds, a duration or a date, the longest of several.
// One that can't be read, 0 and less are a second. An empty one names no time. All times
// are rounded up to whole seconds: Retry-After-Ms: 2500 is 3 s. Bodies are not read, so a
// RetryInfo of Google's APIs is not obeyed. Without Retry-After the time is that of
// X-RateLimit-Reset and the like (also RateLimit-Reset, X-RateLimit-Reset-After,
// X-RateLimit-Reset-Tokens, Anthropic-RateLimit-Tokens-Reset), the longest of those with
// nothing remaining. A reset is in seconds, ms, µs or ns by its size; one that lies years
// ahead names no time. These fields are read only on a denial: X-RateLimit-Remaining: 0 on a
// 200 holds nothing back. If a denial names no time, no request is sent for 1 s. After each
// further denial of this kind the time doubles, up to 30 s, until a response is no denial.
//
// A wait that would pass the context's deadline, or MaxWait, is not made. Then
// the caller gets the 429 at once. A request that finds the server's denial in
// force is not sent. It gets a response of the same status from the Transport,
// with the rest of the time in Retry-After. Its body is a problem whose detail begins with
// "held back by the client".
//
// If the wait is too long only because RateLimit shows too few units, the server has not
// denied. Then the request is sent, and the server decides. With no unit left, at most one
// request is sent in this way per second. If a unit takes longer than that to come back,
// it is one request per unit.
type Transport struct {
	// Base sends the requests; nil is http.DefaultTransport.
	Base http.RoundTripper
	// MaxWait is how long after RoundTrip was called a request is sent at the latest, for
	// the first time or again. The time that the server takes to answer counts too. 0 is
	// DefaultMaxWait; with a negative value it does not wait. A deadline of its context
	// holds besides. Each redirect that an http.Client follows is a request of its own.
	MaxWait time.Duration
	// Limiter, where it is not nil, lets each request pass before it is sent,
	// by one unit of every policy of the key Key. So it is for requests, not for tokens.
	// A request that is sent again takes another unit. With a store on Redis, processes share what a server grants
	// them. A TokenBucket with a rate a little below the server's and a small burst
	// is best. A burst as large as the server's limit leaves the server no unit. With
	// a Limiter, RateLimit spreads no requests over a window. A response with no unit
	// left holds requests back until its window ends, or until the response to a later
	// request shows units.
	Limiter *headgate.Limiter
	Key     string
	// Scope returns what a server counts the request by: requests of one scope
	// wait for each other. nil is the scheme and the host. A server with limits
	// per account or route needs more.
	Scope func(*http.Request) string
	// MaxScopes is how many scopes are kept at most beside those in use; 0 is 10,000.
	// Beyond it the least restrictive leave first, those whose denial ends soonest.
	MaxScopes int

	mu struct {
		sync.Mutex
		scopes map[string]*scope
		sweep  int // number of scopes at which idle ones are removed
	}
}

// RoundTrip sends a request, perhaps later and more than once.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	s := t.enter(r)
	defer s.leave()
	c := &call{t: t, s: s, last: t.lastStart(r.Context())}
	next := r
	for {
		k, resp, err := c.admit(r)
		if resp != nil || err != nil {
			closeBody(next)
			return resp, err
		}
		resp, err = c.send(k, next)
		if err != nil || resp == nil {
			return resp, err // the base's, as it is
		}
		if next = c.again(r, resp); next == nil {
			return resp, nil
		}
		discard(resp)
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// lastStart returns when a request may be sent at the latest.
func (t *Transport) lastStart(ctx context.Context) time.Time {
	wait := t.MaxWait
	if wait == 0 {
		wait = DefaultMaxWait
	}
	last := time.Now().Add(max(wait, 0))
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(last) {
		return deadline
	}
	return last
}

// enter returns the request's scope and counts the request as its user, under
// the lock of scopes: drop removes no scope that is in use. Each enter is
// followed by one leave.
func (t *Transport) enter(r *http.Request) *scope {
	var name string
	switch {
	case t.Scope != nil:
		name = t.Scope(r)
	case r.URL != nil: // else the base refuses it
		name = r.URL.Scheme + "://" + strings.ToLower(r.URL.Host)
	}
	if len(name) > longestName {
		sum := sha256.Sum256([]byte(name))
		name = string(sum[:])
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.mu.scopes[name]
	if s == nil {
		t.drop()
		s = newScope()
		t.mu.scopes[name] = s
	}
	s.mu.Lock()
	s.mu.users++
	s.mu.Unlock()
	return s
}

// drop removes idle scopes when their number has doubled, so that a client of
// many servers does not keep one for each. Where too many are left, it removes the least
// restrictive ones that are not in use.
func (t *Transport) drop() {
	const least = 64
	if t.mu.scopes == nil {
		t.mu.scopes, t.mu.sweep = make(map[string]*scope), least
	}
	most := cmp.Or(t.MaxScopes, mostScopes)
	if len(t.mu.scopes) < min(t.mu.sweep, most) {
		return
	}
	now := time.Now()
	for name, s := range t.mu.scopes {
		if s.idle(now) {
			delete(t.mu.scopes, name)
		}
	}
	//mutant:scopes-bounded
	if n := len(t.mu.scopes) - most + 1; n > 0 {
		t.evict(n + most/16) // some more, so that the next ones cost no sweep
	}
	t.mu.sweep = max(least, 2*len(t.mu.scopes))
}

// evict removes n scopes that are not in use, those whose denial ends soonest first.
func (t *Transport) evict(n int) {
	type free struct {
		name  string
		until time.Time
	}
	var all []free
	for name, s := range t.mu.scopes {
		if until, ok := s.restricted(); ok {
			all = append(all, free{name, until})
		}
	}
	slices.SortFunc(all, func(a, b free) int { return a.until.Compare(b.until) })
	for _, f := range all[:min(n, len(all))] {
		delete(t.mu.scopes, f.name)
	}
}

// leave ends what enter began. It keeps the scope: drop removes idle ones.
func (s *scope) leave() {
	s.mu.Lock()
	s.mu.users--
	s.mu.Unlock()
}

// idle reports whether nothing is lost with the scope.
func (s *scope) idle(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.mu.quotas {
		if now.Before(q.end) {
			return false
		}
	}
	return s.mu.users == 0 && !now.Before(s.mu.until)
}

// restricted returns until when the scope holds requests back, and whether no request
// uses it. A window with units left holds none back.
func (s *scope) restricted() (until time.Time, free bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until = s.mu.until
	for _, q := range s.mu.quotas {
		if q.left <= 0 && q.end.After(until) {
			until = q.end
		}
	}
	return until, s.mu.users == 0
}
