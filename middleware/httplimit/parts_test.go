package httplimit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

func minute(name string, n int64) headgate.Policy {
	return policy(name, algo.FixedWindow(algo.PerMinute(n)))
}

// all wraps fine by the parts.
func all(t testing.TB, opts *Options, list ...headgate.Part) http.Handler {
	t.Helper()
	limit, err := NewAll(func(*http.Request) ([]headgate.Part, error) { return list, nil }, opts)
	require.NoError(t, err)
	return limit(fine)
}

// logged is a limiter whose lines go to the buffer.
func logged(t testing.TB, c *clock, policies ...headgate.Policy) (*headgate.Limiter, *bytes.Buffer) {
	t.Helper()
	b := new(bytes.Buffer)
	l, err := headgate.New(c.store(), policies, &headgate.Options{Logger: slog.New(slog.NewTextHandler(b, nil))})
	require.NoError(t, err)
	return l, b
}

// TestParts: a request passes if every part allows it, and else is charged to none. Of
// policies of one name the fields show the one with less remaining, and of those that
// deny the one that denies longer.
func TestParts(t *testing.T) {
	s := newClock().store()
	user := limiter(t, s, minute("requests", 5), minute("tokens", 100))
	org := limiter(t, s, minute("requests", 3))
	h := all(t, &Options{XRateLimit: true}, user.Part("ann", 1, 30), org.Part("acme"))
	w := get(h)
	require.Equal(t, 204, w.Code)
	require.Equal(t, `"requests";q=3;w=60, "tokens";q=100;w=60;qu="units"`, w.Header().Get("RateLimit-Policy"))
	require.Equal(t, `"requests";r=2;t=40, "tokens";r=70;t=40`, w.Header().Get("RateLimit"))
	require.Equal(t, "2", w.Header().Get("X-RateLimit-Remaining"))
	get(h)
	get(h)
	w = get(h)
	require.Equal(t, 429, w.Code)
	require.Equal(t, "40", w.Header().Get("Retry-After"))
	require.Equal(t, []string{"tokens", "requests"}, readProblem(t, w).Violated)
	d, err := user.Peek(context.Background(), headgate.Call{Key: "ann"})
	require.NoError(t, err)
	require.EqualValues(t, 2, d.Remaining, "the denied one is charged to none")
}

// TestLegacyUnit: X-RateLimit-* of passed requests count requests, if a policy does, also
// while less is left of another unit. A denial has the numbers of the policy that denies.
func TestLegacyUnit(t *testing.T) {
	s := newClock().store()
	user := limiter(t, s, policy("running", algo.InFlight(1)), minute("requests", 100), minute("tokens", 50))
	org := limiter(t, s, minute("all", 99))
	limit, err := NewAll(func(*http.Request) ([]headgate.Part, error) {
		return []headgate.Part{user.Part("ann", 1, 1, 20), org.Part("acme")}, nil
	}, &Options{XRateLimit: true, Settle: Reported, Units: map[string]string{"tokens": "tokens"}})
	require.NoError(t, err)
	var sent http.Header
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { sent = w.Header().Clone() }))
	for left := range 2 {
		w := get(h)
		for _, fields := range []http.Header{sent, w.Header()} { // before the settlement, and after it
			require.Equal(t, "99", fields.Get("X-RateLimit-Limit"))
			require.Equal(t, fmt.Sprint(98-left), fields.Get("X-RateLimit-Remaining"))
		}
	}
	w := get(h)
	require.Equal(t, 429, w.Code)
	require.Equal(t, "50", w.Header().Get("X-RateLimit-Limit"))
	require.Equal(t, "10", w.Header().Get("X-RateLimit-Remaining"))
	require.Equal(t, w.Header().Get("Retry-After"), w.Header().Get("X-RateLimit-Reset"))
	tokens := limiter(t, s, minute("input", 9), minute("output", 8))
	w = get(all(t, &Options{XRateLimit: true, Units: map[string]string{"input": "tokens", "output": "tokens"}}, tokens.Part("k")))
	require.Equal(t, "8", w.Header().Get("X-RateLimit-Limit"), "none counts requests")
}

