package rls

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

var (
	withCost = flag.Bool("cost", false, "measure processor time")
	rounds   = flag.Int("rounds", 5, "rounds by turns, of which the median counts")
	length   = flag.Duration("length", 3*time.Second, "of a round")
	rate     = flag.Float64("rate", 0, "requests per second of the open loop; 0: half of what the first service can do")
)

const costLimits = `
domain: cost
descriptors:
  - {key: one, rate_limit: {unit: hour, requests_per_unit: 4000000000}}
  - {key: spent, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
`

// free is answered without a store: what is left is gRPC and the search for the limit.
var free = workload{"no store", "free", func(*rand.Rand) string { return "x" }}

// workload draws the value of a descriptor.
type workload struct {
	name, key string
	value     func(*rand.Rand) string
}

var workloads = []workload{
	{"one descriptor", "one", func(*rand.Rand) string { return "x" }},
	{"100,000 descriptors", "one", func(r *rand.Rand) string { return strconv.Itoa(r.IntN(100_000)) }},
	{"a flood on a spent one", "spent", func(*rand.Rand) string { return "x" }},
}

func (w workload) request(r *rand.Rand) *rlspb.RateLimitRequest {
	return request("cost", []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: w.key, Value: w.value(r)}}}})
}

// figure is what one round of one service showed.
type figure struct {
	perRequest time.Duration // processor time of the service and its Redis
	server     time.Duration // of the service alone
	rate       float64       // requests per second
	p50, p99   time.Duration
}

// pid returns the process of the service's Redis.
func (s *service) pid(t testing.TB) int {
	info, err := s.redis.Client(t).Info(context.Background(), "server").Result()
	require.NoError(t, err)
	_, after, _ := strings.Cut(info, "process_id:")
	pid, _, _ := strings.Cut(after, "\r\n")
	n, err := strconv.Atoi(pid)
	require.NoError(t, err)
	return n
}

// measure runs load for a round, and returns what it cost.
func (s *service) measure(t testing.TB, load func(until time.Time) (n int64, took []time.Duration)) figure {
	t.Helper()
	redis := s.pid(t)
	server, store := cpu(t, s.cmd.Process.Pid), cpu(t, redis)
	begin := time.Now()
	n, took := load(begin.Add(*length))
	elapsed := time.Since(begin)
	server, store = cpu(t, s.cmd.Process.Pid)-server, cpu(t, redis)-store
	slices.Sort(took)
	f := figure{perRequest: (server + store) / time.Duration(n), server: server / time.Duration(n), rate: float64(n) / elapsed.Seconds()}
	if len(took) > 0 {
		f.p50, f.p99 = took[len(took)/2], took[len(took)*99/100]
	}
	return f
}

// closed is 64 callers on 2 connections, each with a request under way all the time.
func (s *service) closed(t testing.TB, w workload, clients []rlspb.RateLimitServiceClient) func(time.Time) (int64, []time.Duration) {
	return func(until time.Time) (int64, []time.Duration) {
		var n atomic.Int64
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				r := rand.New(rand.NewPCG(uint64(i), 7))
				for time.Now().Before(until) {
					if _, err := clients[i%2].ShouldRateLimit(context.Background(), w.request(r)); err != nil {
						t.Error(err)
						return
					}
					n.Add(1)
				}
			}()
		}
		wg.Wait()
		return n.Load(), nil
	}
}

// open sends at a rate, whatever the answers take.
func (s *service) open(t testing.TB, w workload, clients []rlspb.RateLimitServiceClient, rate float64) func(time.Time) (int64, []time.Duration) {
	return func(until time.Time) (int64, []time.Duration) {
		var mu sync.Mutex
		var took []time.Duration
		var wg sync.WaitGroup
		r, begin, n := rand.New(rand.NewPCG(1, 7)), time.Now(), int64(0)
		for time.Now().Before(until) {
			for due := int64(time.Since(begin).Seconds() * rate); n < due; n++ {
				req, at, c := w.request(r), time.Now(), clients[n%2]
				wg.Add(1)
				go func() {
					defer wg.Done()
					if _, err := c.ShouldRateLimit(context.Background(), req); err != nil {
						t.Error(err)
					}
					mu.Lock()
					took = append(took, time.Since(at))
					mu.Unlock()
				}()
			}
			time.Sleep(200 * time.Microsecond)
		}
		wg.Wait()
		return n, took
	}
}

