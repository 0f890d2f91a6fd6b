package memory

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// settable returns a store whose clock the test sets.
func settable(maxKeys int) (s *Store, now *time.Time) {
	at := time.Unix(1_745_000_000, 0).Truncate(24 * time.Hour)
	return New(&Options{MaxKeys: maxKeys, Now: func() time.Time { return at }}), &at
}

func takes(t *testing.T, s *Store, key string, ps ...backend.Policy) bool {
	t.Helper()
	return ask(t, s, backend.Take, backend.Group{Key: key, Policies: ps, Cost: 1}).Allowed
}

// TestAfterAFlood: new keys are let in while there is room, though the overflow
// is spent until the day ends. While there is none, all keys that are
// new get one limit together.
func TestAfterAFlood(t *testing.T) {
	redistest.Plain(t)
	const maxKeys, limit = 10_000, 100
	s, now := settable(maxKeys)
	day := now.Add(24 * time.Hour)
	ps := []backend.Policy{by("second", algo.TokenBucket(algo.PerSecond(1), limit)), by("day", algo.FixedWindow(algo.PerDay(limit)))}
	passed := 0
	for i := range 50_000 {
		*now = now.Add(40 * time.Microsecond)
		if takes(t, s, fmt.Sprint("flood", i), ps...) {
			passed++
		}
	}
	inUse := func() (n int) { // records that are not idle
		for i := range s.stripes {
			for _, r := range s.stripes[i].mu.records.slots {
				if r.until > now.UnixMicro() {
					n++
				}
			}
		}
		return n
	}
	require.Equal(t, maxKeys, s.Len())
	users := 0
	for hour := 0; now.Before(day.Add(-2 * time.Hour)); hour++ {
		*now = now.Add(time.Hour)
		room := inUse() <= maxKeys-200*len(ps)
		for i := range 200 {
			if takes(t, s, fmt.Sprint("user", hour, "-", i), ps...) {
				users++
			} else {
				require.False(t, room, "user %d in hour %d", i, hour)
			}
		}
	}
	require.Greater(t, users, 1500)
	require.LessOrEqual(t, passed+users, maxKeys+limit, "each record is of a key, and the others got one limit")
	*now = day.Add(time.Hour) // records stay for a 64th longer
	for i := range 2000 {
		require.True(t, takes(t, s, fmt.Sprint("new", i), ps...), "once the flood's records are idle")
	}
	require.LessOrEqual(t, s.Len(), maxKeys)
	sound(t, s)
}

// TestOneLimitMore: whatever room comes and goes, what keys get beyond their
// own counts is one limit for all of them.
func TestOneLimitMore(t *testing.T) {
	const maxKeys, limit = 50, 5
	s, now := settable(maxKeys)
	long, short := by("p", algo.FixedWindow(algo.PerDay(limit))), by("short", algo.FixedWindow(algo.PerSecond(1)))
	passed := map[string]int{}
	for i := range 20_000 {
		*now = now.Add(time.Millisecond)
		takes(t, s, fmt.Sprint("short", i%100), short)
		if key := fmt.Sprint(i * 7 % 40); takes(t, s, key, long) {
			passed[key]++
		}
	}
	beyond := 0
	for _, n := range passed {
		beyond += max(0, n-limit)
	}
	require.NotEmpty(t, passed)
	require.LessOrEqual(t, beyond, limit)
}

// TestIdleKeysMakeRoomAtOnce, to the last of them, however few the store keeps.
func TestIdleKeysMakeRoomAtOnce(t *testing.T) {
	p := by("p", algo.FixedWindow(algo.PerSecond(1)))
	for _, maxKeys := range []int{1, 2, 3, 10, 31, 32, 33, 63, 64, 100, 128, 1000, redistest.Steps(5_000, 100_000)} {
		s, now := settable(maxKeys)
		for round := range 3 {
			for i := range maxKeys {
				require.True(t, takes(t, s, fmt.Sprint(round, " ", i), p), "key %d of %d in round %d", i, maxKeys, round)
			}
			require.Equal(t, maxKeys, s.Len())
			*now = now.Add(2 * time.Second)
		}
		sound(t, s)
	}
}

