package httplimit

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// stores are one in memory and one on a server.
func stores(t *testing.T) map[string]backend.Store {
	server := redistest.Start(t)
	s, err := standalone.Open("redis://"+server.Addr(), &standalone.Options{Budget: 20 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return map[string]backend.Store{"memory": memory.New(nil), "standalone": s}
}

// at serves a request with a status, on the key of the header K.
func at(h http.Handler, key, path string) int {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("K", key)
	return send(h, r).Code
}

// each calls f from 64 callers, n times in all, and returns how often it returned each
// number.
func each(n int, f func(i int) int) map[int]int {
	var next atomic.Int64
	var mu sync.Mutex
	var callers sync.WaitGroup
	counts := map[int]int{}
	for range 64 {
		callers.Add(1)
		go func() {
			defer callers.Done()
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				code := f(int(i))
				mu.Lock()
				counts[code]++
				mu.Unlock()
			}
		}()
	}
	callers.Wait()
	return counts
}

// TestDeniedAtOnce: without SettleWait, and where nothing can come back.
func TestDeniedAtOnce(t *testing.T) {
	l := limiter(t, memory.New(nil), policy("failed", algo.SlidingLog(algo.PerDay(1))))
	for _, wait := range []time.Duration{0, time.Minute} {
		inside, leave := make(chan struct{}), make(chan struct{})
		limit, err := New(l, Header("K"), &Options{Settle: failures, SettleWait: wait})
		require.NoError(t, err)
		h := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(inside)
			<-leave
			login(w, r)
		}))
		ended := make(chan int)
		key := wait.String()
		go func() { ended <- at(h, key, "/bad") }()
		<-inside
		if wait == 0 {
			require.Equal(t, 429, at(h, key, "/bad"))
			close(leave)
			require.Equal(t, 401, <-ended)
			continue
		}
		denied := make(chan int)
		for range 3 {
			go func() { denied <- at(h, key, "/bad") }()
		}
		select {
		case <-denied:
			t.Fatal("denied before the first was settled")
		case <-time.After(20 * time.Millisecond):
		}
		close(leave)
		require.Equal(t, 401, <-ended)
		for range 3 {
			require.Equal(t, 429, <-denied, "as soon as the first was settled")
		}
		require.Equal(t, 429, at(h, key, "/bad"))
	}
}

// TestSettleWaitEnds: a request that waits leaves with its client, and after its time.
func TestSettleWaitEnds(t *testing.T) {
	l := limiter(t, memory.New(nil), policy("failed", algo.SlidingLog(algo.PerDay(1))))
	limit, err := New(l, Header("K"), &Options{Settle: failures, SettleWait: 30 * time.Millisecond})
	require.NoError(t, err)
	inside, leave := make(chan struct{}), make(chan struct{})
	h := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(inside); <-leave }))
	ended := make(chan int)
	go func() { ended <- at(h, "k", "/good") }()
	<-inside
	require.Equal(t, map[int]int{429: 3}, each(3, func(int) int { return at(h, "k", "/good") }))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
	r.Header.Set("K", "k")
	require.Contains(t, []int{429, statusClientLeft}, send(h, r).Code)
	close(leave)
	require.Equal(t, 200, <-ended)
}