// TestLongerDenialIsShown: the organisation denies for longer than the user.
func TestLongerDenialIsShown(t *testing.T) {
	s := newClock().store()
	user := limiter(t, s, policy("requests", algo.FixedWindow(algo.PerMinute(1))))
	org := limiter(t, s, policy("requests", algo.FixedWindow(algo.PerHour(1))))
	for _, list := range [][]headgate.Part{{user.Part("a"), org.Part("b")}, {org.Part("b"), user.Part("a")}} {
		h := all(t, nil, list...)
		get(h)
		w := get(h)
		require.Equal(t, 429, w.Code)
		require.Equal(t, `"requests";q=1;w=3600`, w.Header().Get("RateLimit-Policy"))
		require.Equal(t, `"requests";r=0;t=`+w.Header().Get("Retry-After"), w.Header().Get("RateLimit"))
		require.Equal(t, []string{"requests"}, readProblem(t, w).Violated)
	}
}

// TestNoParts is no limit; a nil limiter is an error, and so is an error.
func TestNoParts(t *testing.T) {
	w := get(all(t, nil))
	require.Equal(t, 204, w.Code)
	require.Empty(t, w.Header())
	require.Equal(t, 500, get(all(t, nil, headgate.Part{Call: headgate.Call{Key: "k"}})).Code)
	for err, want := range map[error]int{headgate.ErrBlocked: 403, errors.New("boom"): 500, context.DeadlineExceeded: 503} {
		limit, newErr := NewAll(func(*http.Request) ([]headgate.Part, error) { return nil, err }, nil)
		require.NoError(t, newErr)
		w := get(limit(fine))
		require.Equal(t, want, w.Code)
		require.Equal(t, want == 403, strings.HasSuffix(readProblem(t, w).Type, "headgate#ErrBlocked"), "not that of a cost")
		require.Empty(t, w.Header().Get("Retry-After"))
	}
	for _, opts := range []*Options{nil, {Cost: func(*http.Request) []int64 { return nil }}, {Units: map[string]string{"p": "a b"}}} {
		f := func(*http.Request) ([]headgate.Part, error) { return nil, nil }
		if opts == nil {
			f = nil
		}
		_, err := NewAll(f, opts)
		require.ErrorAs(t, err, new(*headgate.InvalidError))
	}
}

// TestEmptyParts: the choice is for each part.
func TestEmptyParts(t *testing.T) {
	l := limiter(t, newClock().store(), minute("p", 10))
	for choice, want := range map[EmptyKey]int{EmptyRefused: 400, EmptyShared: 204, EmptyPasses: 204} {
		w := get(all(t, &Options{EmptyKey: choice}, l.Part("k"), l.Part("")))
		require.Equal(t, want, w.Code, choice)
		require.Equal(t, choice != EmptyRefused, w.Header().Get("RateLimit") != "", choice)
	}
}

// TestEmptyPartOfAKey: users that lack a part of a key are refused with 400, and do not
// share a count.
func TestEmptyPartOfAKey(t *testing.T) {
	l := limiter(t, newClock().store(), minute("p", 10))
	tenant := func(r *http.Request) string { return headgate.Key("tenant", r.Header.Get("Tenant"), r.RemoteAddr) }
	allow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if Allow(w, r, nil, l.Part(tenant(r))) {
			fine(w, r)
		}
	})
	parts, err := NewAll(func(r *http.Request) ([]headgate.Part, error) { return []headgate.Part{l.Part(tenant(r))}, nil }, nil)
	require.NoError(t, err)
	for name, h := range map[string]http.Handler{
		"Join": wrap(t, l, Join(Header("Tenant"), RemoteAddr()), nil), "NewAll": parts(fine), "Allow": allow,
		"Func": wrap(t, l, Func(func(r *http.Request) (headgate.Call, error) { return headgate.Call{Key: tenant(r)}, nil }), nil),
	} {
		w := send(h, requestWith("Tenant", ""))
		require.Equal(t, 400, w.Code, name)
		require.Contains(t, readProblem(t, w).Detail, "lacks what its rate limit is counted by", name)
		require.Equal(t, 204, send(h, requestWith("Tenant", "acme")).Code, name)
	}
}

