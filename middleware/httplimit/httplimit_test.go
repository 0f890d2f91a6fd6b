package httplimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/middleware/internal/field"
	"github.com/stretchr/testify/require"
)

// clock is a memory store's clock that a test moves.
type clock struct{ now time.Time }

func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }

func newClock() *clock { return &clock{time.Unix(1_745_000_000, 0)} }

func (c *clock) store() *memory.Store {
	return memory.New(&memory.Options{Now: func() time.Time { return c.now }})
}

func policy(name string, a algo.Algorithm) headgate.Policy {
	return headgate.Policy{Name: name, Algorithm: a, OnFailure: headgate.FailClosed}
}

func limiter(t testing.TB, s backend.Store, policies ...headgate.Policy) *headgate.Limiter {
	t.Helper()
	l, err := headgate.New(s, policies, nil)
	require.NoError(t, err)
	return l
}

// fine is a handler that answers 204.
var fine = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

func wrap(t testing.TB, l *headgate.Limiter, k Key, opts *Options) http.Handler {
	t.Helper()
	limit, err := New(l, k, opts)
	require.NoError(t, err)
	return limit(fine)
}

func send(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func get(h http.Handler) *httptest.ResponseRecorder {
	return send(h, httptest.NewRequest(http.MethodGet, "/", nil))
}

type problem struct {
	Type, Title, Detail string
	Status              int
	Violated            []string `json:"violated-policies"`
}

func readProblem(t *testing.T, w *httptest.ResponseRecorder) (p problem) {
	t.Helper()
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p), w.Body)
	require.Equal(t, w.Code, p.Status)
	return p
}

func TestPassAndDenial(t *testing.T) {
	c := newClock()
	h := wrap(t, limiter(t, c.store(),
		policy("burst", algo.TokenBucket(algo.PerMinute(40), 2)), // one in 1.5 s, full in 3 s
		policy("daily", algo.FixedWindow(algo.PerDay(1000)))), RemoteAddr(), nil)
	w := get(h)
	require.Equal(t, 204, w.Code)
	require.Equal(t, `"burst";q=2;w=3, "daily";q=1000;w=86400`, w.Header().Get("RateLimit-Policy"))
	require.Equal(t, `"burst";r=1;t=2, "daily";r=999;t=20800`, w.Header().Get("RateLimit"), "1.5 s, rounded up")
	require.Empty(t, w.Header().Get("Retry-After"))
	get(h)

	w = get(h)
	require.Equal(t, 429, w.Code)
	require.Equal(t, "2", w.Header().Get("Retry-After"), "1.5 s, rounded up")
	require.Equal(t, `"burst";r=0;t=2, "daily";r=998;t=20800`, w.Header().Get("RateLimit"), "t is until one passes")
	p := readProblem(t, w)
	require.Equal(t, problemTypes+"quota-exceeded", p.Type)
	require.Equal(t, []string{"burst"}, p.Violated)

	c.pass(2 * time.Second)
	require.Equal(t, 204, get(h).Code, "after Retry-After the same request passes")
}

func TestRetryAfterIsNeverZero(t *testing.T) {
	h := wrap(t, limiter(t, newClock().store(), policy("p", algo.FixedWindow(algo.Per(1, time.Millisecond)))), RemoteAddr(), nil)
	get(h)
	w := get(h)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Equal(t, `"p";q=1`, w.Header().Get("RateLimit-Policy"), "no window below a second")
	require.Equal(t, `"p";r=0;t=1`, w.Header().Get("RateLimit"))
}

func TestQuota(t *testing.T) {
	for want, a := range map[string]algo.Algorithm{
		"q=100;w=60":         algo.SlidingWindow(algo.PerMinute(100)),
		"q=100;w=2":          algo.BucketedWindow(algo.Per(100, 1500*time.Millisecond), 3),
		"q=5":                algo.SlidingLog(algo.Per(5, 999*time.Millisecond)),
		"q=10":               algo.TokenBucket(algo.PerSecond(20), 10),
		"q=20;w=1":           algo.TokenBucket(algo.PerSecond(20), 20),
		"q=21;w=2":           algo.TokenBucket(algo.PerSecond(20), 21),
		"q=10;w=4":           algo.TokenBucket(algo.PerSecond(3), 10),
		"q=1000000;w=1":      algo.TokenBucket(algo.PerSecond(1_000_000), 1_000_000),
		"q=1;w=34560000":     algo.TokenBucket(algo.Per(1, algo.MaxPeriod), 1),
		"q=2147483648;w=400": algo.FixedWindow(algo.Per(1<<31, 400*time.Second)),
		// It is full in 2^31 * 400 days, more than an integer of a field can hold.
		"q=2147483648": algo.TokenBucket(algo.Per(1, algo.MaxPeriod), 1<<31),
	} {
		require.Equal(t, want, string(appendQuota(nil, &a)), a.String())
	}
}