// TestOverflowRecordsLeave, those of many policies, within twice their
// period, while another key is called. Then a new key's call takes no lock but
// its stripe's.
func TestOverflowRecordsLeave(t *testing.T) {
	redistest.Plain(t)
	policies := redistest.Steps(5_000, 100_000)
	s, now := settable(1)
	own := by("own", algo.FixedWindow(algo.PerDay(1_000_000_000)))
	require.True(t, takes(t, s, "own", own))
	for i := range policies {
		require.True(t, takes(t, s, "new", by(fmt.Sprint("p", i), algo.FixedWindow(algo.PerMinute(1)))))
	}
	require.Equal(t, policies, overflowing(s))
	*now = now.Add(90 * time.Second)
	for i := 0; overflowing(s) > 0; i++ {
		require.Less(t, i, 20*policies)
		require.True(t, takes(t, s, "own", own))
	}
	s.maxKeys = 2
	s.overflow.mu.Lock()
	require.True(t, takes(t, s, "new", own))
}

func overflowing(s *Store) (records int) { return s.overflow.mu.records.live }

// TestTheOverflowCountsByIdentity: algorithms that differ under one name count
// apart, those that agree count together, of every kind.
func TestTheOverflowCountsByIdentity(t *testing.T) {
	s, _ := settable(1)
	require.True(t, takes(t, s, "own", by("own", kinds[0])))
	for i, a := range slow(3) {
		for range 3 {
			require.True(t, takes(t, s, "x", by("p", a)), "%d", i)
		}
		require.False(t, takes(t, s, "y", by("p", a)), "%d", i)
	}
	month := 30 * 24 * time.Hour
	for i, a := range []algo.Algorithm{
		algo.FixedWindow(algo.Per(3, month)), algo.SlidingWindow(algo.Per(3, month)),
		algo.BucketedWindow(algo.Per(3, month), 10), algo.BucketedWindow(algo.Per(3, algo.MaxPeriod), 11), algo.SlidingLog(algo.Per(3, month)),
	} {
		require.True(t, takes(t, s, "z", by("p", a)), "another period or shape: %d", i)
	}
	require.False(t, takes(t, s, "z", by("p", algo.TokenBucket(algo.Per(3, algo.MaxPeriod), 3))), "a TokenBucket's level does not depend on its numbers")
	require.Equal(t, 1, s.Len())
	sound(t, s)
}

// TestDeniedOverflowRecordStays: what denied a call stays for as long as it
// counts by that call's numbers, not only by those that it was stored by.
func TestDeniedOverflowRecordStays(t *testing.T) {
	s, now := settable(1)
	require.True(t, takes(t, s, "own", by("own", slow(1)[0])))
	fast, slowly := by("p", algo.TokenBucket(algo.PerSecond(1000), 10)), by("p", algo.TokenBucket(algo.PerHour(1), 10))
	for range 10 {
		require.True(t, takes(t, s, "a", fast))
	}
	for range 1000 {
		require.False(t, takes(t, s, "b", slowly))
		*now = now.Add(time.Millisecond)
	}
}

// TestTheOverflowsInstant: a call that read the clock before another one's
// decision in the overflow, and locks after it, decides at the later instant.
func TestTheOverflowsInstant(t *testing.T) {
	for _, a := range []algo.Algorithm{
		algo.FixedWindow(algo.PerSecond(100)), algo.SlidingWindow(algo.PerSecond(100)), algo.TokenBucket(algo.PerSecond(100), 100),
		algo.BucketedWindow(algo.PerSecond(100), 10), algo.SlidingLog(algo.PerSecond(100)),
	} {
		s := New(&Options{MaxKeys: 4096}) // of many stripes, so that the keys lie in different ones
		for i := range 4096 {
			require.True(t, takes(t, s, fmt.Sprint("own", i), by("own", slow(1)[0])))
		}
		g := backend.Group{Key: "a", Policies: []backend.Policy{by("p", a)}, Cost: 50}
		stripe := func() *stripe { return &s.stripes[s.stripeAt(s.hash(&g))] }
		s.clock.epoch += time.Hour.Microseconds()
		first := stripe()
		require.True(t, ask(t, s, backend.Take, g).Allowed)
		s.clock.epoch -= time.Hour.Microseconds()
		for g.Key = "b"; stripe() == first; g.Key += "b" {
		}
		require.Equal(t, int64(100), ask(t, s, backend.Take, g).Used, a.String())
		g.Key = "c"
		require.Equal(t, int64(100), ask(t, s, backend.Peek, g).Used, "of another stripe: %v", &a)
	}
}

