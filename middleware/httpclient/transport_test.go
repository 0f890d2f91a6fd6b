//go:build go1.25

package httpclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// wire is a RoundTripper that calls a handler, after half of the round-trip
// time and before the other half.
type wire struct {
	h   http.Handler
	rtt time.Duration
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(w.rtt / 2)
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	served := httptest.NewRequest(r.Method, r.URL.String(), bytes.NewReader(body)).WithContext(r.Context())
	served.Header = r.Header.Clone()
	rec := httptest.NewRecorder()
	w.h.ServeHTTP(rec, served)
	time.Sleep(w.rtt / 2)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return rec.Result(), nil
}

// answers is a handler that gives one answer after the other, the last again
// and again, and counts the requests.
type answers struct {
	list []answer
	n    atomic.Int64
	mu   sync.Mutex
	body []string
}

type answer struct {
	status int
	header http.Header
}

func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := int(a.n.Add(1))
	got, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	a.body = append(a.body, string(got))
	a.mu.Unlock()
	next := a.list[min(n, len(a.list))-1]
	for name, values := range next.header {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	w.WriteHeader(next.status)
}

func refusal(status int, retryAfter string) answer {
	return answer{status, http.Header{"Retry-After": {retryAfter}}}
}

var ok = answer{status: http.StatusOK}

func do(t *testing.T, tr *Transport, r *http.Request) *http.Response {
	t.Helper()
	resp, err := tr.RoundTrip(r)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp
}

func newRequest(t testing.TB, ctx context.Context, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://server.test/", strings.NewReader(body))
	require.NoError(t, err)
	return r
}

func getRequest(t testing.TB) *http.Request {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://server.test/", nil)
	require.NoError(t, err)
	return r
}

// TestObeysRetryAfter in each of its forms.
func TestObeysRetryAfter(t *testing.T) {
	for _, c := range []struct {
		first answer
		want  time.Duration
	}{
		{refusal(429, "7"), 7 * time.Second},
		{refusal(503, "7"), 7 * time.Second},
		{refusal(429, "0"), time.Second},
		{refusal(429, "Sat, 01 Jan 2000 00:00:20 GMT"), 20 * time.Second}, // the bubble's clock starts at midnight
		{answer{429, http.Header{"Retry-After": {"Sat, 01 Jan 2000 01:00:09 GMT"}, "Date": {"Sat, 01 Jan 2000 01:00:00 GMT"}}}, 9 * time.Second},
		{answer{429, http.Header{"Retry-After": {"5"}, "Ratelimit": {`"p";r=0;t=50`}}}, 50 * time.Second}, // then no unit is left before 50 s
		{answer{429, http.Header{"Ratelimit": {`"p";r=0;t=4`}}}, 4 * time.Second},
		{answer{429, http.Header{"Ratelimit": {`"p";a=0;w=4, "q";a=5;w=9`}}}, 4 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &answers{list: []answer{c.first, ok}}
			tr, begin := &Transport{Base: &wire{a, 0}}, time.Now()
			require.Equal(t, 200, do(t, tr, getRequest(t)).StatusCode)
			require.Equal(t, c.want, time.Since(begin), "%v", c.first)
			require.EqualValues(t, 2, a.n.Load())
		})
	}
}

// TestReturnsTheDenial where the wait is too long, and what is no denial.
func TestReturnsTheDenial(t *testing.T) {
	for name, first := range map[string]answer{
		"beyond MaxWait": refusal(429, "61"), "year 9999": refusal(429, "Fri, 31 Dec 9999 23:59:59 GMT"),
		"huge":               refusal(429, "99999999999999999999"),
		"503 without a time": {status: 503}, "other status": refusal(500, "1"),
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &answers{list: []answer{first, ok}}
			tr, begin := &Transport{Base: &wire{a, 0}}, time.Now()
			require.Equal(t, first.status, do(t, tr, getRequest(t)).StatusCode, name)
			require.Zero(t, time.Since(begin), name)
			require.EqualValues(t, 1, a.n.Load(), name)
		})
	}
}

