package memory

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slow are the kinds that hits decide, so slow that nothing comes back.
func slow(limit int64) []algo.Algorithm {
	l := algo.Per(limit, algo.MaxPeriod)
	return []algo.Algorithm{algo.FixedWindow(l), algo.SlidingWindow(l), algo.TokenBucket(algo.Per(1, algo.MaxPeriod), limit)}
}

func by(name string, a algo.Algorithm) backend.Policy {
	return backend.Policy{Name: name, Algorithm: a}
}

func ask(t *testing.T, s *Store, op backend.Op, g backend.Group) backend.Decision {
	t.Helper()
	d, err := backend.Ask(context.Background(), s, backend.Request{Op: op, Group: g})
	require.NoError(t, err)
	return d
}

// hit is what takes by a policy without the lock.
func hit(s *Store, p *backend.Policy) func(context.Context, string, int64, *backend.Decision) bool {
	h := s.Hits(p)
	return h.Take
}

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
		short := []backend.Policy{by("short", algo.FixedWindow(algo.Per(5, algo.MinPeriod)))}
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

// TestHitsAreExact: of many at once exactly the limit pass, and each is told
// another number, as if they had come one after the other; also amid takes by
// several policies, which are all or nothing.
func TestHitsAreExact(t *testing.T) {
	const limit, callers = 20_000, 8
	for _, a := range slow(limit) {
		s := New(&Options{MaxKeys: 500})
		one, two := []backend.Policy{by("quota", a)}, []backend.Policy{by("quota", a), by("few", slow(limit / 10)[0])}
		ask(t, s, backend.Take, backend.Group{Key: "k", Policies: two, Cost: 1})
		var told [callers][]int64
		amid(t, s, "k", func() {
			crowd(callers, func(i int) {
				for range limit/callers + 1000 {
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
		slices.Sort(all)
		few := ask(t, s, backend.Peek, backend.Group{Key: "k", Policies: two[1:]}).Used
		for ask(t, s, backend.Take, backend.Group{Key: "k", Policies: one, Cost: 1}).Allowed {
			all = append(all, -1)
		}
		require.Len(t, all, limit-1, a.String())
		require.Equal(t, len(slices.Compact(slices.DeleteFunc(slices.Clone(all), func(n int64) bool { return n < 0 }))),
			len(slices.DeleteFunc(all, func(n int64) bool { return n < 0 })), "numbers told twice")
		require.Equal(t, int64(limit/10), few, "what was denied by the one took from the other")
		sound(t, s)
	}
}

// TestEachRecordIsHit, also behind one with the same mark.
func TestEachRecordIsHit(t *testing.T) {
	s := New(nil)
	p := by("quota", slow(100)[2])
	for i := range 20_000 {
		ask(t, s, backend.Take, backend.Group{Key: fmt.Sprint("user:", i), Policies: []backend.Policy{p}, Cost: 1})
	}
	for i := range 20_000 {
		var d backend.Decision
		require.True(t, hit(s, &p)(context.Background(), fmt.Sprint("user:", i), 1, &d))
		require.Equal(t, int64(2), d.Used)
	}
}

// TestNames: other policies, parts and kinds have other names, all of which a
// record can tell.
func TestNames(t *testing.T) {
	s := New(nil)
	seen := map[uint64]bool{}
	for _, a := range kinds {
		for _, of := range [][2]string{{"", ""}, {"a", ""}, {"", "a"}, {"ab", "c"}, {"a", "bc"}, {"abc", ""}, {"a", "b"}, {"b", "a"}} {
			p := by(of[0], a)
			n := s.nameOf(&p, of[1])
			require.Equal(t, n, s.nameOf(&p, of[1]))
			w := []int64{head(n.tag(0), n.kind(), "key") | held, until(1<<52, n.rest())}
			require.Equal(t, a.Kind(), kindIn(w[tagWord]))
			require.Equal(t, len("key"), lenIn(w[tagWord]))
			require.GreaterOrEqual(t, resetAt(w[untilWord]), int64(1<<52))
			seen[uint64(tagIn(w))<<32|uint64(restIn(w[untilWord]))<<kindBits|uint64(a.Kind())] = true
		}
	}
	require.Len(t, seen, 8*len(kinds))
	for bit := 32 - restBits; bit < 64; bit++ {
		const n = name(0x9E3779B97F4A7C15)
		other := n ^ 1<<bit
		require.NotEqual(t, []int64{int64(n.tag(5)), n.rest()}, []int64{int64(other.tag(5)), other.rest()}, "bit %d", bit)
	}
}

// TestWhoseARecordIs: two that have one tag are told apart by all that is
// theirs. Tags of 32 bits are alike about once in a million keys.
func TestWhoseARecordIs(t *testing.T) {
	s := New(nil)
	token := algo.TokenBucket(algo.PerHour(10), 10)
	p, long := by("quota", token), strings.Repeat("k", inline+1)
	for _, key := range []string{"user:123", "user:1234567", "u", long} {
		g := backend.Group{Key: key, Sub: "part", Policies: []backend.Policy{p}, Cost: 1}
		ask(t, s, backend.Take, g)
		hash := s.hash(&g)
		m := &s.stripes[hash>>stripeShift].mu
		tag := s.nameOf(&p, g.Sub).tag(hash)
		is := func(key, sub, name string, a algo.Algorithm) bool {
			p := by(name, a)
			of := s.nameOf(&p, sub)
			table, _ := m.find(uint64(of.tag(uint64(tag))), key, of) // a hash that makes that tag
			return table != nil
		}
		assert.True(t, is(key, "part", "quota", token))
		assert.False(t, is(key[:len(key)-1]+"x", "part", "quota", token), "another key")
		assert.False(t, is("x"+key[1:], "part", "quota", token), "another key")
		assert.False(t, is(key, "", "quota", token), "the key itself")
		assert.False(t, is(key, "parf", "quota", token), "another part of the key")
		assert.False(t, is(key, "part", "quotb", token), "another policy")
		assert.False(t, is(key, "part", "quota", algo.FixedWindow(algo.PerHour(10))), "another algorithm")
	}
}

// TestWhoseAHitIs: the same of hits.
func TestWhoseAHitIs(t *testing.T) {
	s := New(nil)
	token := algo.TokenBucket(algo.PerHour(10), 10)
	p := by("quota", token)
	for _, key := range []string{"user:123", "user:1234567", "u", strings.Repeat("k", 40)} {
		g := backend.Group{Key: key, Policies: []backend.Policy{p}, Cost: 1}
		ask(t, s, backend.Take, g)
		hash := s.hash(&g)
		m := &s.stripes[hash>>stripeShift].mu
		tag := s.nameOf(&p, "").tag(hash)
		has := func(key, name string, a algo.Algorithm) bool {
			p := by(name, a)
			h := s.Hits(&p)
			w := h.seize(m, tag, key)
			if w != nil {
				release(&w[tagWord])
			}
			return w != nil
		}
		assert.True(t, has(key, "quota", token))
		assert.False(t, has(key[:len(key)-1]+"x", "quota", token), "another key")
		assert.False(t, has("x"+key[1:], "quota", token), "another key")
		assert.False(t, has(key, "quotb", token), "another policy")
		assert.False(t, has(key, "quota", algo.FixedWindow(algo.PerHour(10))), "another algorithm")
		g.Sub = "part"
		ask(t, s, backend.Take, g)
		hash = s.hash(&g)
		m = &s.stripes[hash>>stripeShift].mu
		tag = s.nameOf(&p, g.Sub).tag(hash)
		assert.False(t, has(key, "quota", token), "a part of the key")
	}
}

// TestHitsAmidResets: each reset frees one limit, and no more.
func TestHitsAmidResets(t *testing.T) {
	const limit, resets = 50, 300
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
		used := ask(t, s, backend.Peek, g).Used
		require.LessOrEqual(t, passed.Load(), int64(limit*(resets+1)))
		require.LessOrEqual(t, used, int64(limit))
		sound(t, s)
	}
}

// TestManyOnOneCore: callers that outnumber the cores, which one of them may
// lose while it owns the record.
func TestManyOnOneCore(t *testing.T) {
	for _, cores := range []int{1, 2} {
		before := runtime.GOMAXPROCS(cores)
		s := New(nil)
		g := backend.Group{Key: "k", Policies: []backend.Policy{by("quota", slow(1 << 30)[2])}, Cost: 1}
		crowd(64, func(int) {
			for range 3000 {
				ask(t, s, backend.Take, g)
			}
		})
		runtime.GOMAXPROCS(before)
		require.Equal(t, int64(64*3000), ask(t, s, backend.Peek, g).Used)
	}
}

// recordOf returns a key's record and its first word where nobody owns it.
func recordOf(t *testing.T, s *Store, g backend.Group) (w []int64, free int64, m *guarded) {
	t.Helper()
	hash := s.hash(&g)
	m = &s.stripes[hash>>stripeShift].mu
	of := s.nameOf(&g.Policies[0], g.Sub)
	tb, cell := m.find(hash, g.Key, of)
	require.NotNil(t, tb)
	w = tb.at(cell)
	return w, head(of.tag(hash), of.kind(), g.Key), m
}

// TestOwnerAway: while an owner has lost its core everybody waits for it, the
// sweep leaves its record, and then all is counted.
func TestOwnerAway(t *testing.T) {
	s := New(nil)
	g := backend.Group{Key: "k", Policies: []backend.Policy{by("quota", algo.FixedWindow(algo.Per(100, algo.MaxPeriod)))}, Cost: 1}
	ask(t, s, backend.Take, g)
	w, free, _ := recordOf(t, s, g)
	require.True(t, contend(&w[tagWord], free))
	require.False(t, idle(w, 1<<52))
	var ended atomic.Int64
	var callers sync.WaitGroup
	for _, op := range []backend.Op{backend.Take, backend.Peek, backend.Take, backend.Take} {
		callers.Add(1)
		go func() {
			defer callers.Done()
			ask(t, s, op, g)
			ended.Add(1)
		}()
	}
	for range 10_000 {
		runtime.Gosched()
	}
	require.Zero(t, ended.Load())
	release(&w[tagWord])
	callers.Wait()
	require.Equal(t, int64(4), ask(t, s, backend.Peek, g).Used)
}

// TestLateReading: who has read the clock and then lost its core for longer
// than a period meets what was taken since, by a hit or under the lock.
func TestLateReading(t *testing.T) {
	for _, a := range []algo.Algorithm{algo.FixedWindow(algo.PerSecond(100)), algo.SlidingWindow(algo.PerSecond(100)), algo.TokenBucket(algo.PerSecond(100), 100)} {
		s := New(nil)
		g := backend.Group{Key: "k", Policies: []backend.Policy{by("quota", a)}, Cost: 50}
		ask(t, s, backend.Take, g)
		s.clock.epoch -= time.Hour.Microseconds()
		var d backend.Decision
		require.True(t, hit(s, &g.Policies[0])(context.Background(), "k", 1, &d))
		require.Greater(t, d.Used, int64(50), a.String())
		_, _, m := recordOf(t, s, g)
		m.latest = 0
		require.Greater(t, ask(t, s, backend.Peek, g).Used, int64(50), a.String())
	}
}

// TestDeniedHitsWriteNothing.
func TestDeniedHitsWriteNothing(t *testing.T) {
	for _, a := range slow(5) {
		s := New(nil)
		g := backend.Group{Key: "k", Policies: []backend.Policy{by("quota", a)}, Cost: 5}
		ask(t, s, backend.Take, g)
		w, _, _ := recordOf(t, s, g)
		before := slices.Clone(w)
		for range 1000 {
			var d backend.Decision
			require.True(t, hit(s, &g.Policies[0])(context.Background(), "k", 1, &d))
			require.Positive(t, d.RetryAfter)
		}
		require.Equal(t, before, w)
		require.GreaterOrEqual(t, resetAt(w[untilWord]), w[header], "kept for as long as it counts")
	}
}

// TestHitsKeepTheKey for as long as what they took counts.
func TestHitsKeepTheKey(t *testing.T) {
	s := New(nil)
	g := backend.Group{Key: "k", Policies: []backend.Policy{by("quota", algo.TokenBucket(algo.PerHour(1), 100))}, Cost: 1}
	ask(t, s, backend.Take, g)
	w, _, _ := recordOf(t, s, g)
	for range 90 {
		var d backend.Decision
		before := s.before()
		require.True(t, hit(s, &g.Policies[0])(context.Background(), "k", 1, &d))
		require.GreaterOrEqual(t, resetAt(w[untilWord]), before+d.ResetAfter.Microseconds())
	}
}

// TestHitsSweep: what is idle leaves while there are hits alone, and where
// nothing is they look for it seldom.
func TestHitsSweep(t *testing.T) {
	const keys = 10_000
	s := New(nil)
	long, short := by("long", slow(1 << 30)[0]), by("short", algo.FixedWindow(algo.Per(5, time.Hour)))
	fill := func(p backend.Policy) {
		for i := range keys {
			ask(t, s, backend.Take, backend.Group{Key: fmt.Sprint(i), Policies: []backend.Policy{p}, Cost: 1})
		}
	}
	swept := func(hits int) int {
		before := s.hand.Load()
		for range hits {
			var d backend.Decision
			require.True(t, hit(s, &long)(context.Background(), "0", 1, &d))
		}
		return int(s.hand.Load() - before)
	}
	seldom := func() {
		n := swept(50 * keys)
		require.Greater(t, n, 50*keys>>seldomBits/2)
		require.Less(t, n, 50*keys>>seldomBits*2)
	}
	fill(long)
	swept(keys)
	seldom()
	fill(short)
	s.clock.epoch += 2 * time.Hour.Microseconds()
	swept(10 * keys)
	require.Less(t, s.Len(), keys+keys/50)
	for s.Len() > keys {
		swept(keys)
	}
	seldom()
	sound(t, s)
}

// TestAHeldStripeTellsNothing of whether there are idle records.
func TestAHeldStripeTellsNothing(t *testing.T) {
	s := New(nil)
	s.idle.Store(true)
	for i := range s.stripes {
		s.stripes[i].mu.Lock()
	}
	s.sweepAnother(0, some)
	require.True(t, s.idle.Load())
}