// TestSeconds at the border of a second, and to what a Duration can't
// hold.
func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, 1<<63 - 1: 9223372037} {
		require.Equal(t, want, field.Seconds(d))
	}
}

func TestJitterOnlyAdds(t *testing.T) {
	h := wrap(t, limiter(t, newClock().store(), policy("p", algo.FixedWindow(algo.PerMinute(1)))), RemoteAddr(),
		&Options{RetryJitter: 3 * time.Second})
	get(h)
	seen := map[string]bool{}
	for range 200 {
		w := get(h)
		require.Equal(t, `"p";r=0;t=40`, w.Header().Get("RateLimit"), "t is before jitter")
		seen[w.Header().Get("Retry-After")] = true
	}
	require.Equal(t, map[string]bool{"40": true, "41": true, "42": true, "43": true}, seen)
}

func TestXRateLimitAndExpose(t *testing.T) {
	h := wrap(t, limiter(t, newClock().store(), policy("p", algo.FixedWindow(algo.PerMinute(1)))), RemoteAddr(),
		&Options{XRateLimit: true, ExposeHeaders: true})
	for _, remaining := range []string{"0", "0"} {
		hd := get(h).Header()
		require.Equal(t, "1", hd.Get("X-RateLimit-Limit"))
		require.Equal(t, remaining, hd.Get("X-RateLimit-Remaining"))
		require.Equal(t, "40", hd.Get("X-RateLimit-Reset"))
		require.Equal(t, "RateLimit, RateLimit-Policy, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset",
			hd.Get("Access-Control-Expose-Headers"))
	}
}

func TestCosts(t *testing.T) {
	costs := []int64{4, 1}
	h := wrap(t, limiter(t, newClock().store(), policy("units", algo.FixedWindow(algo.PerMinute(10))),
		policy("calls", algo.FixedWindow(algo.PerMinute(10)))), RemoteAddr(),
		&Options{Cost: func(*http.Request) []int64 { return costs }})
	get(h)
	require.Equal(t, `"units";r=2;t=40, "calls";r=8;t=40`, get(h).Header().Get("RateLimit"))
	w := get(h)
	require.Equal(t, 429, w.Code)
	require.Equal(t, `"units";r=2;t=40, "calls";r=8;t=40`, w.Header().Get("RateLimit"), "a denial with units left")
	costs = []int64{11, 1}
	w = get(h)
	require.Equal(t, 403, w.Code, "never admissible: no time to return at")
	require.Equal(t, problem{Type: "https://pkg.go.dev/github.com/headgate-go/headgate#ErrNeverAdmissible", Status: 403,
		Title: "Request costs more than its quota can ever grant", Detail: `cost 11: want 0 to 10 for policy "units"`}, readProblem(t, w))
	require.Empty(t, w.Header().Get("Retry-After"))
	require.Empty(t, w.Header().Get("RateLimit"))
	w = httptest.NewRecorder()
	WriteError(w, requestWith(), fmt.Errorf("%w: %w", headgate.ErrNeverAdmissible, &headgate.InvalidError{What: "secret", Value: 1}))
	require.Equal(t, 403, w.Code)
	require.Empty(t, readProblem(t, w).Detail, "the text of no other error")
	costs = []int64{1}
	require.Equal(t, 500, get(h).Code, "a wrong number of costs is the server's fault")
	costs = nil
	require.Equal(t, `"units";r=1;t=40, "calls";r=7;t=40`, get(h).Header().Get("RateLimit"), "nil is 1 of each")
}

func TestNewRefuses(t *testing.T) {
	l := limiter(t, memory.New(nil), policy("p", algo.FixedWindow(algo.PerMinute(1))))
	bad := []struct {
		l    *headgate.Limiter
		k    Key
		opts *Options
	}{
		{nil, RemoteAddr(), nil}, {&headgate.Limiter{}, RemoteAddr(), nil}, {l, Key{}, nil}, {l, Func(nil), nil},
		{l, Header(""), nil}, {l, Header("Host"), nil}, {l, Header("host"), nil}, {l, Header("a b"), nil},
		{l, Header("x-forwarded-for"), nil}, {l, Header("Forwarded"), nil}, {l, Cookie(""), nil}, {l, Cookie("a b"), nil},
		{l, TrustedProxies(), nil}, {l, Join(), nil}, {l, Join(RemoteAddr(), Key{}), nil}, {l, Join(Header("")), nil},
		{l, First(), nil}, {l, First(Header("")), nil}, {l, First(Key{}, RemoteAddr()), nil},
		{l, RemoteAddr(), &Options{IPv6Prefix: 129}}, {l, RemoteAddr(), &Options{IPv6Prefix: -1}},
		{l, RemoteAddr(), &Options{EmptyKey: 3}}, {l, RemoteAddr(), &Options{RetryJitter: -1}},
		{l, RemoteAddr(), &Options{RetryJitter: time.Hour + 1}},
		{l, Func(func(*http.Request) (headgate.Call, error) { return headgate.Call{}, nil }),
			&Options{Cost: func(*http.Request) []int64 { return nil }}},
	}
	for i, c := range bad {
		limit, err := New(c.l, c.k, c.opts)
		var invalid *headgate.InvalidError
		require.ErrorAs(t, err, &invalid, "case %d", i)
		require.Nil(t, limit)
	}
	spread, err := limiter(t, memory.New(nil), policy("p", algo.FixedWindow(algo.PerMinute(9)))).WithShards(3)
	require.NoError(t, err)
	_, err = New(spread, RemoteAddr(), &Options{Settle: Reported})
	require.ErrorIs(t, err, headgate.ErrUnsupported)
	require.ErrorContains(t, err, "Options.Borrow")
	_, err = New(l, Key{}, nil)
	require.EqualError(t, err, `headgate: key "Key{}": want one made by a function of package httplimit, as RemoteAddr`)
}