// TestDeadline: the 429 comes at once, also to a request that finds it in force.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{list: []answer{refusal(429, "30"), ok}}
		tr, begin := &Transport{Base: &wire{a, 0}}, time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.Equal(t, "30", do(t, tr, getRequest(t).WithContext(ctx)).Header.Get("Retry-After"))
		time.Sleep(5500 * time.Millisecond)
		resp := do(t, tr, getRequest(t).WithContext(ctx))
		require.Equal(t, 429, resp.StatusCode)
		require.Equal(t, "25", resp.Header.Get("Retry-After"), "24.5 s are left")
		require.EqualValues(t, 1, a.n.Load(), "not sent")
		require.Equal(t, 5500*time.Millisecond, time.Since(begin), "at once")

		require.Equal(t, 200, do(t, tr, getRequest(t)).StatusCode, "one with time waits")
		require.Equal(t, 30*time.Second, time.Since(begin))
	})
}

func TestYear9999IsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{list: []answer{refusal(429, "Fri, 31 Dec 9999 23:59:59 GMT"), ok}}
		tr := &Transport{Base: &wire{a, 0}}
		do(t, tr, getRequest(t))
		time.Sleep(longestHold - 2*time.Minute)
		require.Equal(t, 429, do(t, tr, getRequest(t)).StatusCode)
		require.EqualValues(t, 1, a.n.Load())
		time.Sleep(2 * time.Minute)
		require.Equal(t, 200, do(t, tr, getRequest(t)).StatusCode)
	})
}

// closing counts how often a body is closed.
type closing struct {
	io.Reader
	n atomic.Int64
}

func (c *closing) Close() error { c.n.Add(1); return nil }

func TestBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{list: []answer{refusal(429, "1"), refusal(429, "1"), ok}}
		tr := &Transport{Base: &wire{a, 0}}
		r := newRequest(t, context.Background(), "the body")
		body := r.Body
		require.Equal(t, 200, do(t, tr, r).StatusCode)
		require.Equal(t, []string{"the body", "the body", "the body"}, a.body)
		require.True(t, body == r.Body, "a RoundTripper must not change the request")
	})
	synctest.Test(t, func(t *testing.T) {
		a := &answers{list: []answer{refusal(429, "1"), ok}}
		tr := &Transport{Base: &wire{a, 0}}
		once := newRequest(t, context.Background(), "")
		stream := &closing{Reader: strings.NewReader("once")}
		once.Body, once.GetBody = stream, nil
		require.Equal(t, 429, do(t, tr, once).StatusCode, "a stream can't be sent again")
		require.EqualValues(t, 1, stream.n.Load())

		tr.MaxWait = -1
		held := newRequest(t, context.Background(), "")
		unread := &closing{Reader: strings.NewReader("x")}
		held.Body, held.GetBody = unread, nil
		require.Equal(t, 429, do(t, tr, held).StatusCode)
		require.EqualValues(t, 1, unread.n.Load(), "closed though not sent")
		require.Equal(t, []string{"once"}, a.body)
	})
	synctest.Test(t, func(t *testing.T) {
		a := &answers{list: []answer{refusal(429, "1"), ok}}
		r := newRequest(t, context.Background(), "x")
		r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
		require.Equal(t, 429, do(t, &Transport{Base: &wire{a, 0}}, r).StatusCode)
	})
}

// TestOnlyRepeatable: a 503 may have been carried out, a 429 was not.
func TestOnlyRepeatable(t *testing.T) {
	for want, edit := range map[int]func(*http.Request){
		503: func(*http.Request) {},
		200: func(r *http.Request) { r.Header.Set("Idempotency-Key", "1") },
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &answers{list: []answer{refusal(503, "1"), ok}}
			r := newRequest(t, context.Background(), "x")
			edit(r)
			require.Equal(t, want, do(t, &Transport{Base: &wire{a, 0}}, r).StatusCode)
		})
	}
}

