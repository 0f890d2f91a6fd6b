// Http compares middlewares that limit by the client's address, in memory: what
// each adds to a bare handler for a request that passes.
//
//	cd bench/http && go run .
package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/middleware/httplimit"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ulule "github.com/ulule/limiter/v3/drivers/store/memory"
)

// Each subject is measured in every round, so that drift of the machine meets
// all of them. The median counts.
const rounds = 7 // of each subject, by turns; the median counts

// subject is a middleware that lets limit requests of an address pass within an
// hour, by a fixed window or its nearest algorithm.
type subject struct {
	name string
	wrap func(limit int) func(http.Handler) http.Handler
}

// The bare handler is the first, since the others are shown as what they add to
// it.
var subjects = []subject{
	{"bare handler", func(int) func(http.Handler) http.Handler {
		return func(h http.Handler) http.Handler { return h }
	}},
	{"headgate", ours(nil)},
	{"headgate, X-RateLimit too", ours(&httplimit.Options{XRateLimit: true})},
	{"go-chi/httprate", func(limit int) func(http.Handler) http.Handler {
		return httprate.LimitBy(limit, time.Hour, func(r *http.Request) (string, error) {
			host, _, err := net.SplitHostPort(r.RemoteAddr)
			return host, err
		})
	}},
	{"ulule/limiter", func(limit int) func(http.Handler) http.Handler {
		return stdlib.NewMiddleware(limiter.New(ulule.NewStore(), limiter.Rate{Period: time.Hour, Limit: int64(limit)})).Handler
	}},
}

// ours uses FixedWindow, since the peers count windows.
func ours(opts *httplimit.Options) func(int) func(http.Handler) http.Handler {
	return func(limit int) func(http.Handler) http.Handler {
		l, err := headgate.New(memory.New(nil), []headgate.Policy{{
			Name: "client", Algorithm: algo.FixedWindow(algo.PerHour(int64(limit))), OnFailure: headgate.FailOpen,
		}}, nil)
		if err != nil {
			panic(err)
		}
		wrap, err := httplimit.New(l, httplimit.RemoteAddr(), opts)
		if err != nil {
			panic(err)
		}
		return wrap
	}
}

// writer is a ResponseWriter whose header map is used again: with
// httptest.ResponseRecorder, its own allocations would be most of what is seen.
type writer struct {
	header http.Header
	status int
}

func (w *writer) Header() http.Header         { return w.header }
func (w *writer) Write(b []byte) (int, error) { return len(b), nil }
func (w *writer) WriteHeader(status int)      { w.status = status }

// one sends a request of one address again and again. A response other than the
// handler's own fails, since a refused request costs less.
func one(h http.Handler) func(b *testing.B) {
	return func(b *testing.B) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		w := &writer{header: http.Header{}}
		b.ReportAllocs()
		for b.Loop() {
			clear(w.header) // as a server's is empty for each request
			w.status = 0
			h.ServeHTTP(w, r)
			if w.status != http.StatusNoContent {
				b.Fatalf("status %d", w.status)
			}
		}
	}
}

// fine writes no body, so that the middlewares are what is measured.
var fine = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

func main() {
	times, allocs := make([][]int64, len(subjects)), make([]int64, len(subjects))
	for range rounds {
		for i, s := range subjects {
			r := testing.Benchmark(one(s.wrap(1 << 30)(fine)))
			times[i], allocs[i] = append(times[i], r.NsPerOp()), r.AllocsPerOp()
		}
	}
	fmt.Printf("%-28s %10s %12s %8s\n", "", "ns", "over bare", "allocs")
	var bare int64
	for i, s := range subjects {
		slices.Sort(times[i])
		median := times[i][rounds/2]
		if i == 0 {
			bare = median
		}
		fmt.Printf("%-28s %10d %12d %8d\n", s.name, median, median-bare, allocs[i])
	}
}