// TestClientLeft: neither 429 nor 503, whatever the failure mode.
func TestClientLeft(t *testing.T) {
	h := wrap(t, limiter(t, memory.New(nil), policy("p", algo.FixedWindow(algo.PerMinute(1)))), RemoteAddr(), nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w := send(h, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
	require.Equal(t, statusClientLeft, w.Code)
	require.Empty(t, w.Header())
	require.Equal(t, 204, get(h).Code, "nothing was counted")
}

func TestErrors(t *testing.T) {
	s := memory.New(nil)
	l := limiter(t, s, policy("p", algo.FixedWindow(algo.PerMinute(1))))
	boom := errors.New("secret detail")
	k := Func(func(*http.Request) (headgate.Call, error) { return headgate.Call{}, boom })
	w := get(wrap(t, l, k, nil))
	require.Equal(t, 500, w.Code)
	require.Equal(t, "about:blank", readProblem(t, w).Type)
	require.NotContains(t, w.Body.String(), "secret")
	var got error
	get(wrap(t, l, k, &Options{OnError: func(_ http.ResponseWriter, _ *http.Request, err error) { got = err }}))
	require.Equal(t, boom, got)

	// Of a handler that asks the limiter itself, by a value of the request.
	for _, key := range []string{"", strings.Repeat("k", 5000)} {
		_, err := l.Allow(context.Background(), key)
		rec := httptest.NewRecorder()
		WriteError(rec, nil, err)
		require.Equal(t, 400, rec.Code)
	}
	ctx, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel()
	h := wrap(t, l, RemoteAddr(), nil)
	undecided := []string{"Cache-Control", "Content-Type"}
	w = send(h, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
	require.Equal(t, 503, w.Code)
	require.Equal(t, undecided, slices.Sorted(maps.Keys(w.Header())), "no decision, no fields")
	require.NoError(t, s.Close())
	w = get(h)
	require.Equal(t, 503, w.Code)
	require.Equal(t, undecided, slices.Sorted(maps.Keys(w.Header())))
}

func TestSkipAndOnDenied(t *testing.T) {
	var denied Denial
	h := wrap(t, limiter(t, newClock().store(), policy("a", algo.FixedWindow(algo.PerMinute(1))),
		policy("b", algo.FixedWindow(algo.PerMinute(1)))), RemoteAddr(), &Options{
		Skip: func(r *http.Request) bool { return r.URL.Path == "/health" },
		OnDenied: func(w http.ResponseWriter, _ *http.Request, d Denial) {
			denied = d
			http.Error(w, "slower", d.Status)
		},
	})
	get(h)
	for range 3 {
		w := send(h, httptest.NewRequest(http.MethodGet, "/health", nil))
		require.Equal(t, 204, w.Code)
		require.Empty(t, w.Header(), "not counted, so no numbers")
	}
	w := get(h)
	require.Equal(t, "slower\n", w.Body.String())
	require.Equal(t, "40", w.Header().Get("Retry-After"), "the fields are set")
	require.Equal(t, []string{"a", "b"}, denied.Violated)
	require.Len(t, denied.States, 2)
}

// TestNested: two middlewares on one route, each with its fields; a header map
// that is used again has them once.
func TestNested(t *testing.T) {
	s := newClock().store()
	outer, err := New(limiter(t, s, policy("ip", algo.FixedWindow(algo.PerMinute(10)))), RemoteAddr(), &Options{ExposeHeaders: true})
	require.NoError(t, err)
	inner, err := New(limiter(t, s, policy("user", algo.FixedWindow(algo.PerMinute(5)))), Header("X-User"), &Options{ExposeHeaders: true})
	require.NoError(t, err)
	h := outer(inner(fine))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-User", "ann")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	h.ServeHTTP(w, r)
	require.Equal(t, []string{`"ip";r=8;t=40`, `"user";r=3;t=40`}, w.Header().Values("RateLimit"))
	require.Equal(t, []string{`"ip";q=10;w=60`, `"user";q=5;w=60`}, w.Header().Values("RateLimit-Policy"))
	require.Len(t, w.Header().Values("Access-Control-Expose-Headers"), 1)
	w2 := httptest.NewRecorder()
	outer(fine).ServeHTTP(w2, r)
	require.Equal(t, []string{`"ip";q=10;w=60`}, w2.Header().Values("RateLimit-Policy"), "what is shared stays as it is")
}

// deadStore decides nothing.
type deadStore struct{ backend.Store }

func (deadStore) Do(context.Context, *backend.Request, *backend.Decision) error {
	return headgate.ErrUnavailable
}

// TestNestedNames: of two policies of one name the inner one's numbers stand, and
// no other member is lost.
func TestNestedNames(t *testing.T) {
	s, minute := newClock().store(), func(name string, n int64) headgate.Policy {
		return policy(name, algo.FixedWindow(algo.PerMinute(n)))
	}
	outer, err := New(limiter(t, s, minute("a", 10), minute("b", 20), minute("bb", 30)), RemoteAddr(), nil)
	require.NoError(t, err)
	inner, err := New(limiter(t, s, minute("b", 5), minute("c", 6)), Header("X-User"), nil)
	require.NoError(t, err)
	r := requestWith("X-User", "ann")
	r.RemoteAddr = "192.0.2.1:80"
	foreign := `"b, ";q=9, "x, \"b\";q=1";q=2,"b";q=3, b;q=4`
	w := httptest.NewRecorder()
	w.Header()["Ratelimit-Policy"] = []string{foreign}
	outer(inner(fine)).ServeHTTP(w, r)
	require.Equal(t, []string{`"a";r=9;t=40, "bb";r=29;t=40`, `"b";r=4;t=40, "c";r=5;t=40`}, w.Header()["Ratelimit"])
	require.Equal(t, []string{foreign, `"a";q=10;w=60, "bb";q=30;w=60`, `"b";q=5;w=60, "c";q=6;w=60`},
		w.Header()["Ratelimit-Policy"])

	open := minute("a", 1)
	open.OnFailure = headgate.FailOpen
	closed, err := New(limiter(t, deadStore{s}, open), RemoteAddr(), nil)
	require.NoError(t, err)
	w = httptest.NewRecorder()
	outer(closed(fine)).ServeHTTP(w, r)
	require.Equal(t, []string{`"b";r=18;t=40, "bb";r=28;t=40`}, w.Header()["Ratelimit"], "a is not counted by the inner one")
}

// TestSharedLinesAreCopied: the fields of one response are not those of
// another.
func TestSharedLinesAreCopied(t *testing.T) {
	limit, err := New(limiter(t, newClock().store(), policy("p", algo.FixedWindow(algo.PerMinute(9)))), RemoteAddr(), nil)
	require.NoError(t, err)
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Add("RateLimit-Policy", `"x";q=1`) }))
	for range 3 {
		require.Equal(t, []string{`"p";q=9;w=60`, `"x";q=1`}, get(h).Header().Values("RateLimit-Policy"))
	}
}