// TestSlots: a slot is held until the handler has ended, however it ends, and the
// fields say what the numbers are.
func TestSlots(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			l := limiter(t, s, policy("running", algo.InFlight(2)), policy("rate", algo.FixedWindow(algo.PerDay(1000))))
			limit, err := New(l, RemoteAddr(), &Options{XRateLimit: true})
			require.NoError(t, err)
			var inner http.HandlerFunc
			h := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner(w, r) }))
			var denied *httptest.ResponseRecorder
			inner = func(http.ResponseWriter, *http.Request) {
				first := true
				inner = func(http.ResponseWriter, *http.Request) {
					if first {
						first = false
						denied = get(h)
					}
				}
				w := get(h)
				require.Equal(t, 200, w.Code)
				require.Equal(t, `"running";q=2;qu="concurrent-requests", "rate";q=1000;w=86400`, w.Header().Get("RateLimit-Policy"))
				require.Contains(t, w.Header().Get("RateLimit"), `"running";r=0, "rate";r=998;t=`)
			}
			get(h)
			require.Equal(t, 429, denied.Code)
			require.Equal(t, []string{"running"}, readProblem(t, denied).Violated)
			require.Equal(t, "2", denied.Header().Get("X-RateLimit-Limit"))
			require.Contains(t, denied.Header().Get("RateLimit"), `"running";r=0, "rate";r=998;t=`, "no rate was charged")
			for range 3 {
				inner = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
				require.Panics(t, func() { get(h) })
				inner = func(http.ResponseWriter, *http.Request) { runtime.Goexit() }
				over := make(chan struct{})
				go func() { defer close(over); get(h) }()
				<-over
				inner = func(http.ResponseWriter, *http.Request) {}
				require.Equal(t, 200, get(h).Code)
			}
			each := make([]headgate.State, 2)
			_, err = l.Peek(t.Context(), headgate.Call{Key: "ip:192.0.2.1", Each: each})
			require.NoError(t, err)
			require.Zero(t, each[0].Used, "no slot is taken")
			require.EqualValues(t, 11, each[1].Used)
		})
	}
}

// metered is a middleware of 100 units of a policy whose Settle is s, and what it counts.
func metered(t *testing.T, s func(*Outcome) []int64, handler http.HandlerFunc) (http.Handler, func() int64) {
	l := limiter(t, memory.New(nil), policy("units", algo.SlidingLog(algo.PerDay(100))))
	limit, err := New(l, RemoteAddr(), &Options{Cost: func(*http.Request) []int64 { return []int64{40} }, Settle: s})
	require.NoError(t, err)
	return limit(handler), func() int64 {
		d, err := l.Peek(t.Context(), headgate.Call{Key: "ip:192.0.2.1", Costs: []int64{0}})
		require.NoError(t, err)
		return d.Used
	}
}

// TestOutcomes: what a Settle gets of each way to end, and what stands afterwards.
func TestOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    Outcome
		settle  func(*Outcome) []int64
		used    int64
	}{
		"nothing written": {func(http.ResponseWriter, *http.Request) {}, Outcome{Status: 200}, nil, 40},
		"bytes": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(make([]byte, 20))
			_, _ = io.WriteString(w, "0123456789")
			_, _ = io.Copy(w, strings.NewReader("01234"))
		}, Outcome{Status: 201, Written: 35}, func(o *Outcome) []int64 { return []int64{o.Written} }, 35},
		"header": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Units", "123") },
			Outcome{Status: 200}, func(o *Outcome) []int64 { return []int64{int64(len(o.Header.Get("Units"))) * 41} }, 123},
		"reported": {func(_ http.ResponseWriter, r *http.Request) { Report(r.Context(), 1); Report(r.Context(), 7) },
			Outcome{Status: 200, Reported: []int64{7}}, Reported, 7},
		"not reported": {fine, Outcome{Status: 204}, Reported, 40},
		"flushed":      {func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, Outcome{Status: 200}, nil, 40},
		"an empty copy, then a status": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, io.LimitReader(strings.NewReader(""), 1)) // it has no WriteTo
			w.WriteHeader(http.StatusBadGateway)
		}, Outcome{Status: 502}, nil, 40},
		"panic in the first read of a copy": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, panics("")) },
			Outcome{Status: 500, Panicked: true}, nil, 40},
		"panic in a copy": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, panics("01234")) },
			Outcome{Status: 200, Written: 5, Panicked: true}, nil, 40},
		"panic": {func(http.ResponseWriter, *http.Request) { panic("oops") },
			Outcome{Status: 500, Panicked: true}, func(o *Outcome) []int64 { return []int64{int64(o.Status) / 100} }, 5},
		"late panic": {func(w http.ResponseWriter, _ *http.Request) { fine(w, nil); panic("oops") },
			Outcome{Status: 204, Panicked: true}, nil, 40},
		"a list that does not fit": {fine, Outcome{Status: 204}, func(*Outcome) []int64 { return []int64{1, 2} }, 40},
		"a negative number":        {fine, Outcome{Status: 204}, func(*Outcome) []int64 { return []int64{-1} }, 40},
		"cancelled":                {fine, Outcome{Status: 204}, func(*Outcome) []int64 { return []int64{0} }, 0},
		"settle panics":            {fine, Outcome{Status: 204}, func(*Outcome) []int64 { panic("oops") }, 40},
	} {
		t.Run(name, func(t *testing.T) {
			var got Outcome
			h, used := metered(t, func(o *Outcome) []int64 {
				got = *o
				if c.settle == nil {
					return nil
				}
				return c.settle(o)
			}, c.handler)
			func() {
				defer func() { require.Equal(t, c.want.Panicked || name == "settle panics", recover() != nil) }()
				get(h)
			}()
			require.NotNil(t, got.Request)
			require.Equal(t, []int64{40}, got.Estimate)
			require.Equal(t, []string{"units"}, got.Policies)
			got.Request, got.Header, got.Estimate, got.Policies, got.call = nil, nil, nil, nil, nil
			silent := []string{"nothing written", "header", "reported", "panic", "panic in the first read of a copy"}
			c.want.Wrote = !slices.Contains(silent, name)
			require.Equal(t, c.want, got)
			require.Equal(t, c.used, used())
		})
	}
}

