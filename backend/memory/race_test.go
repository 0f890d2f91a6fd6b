package memory

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// crowd calls f from n goroutines at once, until each has returned.
func crowd(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Add(1)
		go func() {
			defer all.Done()
			f(i)
		}()
	}
	all.Wait()
}

// amid runs f while others grow the tables, fill the store and let keys go, in
// the stripe of the key too.
func amid(t *testing.T, s *Store, key string, f func()) {
	var stop atomic.Bool
	var others sync.WaitGroup
	others.Add(1)
	go func() {
		defer others.Done()
		short := []backend.Policy{by("short", algo.FixedWindow(algo.Per(5, rule.MinPeriod)))}
		for i := 0; !stop.Load(); i++ {
			g := backend.Group{Key: fmt.Sprint("other", i), Policies: short, Cost: 1}
			if i%4 == 0 {
				g.Key, g.Policies = key, []backend.Policy{by(fmt.Sprint("p", i%64), short[0].Algorithm)}
			}
			ask(t, s, backend.Take, g)
			ask(t, s, backend.Peek, g)
		}
	}()
	f()
	stop.Store(true)
	others.Wait()
}

// TestExact: of 64 callers at once exactly the limit pass, and each is told
// another number, as if they had come one after the other; also amid takes by
// several policies, which are all or nothing. Callers outnumber the cores.
func TestExact(t *testing.T) {
	const limit, callers = 6400, 64
	for _, a := range slow(limit) {
		s := New(&Options{MaxKeys: 500})
		one, two := []backend.Policy{by("quota", a)}, []backend.Policy{by("quota", a), by("few", slow(limit / 10)[0])}
		ask(t, s, backend.Take, backend.Group{Key: "k", Policies: two, Cost: 1})
		var told [callers][]int64
		amid(t, s, "k", func() {
			crowd(callers, func(i int) {
				for range limit/callers + 20 {
					g := backend.Group{Key: "k", Policies: one, Cost: 1}
					if i%2 == 1 {
						g.Policies, g.Each = two, make([]backend.State, 2)
					}
					d := ask(t, s, backend.Take, g)
					if d.Allowed && g.Each != nil {
						d.Remaining = g.Each[0].Remaining
					}
					if d.Allowed {
						told[i] = append(told[i], d.Remaining)
					}
				}
			})
		})
		all := slices.Concat(told[:]...)
		few := ask(t, s, backend.Peek, backend.Group{Key: "k", Policies: two[1:]}).Used
		for ask(t, s, backend.Take, backend.Group{Key: "k", Policies: one, Cost: 1}).Allowed {
			all = append(all, -1-int64(len(all)))
		}
		require.Len(t, all, limit-1, a.String())
		slices.Sort(all)
		require.Len(t, slices.Compact(all), limit-1, "numbers told twice")
		require.Equal(t, int64(limit/10), few, "what was denied by the one took from the other")
		sound(t, s)
	}
}

// TestResetsAmidTakes: each reset frees one limit, and no more.
func TestResetsAmidTakes(t *testing.T) {
	const limit, resets = 50, 100
	for _, a := range slow(limit) {
		s := New(nil)
		g := backend.Group{Key: "k", Policies: []backend.Policy{by("quota", a)}, Cost: 1}
		var passed atomic.Int64
		var over atomic.Bool
		amid(t, s, "k", func() {
			crowd(4, func(i int) {
				for n := 0; i == 0 && n < resets; n++ {
					ask(t, s, backend.Reset, g)
					for range 20 {
						runtime.Gosched()
					}
				}
				for i == 0 && over.CompareAndSwap(false, true) || !over.Load() {
					if ask(t, s, backend.Take, g).Allowed {
						passed.Add(1)
					}
				}
			})
		})
		require.LessOrEqual(t, passed.Load(), int64(limit*(resets+1)))
		require.LessOrEqual(t, ask(t, s, backend.Peek, g).Used, int64(limit))
		sound(t, s)
	}
}