// tuned measures beside envoyproxy/ratelimit as its README recommends it, with a cache and a
// window for writes, and as it is without a setting.
func tuned(t *testing.T, measure func(*testing.T, []string)) {
	if !*withCost {
		t.Skip("NOT TESTED: without -cost nothing is measured")
	}
	t.Run("tuned", func(t *testing.T) {
		measure(t, []string{"LOCAL_CACHE_SIZE_IN_BYTES=10485760", "REDIS_PIPELINE_WINDOW=150us"})
	})
	t.Run("plain", func(t *testing.T) { measure(t, nil) })
}

// Processor time of service and Redis per request, beside the service that it replaces:
// rounds by turns, medians. The generator's is not counted.
func TestCost(t *testing.T) { tuned(t, cost) }

func cost(t *testing.T, env []string) {
	reference, headgated := both(t, map[string]string{"cost": costLimits}, env...)
	clients := map[*service][]rlspb.RateLimitServiceClient{}
	for _, s := range []*service{reference, headgated} {
		clients[s] = []rlspb.RateLimitServiceClient{s.dial(t), s.dial(t)}
	}
	for _, w := range workloads {
		a, b := turns(t, reference, headgated, func(s *service) figure { return s.measure(t, s.closed(t, w, clients[s])) })
		report(t, w.name, a, b)
	}
}

// The same at a rate that leaves both services idle for a part of the time.
func TestCostOpen(t *testing.T) { tuned(t, costOpen) }

func costOpen(t *testing.T, env []string) {
	reference, headgated := both(t, map[string]string{"cost": costLimits}, env...)
	clients := map[*service][]rlspb.RateLimitServiceClient{}
	for _, s := range []*service{reference, headgated} {
		clients[s] = []rlspb.RateLimitServiceClient{s.dial(t), s.dial(t)}
	}
	at := *rate
	if at == 0 {
		at = reference.measure(t, reference.closed(t, workloads[0], clients[reference])).rate / 2
	}
	for _, w := range []workload{workloads[0], free} {
		a, b := turns(t, reference, headgated, func(s *service) figure { return s.measure(t, s.open(t, w, clients[s], at)) })
		report(t, fmt.Sprintf("%s, %.0f requests per second", w.name, at), a, b)
	}
}

// turns returns the medians of both.
func turns(t testing.TB, a, b *service, round func(*service) figure) (figure, figure) {
	t.Helper()
	all := map[*service][]figure{}
	for range *rounds {
		for _, s := range []*service{a, b} {
			all[s] = append(all[s], round(s))
		}
	}
	return median(all[a]), median(all[b])
}

func median(fs []figure) (m figure) {
	mid := func(less func(a, b figure) bool) figure {
		s := slices.Clone(fs)
		slices.SortFunc(s, func(a, b figure) int {
			if less(a, b) {
				return -1
			}
			return 1
		})
		return s[len(s)/2]
	}
	m.perRequest = mid(func(a, b figure) bool { return a.perRequest < b.perRequest }).perRequest
	m.server = mid(func(a, b figure) bool { return a.server < b.server }).server
	m.rate = mid(func(a, b figure) bool { return a.rate < b.rate }).rate
	m.p50 = mid(func(a, b figure) bool { return a.p50 < b.p50 }).p50
	m.p99 = mid(func(a, b figure) bool { return a.p99 < b.p99 }).p99
	return m
}

func report(t testing.TB, name string, a, b figure) {
	t.Logf("%s: processor time %v → %v (%.2f ×), of the server alone %v → %v; requests per second %.0f → %.0f (%.2f ×); p50 %v → %v, p99 %v → %v",
		name, a.perRequest, b.perRequest, float64(b.perRequest)/float64(a.perRequest), a.server, b.server, a.rate, b.rate, b.rate/a.rate, a.p50, b.p50, a.p99, b.p99)
}

func withValue(w workload, value string) *rlspb.RateLimitRequest {
	w.value = func(*rand.Rand) string { return value }
	return w.request(nil)
}