// TestLargeBuffersAreNotKept: a header of 64 KiB does not stay in the pool.
func TestLargeBuffersAreNotKept(t *testing.T) {
	s := &scratch{buf: make([]byte, 64<<10)}
	new(middleware).release(s)
	require.Nil(t, s.buf)
}

// TestZeroDecision is a denial, and not one that asks for a request at once.
func TestZeroDecision(t *testing.T) {
	w := httptest.NewRecorder()
	m := &middleware{Options: Options{OnDenied: func(w http.ResponseWriter, _ *http.Request, d Denial) { d.Write(w) }}}
	m.deny(w, nil, nil, headgate.Decision{})
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Empty(t, readProblem(t, w).Violated)
	require.Contains(t, w.Body.String(), `"violated-policies":[]`)
	w = httptest.NewRecorder()
	Denial{}.Write(w)
	require.Equal(t, 429, w.Code)
}

// TestWriterIsHandedOn: a handler keeps Flusher, Hijacker and what else the
// ResponseWriter is.
func TestWriterIsHandedOn(t *testing.T) {
	limit, err := New(limiter(t, memory.New(nil), policy("p", algo.FixedWindow(algo.PerMinute(9)))), RemoteAddr(), nil)
	require.NoError(t, err)
	w := httptest.NewRecorder()
	limit(http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) { require.Same(t, w, got) })).
		ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", strings.NewReader("")))
}