// TestManyKeysAtOnce: 64 callers of new keys, old keys and shared counts, that
// come and go. No key passes its limit, but for one limit that the keys of a
// full store share.
func TestManyKeysAtOnce(t *testing.T) {
	const limit, keys, callers = 20, 100, 64
	s := New(&Options{MaxKeys: keys / 2})
	p := []backend.Policy{by("quota", slow(limit)[0])}
	var passed [keys]atomic.Int64
	amid(t, s, "k", func() {
		crowd(callers, func(i int) {
			for n := range 10 * keys {
				key := (i*31 + n*17) % keys
				if ask(t, s, backend.Take, backend.Group{Key: fmt.Sprint(key), Policies: p, Cost: 1}).Allowed {
					passed[key].Add(1)
				}
			}
		})
	})
	beyond := int64(0)
	for i := range passed {
		beyond += max(0, passed[i].Load()-limit)
	}
	require.LessOrEqual(t, beyond, int64(limit))
	require.LessOrEqual(t, s.Len(), keys/2)
	sound(t, s)
}

// TestNewestInstant: a call that read the clock, and then waited for the lock
// for longer than a period, decides at the instant of the decision before it.
func TestNewestInstant(t *testing.T) {
	for _, a := range []algo.Algorithm{
		algo.FixedWindow(algo.PerSecond(100)), algo.SlidingWindow(algo.PerSecond(100)), algo.TokenBucket(algo.PerSecond(100), 100),
		algo.BucketedWindow(algo.PerSecond(100), 10), algo.SlidingLog(algo.PerSecond(100)),
	} {
		s := New(nil)
		g := backend.Group{Key: "k", Policies: []backend.Policy{by("quota", a)}, Cost: 50}
		ask(t, s, backend.Take, g)
		s.clock.epoch -= time.Hour.Microseconds()
		require.Equal(t, int64(100), ask(t, s, backend.Take, g).Used, a.String())
		require.Equal(t, int64(100), ask(t, s, backend.Peek, g).Used, a.String())
	}
}

// TestSecondLook: a record that a sweep finds idle stays for another round, in
// which a call of its key keeps it. One that is found idle twice leaves.
func TestSecondLook(t *testing.T) {
	s, now := settable(1000)
	st, p := &s.stripes[0], []backend.Policy{by("p", algo.FixedWindow(algo.PerSecond(5)))}
	for i := 0; st.mu.records.live == 0; i++ {
		ask(t, s, backend.Take, backend.Group{Key: fmt.Sprint(100 + i), Policies: p, Cost: 1})
	}
	g := backend.Group{Policies: p, Cost: 1}
	for key := 100; key < 1000 && g.Key == ""; key++ {
		if h := s.hash(&backend.Group{Key: fmt.Sprint(key)}); &s.stripes[s.stripeAt(h)] == st {
			g.Key = fmt.Sprint(key)
		}
	}
	sweep := func() int {
		removed := st.sweep(now.UnixMicro(), 1000)
		s.removed(removed)
		return removed
	}
	for range 5 {
		require.Zero(t, sweep(), "in use")
		*now = now.Add(2 * time.Second)
		require.Zero(t, sweep(), "idle, for the first time")
		require.True(t, ask(t, s, backend.Take, g).Allowed)
		require.Zero(t, sweep(), "in use again")
	}
	*now = now.Add(2 * time.Second)
	require.Zero(t, sweep())
	require.Equal(t, 1, sweep())
	sound(t, s)
}

// TestABucketThatRefillsFast keeps its record between calls.
func TestABucketThatRefillsFast(t *testing.T) {
	s, now := settable(0)
	p := []backend.Policy{by("p", algo.TokenBucket(algo.PerSecond(100), 100))}
	for range 10 {
		for i := range 1000 {
			ask(t, s, backend.Take, backend.Group{Key: fmt.Sprint(i), Policies: p, Cost: 1})
			*now = now.Add(time.Millisecond)
		}
		require.Greater(t, s.Len(), 980, "called again after a second, idle since 0.99")
	}
}

// TestOneCore: callers that outnumber one core.
func TestOneCore(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := New(nil)
	g := backend.Group{Key: "k", Policies: []backend.Policy{by("quota", slow(1000)[2])}, Cost: 1}
	var passed atomic.Int64
	crowd(8, func(int) {
		for range 500 {
			var d backend.Decision
			r := backend.Request{Op: backend.Take, Group: g}
			if s.Do(context.Background(), &r, &d) == nil && d.Allowed {
				passed.Add(1)
			}
		}
	})
	require.Equal(t, int64(1000), passed.Load())
}