// TestValuesOfARequest: whatever a request determines is never a 500.
func TestValuesOfARequest(t *testing.T) {
	l, lines := logged(t, newClock(), minute("units", 10), minute("calls", 10))
	for name, c := range map[string]struct {
		key   string
		costs []int64
		want  int
	}{
		"free": {"k", []int64{0, 0}, 204}, "free in part": {"k", []int64{0, 1}, 204},
		"negative": {"k", []int64{-1, 1}, 400}, "negative and free": {"k", []int64{0, -1}, 400},
		"2^62": {"k", []int64{1 << 62, 1}, 403}, "least": {"k", []int64{-1 << 63, 1}, 400},
		"longest key": {strings.Repeat("x", 4096), nil, 204}, "key too long": {strings.Repeat("x", 4097), nil, 400},
		"no key": {"", nil, 400}, "odd bytes": {"\x00\xff{}\r\n", nil, 204},
	} {
		call := headgate.Call{Key: c.key, Costs: c.costs}
		k := Func(func(*http.Request) (headgate.Call, error) { return call, nil })
		w := get(wrap(t, l, k, nil))
		require.Equal(t, c.want, w.Code, name)
		if name == "free" {
			require.Empty(t, w.Header(), "nothing was decided")
		}
		require.Equal(t, c.want, get(all(t, nil, headgate.Part{Limiter: l, Call: call})).Code, name)
		rec := httptest.NewRecorder()
		Allow(rec, httptest.NewRequest(http.MethodGet, "/", nil), nil, headgate.Part{Limiter: l, Call: call})
		require.Equal(t, c.want == 204, rec.Code == 200, name)
		var got error
		get(wrap(t, l, k, &Options{OnError: func(_ http.ResponseWriter, _ *http.Request, err error) { got = err }}))
		require.Equal(t, c.want == 400, errors.As(got, new(*RequestError)), name)
	}
	require.Equal(t, 1, strings.Count(lines.String(), "\n"), "at most one line per second: %s", lines)
}

// TestLineOfARequest: the line of a request that can't be counted names the value and the path.
func TestLineOfARequest(t *testing.T) {
	l, lines := logged(t, newClock(), minute("units", 10))
	k := Func(func(*http.Request) (headgate.Call, error) { return headgate.Call{Key: "k", Costs: []int64{-1}}, nil })
	get(wrap(t, l, k, nil))
	require.Contains(t, lines.String(), "cost is -1")
	require.Contains(t, lines.String(), " path=/")
}

// TestErrorsOfKeys: an error of the key's function, which is a 500, has a line. A request
// without a key, a blocked one, a closed store and a client that left have none.
func TestErrorsOfKeys(t *testing.T) {
	_, wrong := TrustedProxies("10.0.0.0/33").Of(requestWith())
	ctx, leave := context.WithCancel(t.Context())
	leave()
	left := requestWith().WithContext(ctx)
	for _, c := range []struct {
		err   error
		r     *http.Request
		lines int
	}{
		{wrong, requestWith(), 1}, {errors.New("boom"), requestWith(), 1}, {&RequestError{}, requestWith(), 1}, {ctx.Err(), left, 0},
		{errNoKey, requestWith(), 0}, {headgate.ErrBlocked, requestWith(), 0}, {headgate.ErrClosed, requestWith(), 0},
	} {
		l, lines := logged(t, newClock(), minute("p", 1))
		one := wrap(t, l, Func(func(*http.Request) (headgate.Call, error) { return headgate.Call{}, c.err }), nil)
		for range 3 {
			send(one, c.r)
		}
		require.Equal(t, c.lines, strings.Count(lines.String(), "\n"), "%v: %s", c.err, lines)
		require.Equal(t, c.lines, strings.Count(lines.String(), "error="), lines)
		l, lines = logged(t, newClock(), minute("p", 1))
		limit, err := NewAll(func(*http.Request) ([]headgate.Part, error) { return []headgate.Part{l.Part("")}, c.err }, nil)
		require.NoError(t, err)
		send(limit(fine), c.r)
		require.Equal(t, c.lines, strings.Count(lines.String(), "\n"), "parts, %v: %s", c.err, lines)
	}
}