// TestWriters: a handler can do over a real connection what it can without the
// middleware, by HTTP/1 and HTTP/2.
func TestWriters(t *testing.T) {
	outcomes := make(chan Outcome, 1)
	h, _ := metered(t, func(o *Outcome) []int64 { outcomes <- *o; return []int64{0} }, func(w http.ResponseWriter, r *http.Request) {
		_, flushes := w.(http.Flusher)
		_, hijacks := w.(http.Hijacker)
		_, pushes := w.(http.Pusher)
		_, reads := w.(io.ReaderFrom)
		if r.URL.Path == "/hijack" {
			hijack(t, w)
			return
		}
		w.WriteHeader(http.StatusEarlyHints) // before the status
		fmt.Fprint(w, flushes, hijacks, pushes, reads)
		require.NoError(t, http.NewResponseController(w).Flush())
		require.NoError(t, http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)))
	})
	for proto, want := range map[string]string{"HTTP/1.1": "true true false true", "HTTP/2.0": "true false true true"} {
		server := httptest.NewUnstartedServer(h)
		server.EnableHTTP2 = proto == "HTTP/2.0"
		server.StartTLS()
		resp, err := server.Client().Get(server.URL)
		require.NoError(t, err)
		require.Equal(t, proto, resp.Proto)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, want, string(body))
		o := <-outcomes
		require.EqualValues(t, len(body), o.Written)
		require.Equal(t, 200, o.Status)
		if proto == "HTTP/1.1" {
			resp, err = server.Client().Get(server.URL + "/hijack")
			require.NoError(t, err)
			require.Equal(t, http.StatusTeapot, resp.StatusCode)
			o = <-outcomes
			require.True(t, o.Hijacked)
			require.Zero(t, o.Status)
		}
		server.Close()
	}
	bare := &recorder{ResponseWriter: bare{}}
	_, flushes := bare.writer().(http.Flusher)
	require.False(t, flushes)
}

type bare struct{ http.ResponseWriter }

// unwrapped is a wrapper whose optional methods only http.ResponseController finds.
type unwrapped struct{ http.ResponseWriter }