// TestContextEndsTheWait, and closes the body.
func TestContextEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{list: []answer{refusal(429, "30"), ok}}
		tr := &Transport{Base: &wire{a, 0}}
		ctx, cancel := context.WithCancel(context.Background())
		go func() { time.Sleep(time.Second); cancel() }()
		_, err := tr.RoundTrip(newRequest(t, ctx, "x"))
		require.ErrorIs(t, err, context.Canceled)
		require.EqualValues(t, 1, a.n.Load())
		time.Sleep(29 * time.Second)
		require.Equal(t, 200, do(t, tr, getRequest(t)).StatusCode, "the turn was given back")
	})
}

// TestOneProbe: after a denial one request is sent, and the others when it has
// passed.
func TestOneProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{list: []answer{refusal(429, "5"), refusal(429, "5"), ok}}
		tr, begin := &Transport{Base: &wire{a, 100 * time.Millisecond}}, time.Now()
		do429 := func() { do(t, tr, getRequest(t)) }
		do429wait := sync.WaitGroup{}
		do429wait.Go(do429)
		time.Sleep(time.Second)
		for range 50 {
			do429wait.Go(do429)
		}
		time.Sleep(4500 * time.Millisecond)
		require.EqualValues(t, 2, a.n.Load(), "one probe")
		do429wait.Wait()
		require.EqualValues(t, 1+1+51, a.n.Load())
		require.Less(t, time.Since(begin), 11*time.Second)
	})
}

// load sends requests at a rate for a time, each in a goroutine, and cancels
// those that wait then.
func load(t *testing.T, tr http.RoundTripper, perSecond int, length time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range perSecond * int(length/time.Second) {
		time.Sleep(time.Second / time.Duration(perSecond))
		all.Go(func() {
			if resp, err := tr.RoundTrip(getRequest(t).WithContext(ctx)); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	cancel()
	all.Wait()
}

// counted counts what the server answers.
type counted struct {
	http.Handler
	begin         time.Time
	passed, after atomic.Int64 // after: denied later than a second after the begin
}

func (c *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := httptest.NewRecorder()
	c.Handler.ServeHTTP(rec, r)
	switch {
	case rec.Code != http.StatusTooManyRequests:
		c.passed.Add(1)
	case time.Since(c.begin) > time.Second:
		c.after.Add(1)
	}
	for name, values := range rec.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(rec.Code)
}

// TestTwiceTheLimit: a client that wants twice what the server grants meets no
// 429 after the first second, and gets most of what is granted.
func TestTwiceTheLimit(t *testing.T) {
	redistest.Plain(t)
	length := redistest.Steps(15, 30) // seconds
	for name, c := range map[string]struct {
		a     algo.Algorithm
		least float64 // of what the limit grants in the long run
	}{
		"TokenBucket":    {algo.TokenBucket(algo.PerSecond(100), 100), 0.9},
		"small bucket":   {algo.TokenBucket(algo.PerSecond(100), 200), 0.9},
		"FixedWindow":    {algo.FixedWindow(algo.PerSecond(100)), 0.4},
		"SlidingWindow":  {algo.SlidingWindow(algo.PerSecond(100)), 0.3},
		"BucketedWindow": {algo.BucketedWindow(algo.PerSecond(100), 10), 0.35},
		"SlidingLog":     {algo.SlidingLog(algo.PerSecond(100)), 0.35},
		"ten seconds":    {algo.FixedWindow(algo.Per(1000, 10*time.Second)), 0.5},
	} {
		for _, rtt := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				s := memory.New(&memory.Options{Now: time.Now})
				server := &counted{Handler: served(t, limiter(t, s, policy("p", c.a))), begin: time.Now()}
				load(t, &Transport{Base: &wire{server, rtt}}, 200, time.Duration(length)*time.Second)
				granted := float64(server.passed.Load()) / float64(100*length)
				t.Logf("%s, %v: %.2f of the limit, %d times 429 after the first second", name, rtt, granted, server.after.Load())
				require.Zero(t, server.after.Load(), "%s, %v", name, rtt)
				require.Greater(t, granted, c.least, "%s, %v", name, rtt)
			})
		}
	}
}