// TestEveryKind of key: empty, too long, of odd bytes.
func TestEveryKind(t *testing.T) {
	l := limiter(t, memory.New(nil), minute("p", 1000))
	long, odd := strings.Repeat("x", 1<<16), "\x00\xff\"{}|:"
	for name, k := range map[string]Key{
		"RemoteAddr": RemoteAddr(), "TrustedProxies": TrustedProxies("192.0.2.1"), "TrustedForwarders": TrustedForwarders("192.0.2.1"),
		"TrustedAddress": TrustedAddress("X-Real-IP", "192.0.2.1"), "Header": Header("X-Key"), "Cookie": Cookie("X-Key"),
		"Authorization": Authorization(), "Pattern": Pattern(http.NewServeMux()), "inner Pattern": Pattern(nil),
		"Join": Join(RemoteAddr(), Header("X-Key")), "First": First(Header("X-Key"), Cookie("X-Key")),
	} {
		h := wrap(t, l, k, nil)
		for _, value := range []string{"", long, odd, "a, b", "Bearer " + long} {
			for _, header := range []string{"X-Key", "Authorization", "X-Forwarded-For", "Forwarded", "X-Real-IP", "Cookie"} {
				r := requestWith(header, value)
				if header == "Cookie" {
					r = requestWith(header, "X-Key="+value)
				}
				require.Contains(t, []int{204, 400}, send(h, r).Code, "%s %s %.9q", name, header, value)
			}
		}
		r := requestWith()
		r.RemoteAddr = odd
		require.Contains(t, []int{204, 400}, send(h, r).Code, name)
		r.Pattern = long
		require.Contains(t, []int{204, 400}, send(h, r).Code, name)
	}
}

// TestTwoMiddlewares of one count are reported once, with the policy's name. Other names
// and other keys are no fault.
func TestTwoMiddlewares(t *testing.T) {
	l, lines := logged(t, newClock(), minute("api", 6))
	other, err := l.With(minute("login", 6))
	require.NoError(t, err)
	wraps := func(l *headgate.Limiter, k Key) func(http.Handler) http.Handler {
		limit, err := New(l, k, nil)
		require.NoError(t, err)
		return limit
	}
	twice := wraps(l, RemoteAddr())(wraps(other, RemoteAddr())(wraps(l, Header("X-Key"))(fine)))
	for range 3 {
		require.Equal(t, 204, send(twice, requestWith("X-Key", "k")).Code)
	}
	require.Empty(t, lines.String())
	twice = wraps(l, RemoteAddr())(wraps(other, Header("X-Key"))(wraps(l, RemoteAddr())(fine)))
	passed := 0
	for range 6 {
		if send(twice, requestWith("X-Key", "k")).Code == 204 {
			passed++
		}
	}
	require.Equal(t, 1, passed, "3 were counted before, and each counts twice")
	require.Equal(t, 1, strings.Count(lines.String(), "\n"), lines)
	require.Contains(t, lines.String(), "policy=api")
	h := wraps(l, RemoteAddr())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Allow(w, r, nil, l.Part("ip:192.0.2.9"))
	}))
	for range 3 {
		r := requestWith()
		r.RemoteAddr = "192.0.2.9:80"
		send(h, r)
	}
	require.Equal(t, 2, strings.Count(lines.String(), "\n"), "a call inside of a handler too: %s", lines)
}

// TestMarks: the first 100 requests of a handler carry a mark, and one in 1,000 after.
func TestMarks(t *testing.T) {
	l, marked := limiter(t, memory.New(nil), minute("p", 1<<30)), 0
	limit, err := New(l, RemoteAddr(), nil)
	require.NoError(t, err)
	var sent *http.Request
	h := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r != sent {
			marked++
		}
	}))
	for range 10_000 {
		sent = requestWith()
		h.ServeHTTP(httptest.NewRecorder(), sent)
	}
	require.Equal(t, 110, marked)
}

// TestAllow: a limit inside of a handler, by the payload, with all fields.
func TestAllow(t *testing.T) {
	l := limiter(t, newClock().store(), minute("attempts", 1))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if Allow(w, r, &Options{XRateLimit: true}, l.Part(headgate.Key("user", r.FormValue("name")))) {
			w.WriteHeader(http.StatusNoContent)
		}
	})
	for i, want := range []int{204, 429} {
		w := send(h, httptest.NewRequest(http.MethodGet, "/?name=ann", nil))
		require.Equal(t, want, w.Code, i)
		require.Equal(t, `"attempts";r=0;t=40`, w.Header().Get("RateLimit"))
		require.Equal(t, `"attempts";q=1;w=60`, w.Header().Get("RateLimit-Policy"))
		require.Equal(t, "1", w.Header().Get("X-RateLimit-Limit"))
		require.Equal(t, i == 1, w.Header().Get("Retry-After") == "40")
	}
	require.Equal(t, 204, send(h, httptest.NewRequest(http.MethodGet, "/?name=bob", nil)).Code)
	w := httptest.NewRecorder()
	part := l.Part("own")
	part.Call.Each = make([]headgate.State, 1)
	for i, allowed := range []bool{true, false} {
		require.Equal(t, allowed, Allow(httptest.NewRecorder(), requestWith(), nil, part))
		require.EqualValues(t, 1, part.Call.Each[0].Used, "the caller has the states")
		require.Equal(t, i == 1, part.Call.Each[0].RetryAfter > 0)
	}
	require.True(t, Allow(w, requestWith(), nil))
	require.False(t, Allow(w, requestWith(), &Options{EmptyKey: 9}, l.Part("k")))
}

