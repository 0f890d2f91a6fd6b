package memory_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

const keys = 1_000_000

var rules = []struct {
	name string
	rule algo.Algorithm
}{
	{"TokenBucket", algo.TokenBucket(algo.PerHour(100), 100)},
	{"SlidingWindow", algo.SlidingWindow(algo.PerHour(100))},
	{"TokenBucket2^31", algo.TokenBucket(algo.PerHour(1<<31), 1<<31)},
	{"SlidingWindow2^31", algo.SlidingWindow(algo.PerHour(1 << 31))},
}

func limiter(tb testing.TB, rule algo.Algorithm, policies int) *headgate.Limiter {
	tb.Helper()
	ps := make([]headgate.Policy, policies)
	for i := range ps {
		ps[i] = headgate.Policy{Name: fmt.Sprint("quota", i), Algorithm: rule, OnFailure: headgate.FailClosed}
	}
	l, err := headgate.New(memory.New(&memory.Options{MaxKeys: 20 * keys}), ps, nil)
	require.NoError(tb, err)
	return l
}

// TestHitsAllocateNothing, whether they pass or not, by up to four policies.
func TestHitsAllocateNothing(t *testing.T) {
	for _, r := range rules {
		for _, n := range []int{1, 2, 4} {
			l := limiter(t, r.rule, n)
			ctx := context.Background()
			require.Zero(t, testing.AllocsPerRun(300, func() { _, _ = l.Allow(ctx, "user:123456") }), "%s, %d policies", r.name, n)
		}
	}
}

func BenchmarkHot(b *testing.B) {
	for _, r := range rules {
		b.Run(r.name, func(b *testing.B) {
			ask(b, limiter(b, r.rule, 1), []string{"user:123456"}, func(*rand.Rand) func() uint64 { return func() uint64 { return 0 } })
		})
	}
}

func BenchmarkTwentyPolicies(b *testing.B) {
	ask(b, limiter(b, rules[2].rule, 20), []string{"user:123456"}, func(*rand.Rand) func() uint64 { return func() uint64 { return 0 } })
}

func BenchmarkZipf(b *testing.B) {
	over(b, func(r *rand.Rand) func() uint64 { return rand.NewZipf(r, 1.1, 1, keys-1).Uint64 })
}

func BenchmarkUniform(b *testing.B) {
	over(b, func(r *rand.Rand) func() uint64 { return func() uint64 { return r.Uint64N(keys) } })
}

// BenchmarkFill is of a million keys that come one after the other.
func BenchmarkFill(b *testing.B) {
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprint("user:", i)
	}
	for b.Loop() {
		l := limiter(b, rules[0].rule, 1)
		for _, key := range names {
			_, _ = l.Allow(context.Background(), key)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/key")
}

// over asks for a million keys, all of which the store knows, and reports the
// bytes of each beside the time.
func over(b *testing.B, draw func(*rand.Rand) func() uint64) {
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprint("user:", i)
	}
	for _, r := range rules[:2] {
		b.Run(r.name, func(b *testing.B) {
			begin := heap()
			l := limiter(b, r.rule, 1)
			for _, key := range names {
				_, _ = l.Allow(context.Background(), key)
			}
			per := float64(heap()-begin) / keys
			ask(b, l, names, draw)
			b.ReportMetric(per, "B/key")
		})
	}
}

// ask calls in parallel for keys that were drawn beforehand.
func ask(b *testing.B, l *headgate.Limiter, names []string, draw func(*rand.Rand) func() uint64) {
	const drawn = 1 << 20
	order := make([]uint32, drawn)
	next := draw(rand.New(rand.NewPCG(1, 2)))
	for i := range order {
		order[i] = uint32(next())
	}
	var from atomic.Uint32
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		ctx := context.Background()
		for i := from.Add(drawn / 2); pb.Next(); i++ {
			if _, err := l.Allow(ctx, names[order[i%drawn]]); err != nil {
				b.Error(err)
			}
		}
	})
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkSave is of a million keys, to a file and from it.
func BenchmarkSave(b *testing.B) {
	for _, r := range rules[:2] {
		b.Run(r.name, func(b *testing.B) {
			name := filepath.Join(b.TempDir(), "counts")
			s := memory.New(&memory.Options{File: name, Every: time.Hour, MaxKeys: 2 * keys})
			fillWith(b, s, r.rule)
			for b.Loop() {
				require.NoError(b, s.Save(io.Discard))
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/save")
			require.NoError(b, s.Close())
			st := s.Stats().File
			b.ReportMetric(st.Took.Seconds(), "s/write")
			b.ReportMetric(float64(st.Held.Microseconds()), "held-µs")
			b.ReportMetric(float64(st.Bytes)/keys, "B/key")
			begin := time.Now()
			s = memory.New(&memory.Options{File: name, Every: time.Hour, MaxKeys: 2 * keys})
			b.ReportMetric(time.Since(begin).Seconds(), "s/New")
			require.Equal(b, keys, s.Len())
			require.NoError(b, s.Close())
		})
	}
}

func fillWith(b *testing.B, s *memory.Store, rule algo.Algorithm) *headgate.Limiter {
	b.Helper()
	l, err := headgate.New(s, []headgate.Policy{{Name: "quota", Algorithm: rule, OnFailure: headgate.FailClosed}}, nil)
	require.NoError(b, err)
	for i := range keys {
		_, err := l.Allow(context.Background(), fmt.Sprint("user:", i))
		require.NoError(b, err)
	}
	return l
}

// BenchmarkCallsDuringSave is of one caller of a million keys, with and without a Save on another
// core all the time.
func BenchmarkCallsDuringSave(b *testing.B) {
	for _, saves := range []bool{false, true} {
		b.Run(fmt.Sprint("saves=", saves), func(b *testing.B) {
			s := memory.New(&memory.Options{MaxKeys: 2 * keys})
			l := fillWith(b, s, rules[0].rule)
			names := make([]string, 1<<16)
			for i := range names {
				names[i] = fmt.Sprint("user:", rand.IntN(keys))
			}
			var stop atomic.Bool
			var ended sync.WaitGroup
			ended.Add(1)
			go func() {
				defer ended.Done()
				for saves && !stop.Load() {
					_ = s.Save(io.Discard)
				}
			}()
			b.ResetTimer()
			for i := range b.N {
				_, _ = l.Allow(context.Background(), names[i%len(names)])
			}
			b.StopTimer()
			stop.Store(true)
			ended.Wait()
		})
	}
}