// TestBelowTheLimit: a client within the limit is not held back, also where the
// server is slow.
func TestBelowTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(&memory.Options{Now: time.Now})
		h := served(t, limiter(t, s, policy("p", algo.TokenBucket(algo.PerSecond(100), 100))))
		begin := time.Now()
		server := &counted{Handler: h, begin: begin}
		load(t, &Transport{Base: &wire{server, 2 * time.Second}}, 20, 20*time.Second)
		require.GreaterOrEqual(t, server.passed.Load(), int64(20*19), "all but those of the last second")
	})
}

// TestSharedLimiter: Transports of one key together keep to its limit.
func TestSharedLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(&memory.Options{Now: time.Now})
		server := &counted{Handler: served(t, limiter(t, s, policy("server", algo.TokenBucket(algo.PerSecond(100), 100)))), begin: time.Now()}
		shared := limiter(t, s, policy("fleet", algo.TokenBucket(algo.PerSecond(95), 95)))
		var all sync.WaitGroup
		for range 8 {
			tr := &Transport{Base: &wire{server, 10 * time.Millisecond}, Limiter: shared, Key: "server.test"}
			all.Go(func() { load(t, tr, 25, 30*time.Second) })
		}
		all.Wait()
		t.Logf("%d passed", server.passed.Load())
		require.Zero(t, server.after.Load())
		require.Greater(t, server.passed.Load(), int64(0.9*95*30))
	})
}

// TestSharedLimiterAndDenial: a denial that comes while requests are queued is their
// answer. They neither take a unit of the shared limiter nor wait for one.
func TestSharedLimiterAndDenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, memory.New(&memory.Options{Now: time.Now}), policy("fleet", algo.TokenBucket(algo.Per(1, 10*time.Second), 1)))
		a := &answers{list: []answer{refusal(429, "3600")}}
		tr, begin := &Transport{Base: &wire{a, 2 * time.Second}, Limiter: l, Key: "k"}, time.Now()
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				require.Equal(t, 429, do(t, tr, getRequest(t)).StatusCode)
				require.LessOrEqual(t, time.Since(begin), 10*time.Second, "one wait for a unit")
			})
		}
		all.Wait()
		require.EqualValues(t, 1, a.n.Load())
	})
}

// TestUnitsOfRequestsNotSent: requests queued behind a spent window, whose next response
// is a denial, take no units. Only the first of them may have taken one.
func TestUnitsOfRequestsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, memory.New(&memory.Options{Now: time.Now}), policy("fleet", algo.FixedWindow(algo.PerDay(1000))))
		a := &answers{list: []answer{{200, http.Header{"Ratelimit": {`"p";r=0;t=20`}}}, refusal(429, "3600")}}
		tr := &Transport{Base: &wire{a, 2 * time.Second}, Limiter: l, Key: "k"}
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				time.Sleep(time.Duration(min(i, 2)) * 1250 * time.Millisecond)
				do(t, tr, getRequest(t))
			})
		}
		all.Wait()
		d, err := l.Peek(t.Context(), headgate.Call{Key: "k", Costs: []int64{0}})
		require.NoError(t, err)
		require.LessOrEqual(t, d.Used, a.n.Load()+1)
	})
}

// TestUnitsBeforeASpentWindow: a request that can wait neither for the window's end nor
// for its turn to be sent all the same takes no unit. One that has no time while a probe
// is under way takes none either, and may come back soon.
func TestUnitsBeforeASpentWindow(t *testing.T) {
	for name, c := range map[string]struct {
		list  []answer
		sleep time.Duration // before the second request
	}{
		"spent":  {[]answer{{200, http.Header{"Ratelimit": {`"p";r=0;t=20`}}}}, 3 * time.Second},
		"probed": {[]answer{refusal(429, "5"), ok}, 8 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, memory.New(&memory.Options{Now: time.Now}), policy("fleet", algo.FixedWindow(algo.PerDay(1000))))
			a := &answers{list: c.list}
			tr := &Transport{Base: &wire{a, 2 * time.Second}, Limiter: l, Key: "k", MaxWait: -1}
			do(t, tr, getRequest(t))
			time.Sleep(c.sleep)
			var second sync.WaitGroup
			second.Go(func() { require.Equal(t, 200, do(t, tr, getRequest(t)).StatusCode, name) })
			time.Sleep(time.Second / 2)
			resp := do(t, tr, getRequest(t))
			require.Equal(t, 429, resp.StatusCode, name)
			require.Equal(t, "1", resp.Header.Get("Retry-After"), name)
			second.Wait()
			require.EqualValues(t, 2, a.n.Load(), name)
			d, err := l.Peek(t.Context(), headgate.Call{Key: "k", Costs: []int64{0}})
			require.NoError(t, err)
			require.EqualValues(t, 2, d.Used, name)
		})
	}
}

