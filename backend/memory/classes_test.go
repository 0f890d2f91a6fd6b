package memory

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

func ofClass(name string) backend.Policy {
	return backend.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(1)), Class: name}
}

// TestFloods: one flood takes half of the counts, and two a third each. The keys of another
// class have counts of their own, and those of a flood share one.
func TestFloods(t *testing.T) {
	redistest.Plain(t)
	const maxKeys = 9_000
	for _, c := range []struct {
		floods int
		most   int64
	}{{1, maxKeys / 2}, {2, maxKeys / 3}, {8, maxKeys / 9}} {
		s, _ := settable(maxKeys)
		passed := make([]int64, c.floods)
		for i := range 3 * maxKeys {
			for f := range c.floods {
				if takes(t, s, fmt.Sprint(f, "flood", i), ofClass(fmt.Sprint("flood", f))) {
					passed[f]++
				}
			}
		}
		for f := range c.floods {
			require.InDelta(t, c.most, s.classes.of(fmt.Sprint("flood", f), &s.secrets[ofPolicies]).kept.Load(), 2)
			require.InDelta(t, c.most+1, passed[f], 2, "and one by the shared count")
		}
		for i := range 100 {
			require.True(t, takes(t, s, fmt.Sprint("user", i), ofClass("users")), i)
			require.False(t, takes(t, s, fmt.Sprint("user", i), ofClass("users")), i)
			require.True(t, takes(t, s, fmt.Sprint("plain", i), ofClass("")), i)
		}
		require.Len(t, s.Stats().Classes, c.floods)
		sound(t, s)
	}
}

// TestWithoutClasses: keys without a class have the whole store.
func TestWithoutClasses(t *testing.T) {
	s, _ := settable(1000)
	for i := range 1000 {
		require.True(t, takes(t, s, fmt.Sprint(i), ofClass("")))
	}
	require.Equal(t, Stats{Counts: 1000, MaxCounts: 1000}, s.Stats())
	takes(t, s, "one more", ofClass(""))
	require.Equal(t, Stats{Counts: 1000, MaxCounts: 1000, Shared: 1, Classes: []ClassStats{{"", 1000, 1}}}, s.Stats())
}

// TestRandomClasses calls with all operations while the store is full and classes come and
// go: the numbers of each class stay right.
func TestRandomClasses(t *testing.T) {
	redistest.Plain(t)
	r := rand.New(rand.NewPCG(61, 1))
	s, now := settable(200)
	for i := range redistest.Steps(20_000, 1_000_000) {
		*now = now.Add(time.Duration(r.IntN(100)) * time.Millisecond)
		var ps []backend.Policy
		for j := range 1 + r.IntN(3) {
			ps = append(ps, backend.Policy{Name: fmt.Sprint("p", j), Class: []string{"", "a", "b", "c"}[r.IntN(4)],
				Algorithm: []algo.Algorithm{algo.FixedWindow(algo.PerSecond(2)), algo.TokenBucket(algo.PerSecond(1), 3), algo.SlidingLog(algo.PerMinute(3))}[j]})
		}
		g := backend.Group{Key: fmt.Sprint(r.IntN(300)), Policies: ps, Cost: 1}
		switch r.IntN(8) {
		case 0:
			ask(t, s, backend.Peek, g)
		case 1:
			ask(t, s, backend.Record, g)
		case 2:
			_ = s.Do(t.Context(), &backend.Request{Op: backend.Reset, Group: g}, &backend.Decision{})
		case 3:
			other := g
			other.Key += "and"
			_ = s.Do(t.Context(), &backend.Request{Op: backend.Take, Group: g, And: []backend.Group{other}}, &backend.Decision{})
		default:
			ask(t, s, backend.Take, g)
		}
		if i%1000 == 0 {
			sound(t, s)
		}
	}
	require.Positive(t, s.Stats().Shared)
	sound(t, s)
}

// TestClassOfALease: what a settle charges above the estimate of a key that shares a count is
// charged to its class.
func TestClassOfALease(t *testing.T) {
	s, _ := settable(2)
	p := backend.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(10)), Class: "a"}
	require.True(t, takes(t, s, "first", p))
	lease := func(op backend.Op, actual int64) {
		t.Helper()
		req := backend.Request{Op: op, Group: backend.Group{Key: "second", Policies: []backend.Policy{p}, Cost: 2,
			Lease: &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute, Attempt: backend.LeaseID{2}, Actual: []int64{actual}}}}
		require.NoError(t, s.Do(t.Context(), &req, &backend.Decision{}))
	}
	lease(backend.Reserve, 0)
	lease(backend.Settle, 7)
	require.EqualValues(t, 7, ask(t, s, backend.Peek, backend.Group{Key: "third", Policies: []backend.Policy{p}, Cost: 1}).Used)
	other := p
	other.Class = "b"
	require.EqualValues(t, 0, ask(t, s, backend.Peek, backend.Group{Key: "third", Policies: []backend.Policy{other}, Cost: 1}).Used)
	sound(t, s)
}

// TestManyClasses: there may be more names than classes.
func TestManyClasses(t *testing.T) {
	s, _ := settable(100)
	for i := range maxClasses + 3 {
		s.classes.of(fmt.Sprint(i), &s.secrets[ofPolicies])
	}
	last := s.classes.of(fmt.Sprint(maxClasses-1), &s.secrets[ofPolicies])
	require.EqualValues(t, maxClasses, last.index)
	require.Same(t, last, s.classes.of("one more", &s.secrets[ofPolicies]))
	require.True(t, takes(t, s, "k", ofClass("one more")))
	sound(t, s)
}