// TestWriteFields: the fields and the denial of a decision that the caller has made.
func TestWriteFields(t *testing.T) {
	l := limiter(t, newClock().store(), minute("p", 1))
	part := l.Part("k")
	part.Call.Each = make([]headgate.State, 1)
	for _, allowed := range []bool{true, false} {
		d, err := headgate.All(context.Background(), part)
		require.NoError(t, err)
		require.Equal(t, allowed, d.Allowed)
		h := http.Header{}
		WriteFields(h, &Options{Units: map[string]string{"p": "pages"}}, d, part)
		require.Equal(t, `"p";q=1;w=60;qu="pages"`, h.Get("RateLimit-Policy"))
		require.Equal(t, `"p";r=0;t=40`, h.Get("RateLimit"))
		require.Equal(t, !allowed, h.Get("Retry-After") == "40")
		if !allowed {
			status, body := NewDenial(d, part).Problem()
			require.Equal(t, 429, status)
			require.Contains(t, string(body), `"violated-policies":["p"]`)
		}
	}
}

// TestCappedNumbers: an integer of a structured field has 15 digits.
func TestCappedNumbers(t *testing.T) {
	l := limiter(t, memory.New(nil), minute("p", 1))
	part := l.Part("k")
	part.Call.Each = []headgate.State{{Policy: "p", Known: backend.Exact, Remaining: 1 << 60, Limit: 1 << 60, ResetAfter: time.Second}}
	h := http.Header{}
	WriteFields(h, &Options{XRateLimit: true}, headgate.Decision{Allowed: true, State: part.Call.Each[0]}, part)
	require.Equal(t, `"p";r=999999999999999;t=1`, h.Get("RateLimit"))
	require.Equal(t, "999999999999999", h.Get("X-RateLimit-Remaining"))
}

// TestOwnAnswersAreNotCached, and leave a wrapper that compresses free to do so.
func TestOwnAnswersAreNotCached(t *testing.T) {
	l := limiter(t, newClock().store(), minute("p", 1))
	closed, err := headgate.New(deadStore{memory.New(nil)}, []headgate.Policy{minute("p", 1)}, nil)
	require.NoError(t, err)
	costly := &Options{Cost: func(*http.Request) []int64 { return []int64{2} }}
	fails := Func(func(*http.Request) (headgate.Call, error) { return headgate.Call{}, errors.New("boom") })
	get(wrap(t, l, RemoteAddr(), nil))
	for status, h := range map[int]http.Handler{
		429: wrap(t, l, RemoteAddr(), nil), 503: wrap(t, closed, RemoteAddr(), nil), 400: wrap(t, l, Header("X-Key"), nil),
		403: wrap(t, l, RemoteAddr(), costly), 500: wrap(t, l, fails, nil),
	} {
		w := httptest.NewRecorder()
		for name, value := range map[string]string{"Cache-Control": "public, immutable", "ETag": `"x"`, "Last-Modified": "Tue, 24 Nov 2026 12:01:00 GMT",
			"Content-Encoding": "gzip", "Content-Length": "7"} {
			w.Header().Set(name, value)
		}
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, status, w.Code)
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"), status)
		for _, name := range []string{"ETag", "Last-Modified", "Content-Length"} {
			require.Empty(t, w.Header().Get(name), "%d %s", status, name)
		}
		require.Equal(t, "gzip", w.Header().Get("Content-Encoding"), "an outer handler compresses")
	}
}

// TestShutdown: a client that is there when the server's own context ends gets 503.
func TestShutdown(t *testing.T) {
	base, end := context.WithCancel(context.Background())
	l := limiter(t, memory.New(nil), minute("p", 1))
	limited := wrap(t, l, RemoteAddr(), nil)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		end()
		<-r.Context().Done()
		limited.ServeHTTP(w, r)
	}))
	server.Config.BaseContext = func(net.Listener) context.Context { return base }
	server.Start()
	defer server.Close()
	resp, err := http.Get(server.URL)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 503, resp.StatusCode)
}