func TestSharedLimiterRefuses(t *testing.T) {
	still := &memory.Options{Now: func() time.Time { return time.Unix(1_745_000_000, 0) }}
	l := limiter(t, memory.New(still), policy("p", algo.FixedWindow(algo.PerMinute(1))))
	a := &answers{list: []answer{ok}}
	_, err := (&Transport{Base: &wire{a, 0}, Limiter: l}).RoundTrip(getRequest(t))
	require.Error(t, err, "no key")
	tr := &Transport{Base: &wire{a, 0}, Limiter: l, Key: "k", MaxWait: time.Second}
	require.Equal(t, 200, do(t, tr, getRequest(t)).StatusCode)
	resp := do(t, tr, getRequest(t))
	require.Equal(t, 429, resp.StatusCode)
	require.Equal(t, "40", resp.Header.Get("Retry-After"))
	require.EqualValues(t, 1, a.n.Load())
	_, err = (&Transport{Base: &wire{a, 0}, Limiter: new(headgate.Limiter), Key: "k"}).RoundTrip(getRequest(t))
	require.Error(t, err)
}

// TestSpentWindow: with no unit left a request waits for the window's end, or
// is sent at once where it has no time for that.
func TestSpentWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{list: []answer{{200, http.Header{"Ratelimit": {`"p";r=0;t=20`}}}, ok}}
		tr, begin := &Transport{Base: &wire{a, 0}}, time.Now()
		do(t, tr, getRequest(t))
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		time.Sleep(time.Second)
		require.Equal(t, 200, do(t, tr, getRequest(t).WithContext(ctx)).StatusCode)
		require.Equal(t, time.Second, time.Since(begin), "the server has not denied")
		require.Equal(t, 200, do(t, tr, getRequest(t).WithContext(ctx)).StatusCode)
		require.Equal(t, 2*time.Second, time.Since(begin), "but once a second")
		soon, cancel := context.WithTimeout(context.Background(), time.Second/2)
		defer cancel()
		resp := do(t, tr, getRequest(t).WithContext(soon))
		require.Equal(t, 429, resp.StatusCode)
		require.Equal(t, "1", resp.Header.Get("Retry-After"))
		require.EqualValues(t, 3, a.n.Load(), "not sent")
		do(t, tr, getRequest(t))
		require.Equal(t, 20*time.Second, time.Since(begin))
		for range 100 { // the server names the policy no more
			do(t, tr, getRequest(t))
		}
		require.LessOrEqual(t, time.Since(begin), 40*time.Second)
	})
}

func TestIgnores(t *testing.T) {
	for name, h := range map[string]http.Header{
		"malformed": {"Ratelimit": {`"p;r=0;t=20`}}, "no window": {"Ratelimit": {`"p";r=0`}},
		"a cache's copy": {"Ratelimit": {`"p";r=0;t=20`}, "Age": {"3"}}, "Retry-After of a pass": {"Retry-After": {"20"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr, begin := &Transport{Base: &wire{&answers{list: []answer{{200, h}}}, 0}}, time.Now()
			do(t, tr, getRequest(t))
			do(t, tr, getRequest(t))
			require.Zero(t, time.Since(begin), name)
		})
	}
}