// TestExtendInTheOverflow: where the overflow's instant is later than the call's, a slot
// and its lease end together.
func TestExtendInTheOverflow(t *testing.T) {
	s := New(&Options{MaxKeys: 4096}) // of many stripes, so that the keys lie in different ones
	for i := range 4096 {
		require.True(t, takes(t, s, fmt.Sprint("own", i), by("own", slow(1)[0])))
	}
	g := backend.Group{Key: "a", Policies: []backend.Policy{by("run", algo.InFlight(1))}, Cost: 1}
	first := s.stripeAt(s.hash(&g))
	g.Lease = &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute}
	do := func(op backend.Op) {
		require.NoError(t, s.Do(context.Background(), &backend.Request{Op: op, Group: g}, new(backend.Decision)))
	}
	do(backend.Reserve)
	require.Equal(t, int64(1), ask(t, s, backend.Peek, g).Used)
	s.clock.epoch += time.Second.Microseconds()
	for g.Key = "b"; s.stripeAt(s.hash(&g)) == first; g.Key += "b" {
	}
	ask(t, s, backend.Peek, g)
	s.clock.epoch -= time.Second.Microseconds()
	g.Key = "a"
	do(backend.Extend)
	do(backend.Settle)
	require.Zero(t, ask(t, s, backend.Peek, g).Used)
}

// TestAPeekMakesRoomAsATakeDoes.
func TestAPeekMakesRoomAsATakeDoes(t *testing.T) {
	s, now := settable(1)
	p := by("p", algo.FixedWindow(algo.PerSecond(1)))
	require.True(t, takes(t, s, "own", p))
	require.True(t, takes(t, s, "new", p))
	g := backend.Group{Key: "new", Policies: []backend.Policy{p}, Cost: 1}
	require.False(t, ask(t, s, backend.Peek, g).Allowed, "the overflow's count is spent")
	*now = now.Add(2 * time.Second)
	require.True(t, ask(t, s, backend.Peek, g).Allowed)
	require.Zero(t, s.Len())
	require.NoError(t, s.Do(context.Background(), &backend.Request{Op: backend.Reset, Group: g}, new(backend.Decision)))
}

// TestSearchesForRoomAreBounded: no call looks at all records of a large store,
// though nothing is known of when they will be idle.
func TestSearchesForRoomAreBounded(t *testing.T) {
	const maxKeys = 3 * searchLooks
	s, _ := settable(maxKeys)
	p := by("day", algo.FixedWindow(algo.PerDay(1)))
	for i := range maxKeys {
		takes(t, s, fmt.Sprint(i), p)
	}
	require.Equal(t, maxKeys, s.Len())
	for i := range s.stripes {
		s.stripes[i].idleFrom.Store(0)
	}
	takes(t, s, "new", p)
	left := 0
	for i := range s.stripes {
		if s.stripes[i].idleFrom.Load() == 0 {
			left++
		}
	}
	require.Greater(t, left, len(s.stripes)/2)
}

// TestStatesOfASharedSettlement: the settlement of an unresolved lease records in the
// shared count while the store is full. For its states the overflow is locked again, which
// sweeps it again: what is idle leaves.
func TestStatesOfASharedSettlement(t *testing.T) {
	s, now := settable(1)
	require.True(t, takes(t, s, "own", by("own", algo.FixedWindow(algo.PerDay(1)))))
	require.True(t, takes(t, s, "late", by("short", algo.FixedWindow(algo.PerSecond(1)))))
	*now = now.Add(2 * time.Second)
	l := &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute, Unresolved: true, Actual: []int64{3}}
	list := []backend.Policy{by("p", algo.FixedWindow(algo.PerDay(10)))}
	r := backend.Request{Op: backend.Settle, Group: backend.Group{Lease: l, Key: "late", Policies: list, Each: make([]backend.State, 1)}}
	require.NoError(t, s.Do(context.Background(), &r, new(backend.Decision)))
	require.EqualValues(t, 3, r.Each[0].Used)
	require.Equal(t, 1, overflowing(s))
	require.True(t, s.overflow.mu.TryLock())
	s.overflow.mu.Unlock()
	sound(t, s)
}