func (w unwrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestWritersBelowAWrapper: the outcome has the status that the client got, also where
// http.ResponseController flushes or hijacks below another middleware's wrapper.
func TestWritersBelowAWrapper(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		status  int
		want    Outcome
	}{
		"flushed": {func(w http.ResponseWriter, _ *http.Request) {
			require.NoError(t, http.NewResponseController(w).Flush())
			w.WriteHeader(http.StatusInternalServerError)
		}, 200, Outcome{Status: 200}},
		"hijacked": {func(w http.ResponseWriter, _ *http.Request) { hijack(t, w) }, 418, Outcome{Hijacked: true}},
		"written after a hijack": {func(w http.ResponseWriter, _ *http.Request) {
			hijack(t, w)
			w.WriteHeader(http.StatusInternalServerError)
			_, err := w.Write([]byte("x"))
			require.ErrorIs(t, err, http.ErrHijacked)
		}, 418, Outcome{Hijacked: true}},
	} {
		t.Run(name, func(t *testing.T) {
			outcomes := make(chan Outcome, 1)
			h, _ := metered(t, func(o *Outcome) []int64 { outcomes <- *o; return []int64{0} }, c.handler)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(unwrapped{w}, r) }))
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // superfluous headers
			server.Start()
			defer server.Close()
			resp, err := http.Get(server.URL)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, c.status, resp.StatusCode)
			o := <-outcomes
			require.Equal(t, c.want, Outcome{Status: o.Status, Written: o.Written, Hijacked: o.Hijacked})
		})
	}
}

// hijack answers 418 on the connection itself.
func hijack(t *testing.T, w http.ResponseWriter) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	require.NoError(t, err)
	_, _ = rw.WriteString("HTTP/1.1 418 I'm a teapot\r\nContent-Length: 0\r\n\r\n")
	_ = rw.Flush()
	_ = conn.Close()
}

// slow is a store whose settlements take until they are let go.
type slow struct {
	backend.Store
	leave   chan struct{}
	settled chan error
}

func (s *slow) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if r.Op != backend.Settle {
		return s.Store.Do(ctx, r, d)
	}
	<-s.leave
	if err := ctx.Err(); err != nil {
		s.settled <- err
		return err
	}
	err := s.Store.Do(ctx, r, d)
	s.settled <- err
	return err
}

// TestSettlesAfterwards: a slow store does not hold the response back, and a client
// that has left does not end the settlement.
func TestSettlesAfterwards(t *testing.T) {
	s := &slow{memory.New(nil), make(chan struct{}), make(chan error, 1)}
	l := limiter(t, s, policy("units", algo.SlidingLog(algo.PerDay(100))))
	limit, err := New(l, RemoteAddr(), &Options{Settle: func(*Outcome) []int64 { return []int64{0} }})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	h := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { cancel() }))
	require.Equal(t, 200, send(h, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)).Code)
	close(s.leave)
	require.NoError(t, <-s.settled)
}

// TestSettlementLost: a store that dies while the handler runs changes nothing for the
// client. What failed open has nothing to give back.
func TestSettlementLost(t *testing.T) {
	server := redistest.Start(t)
	store, err := standalone.Open("redis://"+server.Addr(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	p := policy("running", algo.InFlight(1))
	p.OnFailure = headgate.FailOpen
	limit, err := New(limiter(t, store, p), RemoteAddr(), nil)
	require.NoError(t, err)
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { server.Kill(); fine(w, nil) }))
	for range 3 {
		require.Equal(t, 204, get(h).Code)
	}
}

func TestRefusedSettleOptions(t *testing.T) {
	l := limiter(t, memory.New(nil), policy("units", algo.SlidingLog(algo.PerDay(100))))
	for _, o := range []Options{
		{Lease: time.Millisecond}, {Lease: 25 * time.Hour}, {SettleWait: time.Second},
		{Settle: Reported, SettleWait: -1}, {Settle: Reported, SettleWait: time.Minute + 1},
	} {
		_, err := New(l, RemoteAddr(), &o)
		require.ErrorAs(t, err, new(*headgate.InvalidError), "%+v", o)
	}
	Report(t.Context(), 1) // outside of a middleware
}

// TestWrongUseFreesTheSlot: a mistake of the Settle function must not take a slot until
// the lease ends.
func TestWrongUseFreesTheSlot(t *testing.T) {
	l := limiter(t, memory.New(nil), policy("running", algo.InFlight(1)))
	for _, used := range [][]int64{{1, 2}, {-1}} {
		limit, err := New(l, RemoteAddr(), &Options{Settle: func(*Outcome) []int64 { return used }})
		require.NoError(t, err)
		for range 3 {
			require.Equal(t, 204, get(limit(fine)).Code)
		}
	}
}