// TestProbe: only the response to the probe itself ends the time in which one
// request is sent, not that of a request from before the denial.
func TestProbe(t *testing.T) {
	now, s := time.Unix(0, 0), newScope()
	begin := func() (ticket, bool) {
		k, _, changed := s.start(now, false)
		return k, changed == nil
	}
	passed := &http.Response{StatusCode: 200}
	first, _ := begin()
	second, _ := begin()
	third, _ := begin()
	s.finish(first, &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"5"}}}, now, true)
	s.finish(second, passed, now, true)
	now = now.Add(5 * time.Second)
	probe, sent := begin()
	require.True(t, sent)
	s.finish(third, passed, now, true)
	_, sent = begin()
	require.False(t, sent)
	s.finish(probe, passed, now, true)
	for range 3 {
		_, sent = begin()
		require.True(t, sent)
	}
}

// TestSharedLimiterAndSpentWindow: no unit at the server holds for all.
func TestSharedLimiterAndSpentWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, memory.New(&memory.Options{Now: time.Now}), policy("p", algo.FixedWindow(algo.PerMinute(100))))
		a := &answers{list: []answer{{200, http.Header{"Ratelimit": {`"p";r=0;t=20`}}}, ok}}
		tr, begin := &Transport{Base: &wire{a, 0}, Limiter: l, Key: "k"}, time.Now()
		do(t, tr, getRequest(t))
		do(t, tr, getRequest(t))
		require.Equal(t, 20*time.Second, time.Since(begin))
	})
}

// TestNewerFieldReplacesASpentWindow: a response with units left ends what an earlier one
// without any held back, also beside a Limiter, and of a policy that does not count requests.
func TestNewerFieldReplacesASpentWindow(t *testing.T) {
	field := func(status int, policy, limit string) answer {
		return answer{status, http.Header{"Ratelimit-Policy": {policy}, "Ratelimit": {limit}}}
	}
	denied := field(429, `"p";q=20;w=1`, `"p";r=0;t=1`)
	denied.header.Set("Retry-After", "1")
	for name, c := range map[string]struct {
		spent, later answer
		alone        bool // no Limiter
		want         time.Duration
	}{
		"second":  {spent: field(200, `"p";q=20;w=1`, `"p";r=0;t=1`), later: field(200, `"p";q=20;w=1`, `"p";r=19;t=1`), want: time.Second},
		"no w":    {spent: field(200, ``, `"p";r=0;t=1`), later: field(200, ``, `"p";r=19;t=1`), want: time.Second},
		"no t":    {spent: field(200, ``, `"p";r=0;t=1`), later: field(200, ``, `"p";r=19`), want: time.Second},
		"minute":  {spent: field(200, `"p";q=1000;w=60`, `"p";r=0;t=2`), later: field(200, `"p";q=1000;w=60`, `"p";r=900;t=60`), want: 2 * time.Second},
		"denied":  {spent: denied, later: field(200, `"p";q=20;w=1`, `"p";r=19;t=1`), want: time.Second},
		"tokens":  {spent: field(200, `"p";q=20;w=1;qu="tokens"`, `"p";r=0;t=1`), later: field(200, `"p";q=20;w=1;qu="tokens"`, `"p";r=19;t=1`), alone: true, want: time.Second},
		"no more": {spent: field(200, `"p";q=20;w=1`, `"p";r=0;t=1`), later: ok, want: time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &answers{list: []answer{c.spent, c.later}}
			tr, begin := &Transport{Base: &wire{a, 0}}, time.Now()
			if !c.alone {
				tr.Limiter, tr.Key = limiter(t, memory.New(nil), policy("fleet", algo.SlidingLog(algo.PerSecond(10000)))), "k"
			}
			for range 10 {
				do(t, tr, getRequest(t))
			}
			require.Equal(t, c.want, time.Since(begin), name)
		})
	}
}

// TestOlderFieldLeavesASpentWindow: a response to a request that was sent before another
// response showed no unit does not end what that one holds back.
func TestOlderFieldLeavesASpentWindow(t *testing.T) {
	now, s := time.Unix(0, 0), newScope()
	response := func(limit string) *http.Response {
		return &http.Response{StatusCode: 200, Header: http.Header{"Ratelimit": {limit}}}
	}
	first, _, _ := s.start(now, false)
	second, _, _ := s.start(now, false)
	s.finish(second, response(`"p";r=0;t=9`), now, false)
	s.finish(first, response(`"p";r=1;t=9`), now, false)
	_, wait, changed := s.start(now, false)
	require.NotNil(t, changed)
	require.Equal(t, 9*time.Second, wait)
}

// TestShortDeadline: a request without time does not queue behind those that
// can wait.
func TestShortDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{list: []answer{{200, http.Header{"Ratelimit": {`"p";r=0;t=20`}}}, {200, http.Header{"Ratelimit": {`"p";r=0;t=20`}}}, ok}}
		tr, begin := &Transport{Base: &wire{a, 0}}, time.Now()
		do(t, tr, getRequest(t))
		var patient sync.WaitGroup
		patient.Go(func() { do(t, tr, getRequest(t)) })
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.Equal(t, 200, do(t, tr, getRequest(t).WithContext(ctx)).StatusCode)
		require.Equal(t, 2*time.Second, time.Since(begin))
		patient.Wait()
	})
}

// TestBoundedPolicies: a server can't make a client keep more and more.
func TestBoundedPolicies(t *testing.T) {
	redistest.Plain(t)
	n := 0
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 100 {
			n++
			w.Header().Add("RateLimit", `"p`+strconv.Itoa(n)+`";r=9;t=86400`)
		}
	})
	tr := &Transport{Base: &wire{h, 0}}
	for range 10 {
		do(t, tr, getRequest(t))
	}
	require.Len(t, tr.mu.scopes["http://server.test"].mu.quotas, mostQuotas)
}

// TestScopes: servers do not hold each other back, and idle ones are forgotten.
func TestScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{list: []answer{refusal(429, "100"), ok}}
		tr := &Transport{Base: &wire{a, 0}}
		require.Equal(t, 429, do(t, tr, getRequest(t)).StatusCode)
		for i := range 1000 {
			r := getRequest(t)
			r.URL.Host = "server" + strconv.Itoa(i)
			require.Equal(t, 200, do(t, tr, r).StatusCode)
		}
		require.Less(t, len(tr.mu.scopes), 100)
		require.Equal(t, 429, do(t, tr, getRequest(t)).StatusCode, "what denies is kept")
		same := getRequest(t)
		same.URL.Host = "SERVER.test"
		require.Equal(t, 429, do(t, tr, same).StatusCode)

		tr.Scope = func(r *http.Request) string { return r.Header.Get("Authorization") }
		require.Equal(t, 200, do(t, tr, getRequest(t)).StatusCode)
	})
}

func TestBaseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := errors.New("no route")
		tr := &Transport{Base: roundTrip(func(*http.Request) (*http.Response, error) { return nil, fails })}
		for range 3 {
			_, err := tr.RoundTrip(getRequest(t))
			require.Equal(t, fails, err)
		}
	})
	_, err := (&Transport{}).RoundTrip(&http.Request{})
	require.Error(t, err, "a request without a URL")
}

// TestBasePanics: a panic of the base ends the probe after a denial, as an error does.
func TestBasePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{list: []answer{refusal(429, "100"), ok}}
		tr := &Transport{Base: &wire{a, 0}, MaxWait: -1}
		require.Equal(t, 429, do(t, tr, getRequest(t)).StatusCode)
		time.Sleep(101 * time.Second)
		tr.Base = roundTrip(func(*http.Request) (*http.Response, error) { panic("oops") })
		require.PanicsWithValue(t, "oops", func() { _, _ = tr.RoundTrip(getRequest(t)) })
		tr.Base = &wire{a, 0}
		require.Equal(t, 200, do(t, tr, getRequest(t)).StatusCode)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTransportOfAStalledBody: a server that stalls in the body of its denial
// keeps nobody.
func TestTransportOfAStalledBody(t *testing.T) {
	done, calls := make(chan struct{}), 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls++; calls > 1 {
			return
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		w.(http.Flusher).Flush()
		<-done
	}))
	defer server.Close()
	defer close(done)
	begin := time.Now()
	resp, err := (&http.Client{Transport: &Transport{MaxWait: 5 * time.Second}}).Get(server.URL)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Less(t, time.Since(begin), 4*time.Second)
}
