package memory_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/stretchr/testify/require"
)

// TestTwins holds the store equal to the plain Go rendering, though it drops
// what is as new.
func TestTwins(t *testing.T) {
	s := trace.Steady(7)
	store := memory.New(&memory.Options{Now: func() time.Time { return time.UnixMicro(s.Now()) }})
	model := trace.NewModel(s.Now)
	for i := range 100_000 {
		r := s.Next()
		want, got := trace.Ask(context.Background(), model, r), trace.Ask(context.Background(), store, r)
		require.NoError(t, trace.Same(want, got), "step %d at %d: %v %+v", i, s.Now(), r.Op, r.Group)
	}
}

func policies(limit int64) []backend.Policy {
	return []backend.Policy{{Name: "quota", Algorithm: algo.SlidingLog(algo.PerMinute(limit)), OnFailure: backend.FailOpen}}
}

func take(t *testing.T, s backend.Store, key string, ps []backend.Policy) backend.Decision {
	t.Helper()
	d, err := backend.Ask(context.Background(), s, backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Policies: ps, Cost: 1}})
	require.NoError(t, err)
	return d
}

// TestFull: new keys of a full store share one count, nobody's own count is
// lost, and a key that took from the shared count does not get it again when
// there is room.
func TestFull(t *testing.T) {
	now := time.UnixMicro(trace.Start)
	s := memory.New(&memory.Options{MaxKeys: 10, Now: func() time.Time { return now }})
	ps := policies(3)
	for i := range 10 {
		require.True(t, take(t, s, fmt.Sprint("own", i), ps).Allowed)
	}
	require.Equal(t, 10, s.Len())
	for i := range 3 {
		require.True(t, take(t, s, fmt.Sprint("late", i), ps).Allowed)
	}
	require.False(t, take(t, s, "late9", ps).Allowed, "the fourth of those that share")
	require.Equal(t, int64(2), take(t, s, "own1", ps).Used, "its own count")
	require.Equal(t, 10, s.Len())

	now = now.Add(59 * time.Second)
	take(t, s, "own1", ps)
	now = now.Add(2 * time.Second) // all but own1 are idle, and leave as others call
	for i := 0; s.Len() > 1 && i < 10_000; i++ {
		_, err := backend.Ask(context.Background(), s, backend.Request{Op: backend.Peek, Group: backend.Group{Key: fmt.Sprint(i), Policies: ps}})
		require.NoError(t, err)
	}
	require.Equal(t, 1, s.Len())
	require.Equal(t, int64(1), take(t, s, "late1", ps).Used)
}

// TestRoomAfterFull: a key with a fresh record keeps what it took from the
// shared count.
func TestRoomAfterFull(t *testing.T) {
	now := time.UnixMicro(trace.Start)
	s := memory.New(&memory.Options{MaxKeys: 1, Now: func() time.Time { return now }})
	ps := policies(3)
	short := []backend.Policy{{Name: "short", Algorithm: algo.FixedWindow(algo.PerSecond(1)), OnFailure: backend.FailOpen}}
	take(t, s, "own", short)
	for range 2 {
		require.True(t, take(t, s, "late", ps).Allowed)
	}
	now = now.Add(2 * time.Second)
	empties(t, s, ps)
	require.True(t, take(t, s, "late", ps).Allowed)
	require.Equal(t, 1, s.Len())
	require.False(t, take(t, s, "late", ps).Allowed, "the fourth")
}

// empties calls with other keys until the idle ones have left.
func empties(t *testing.T, s *memory.Store, ps []backend.Policy) {
	for i := 0; s.Len() > 0 && i < 100_000; i++ {
		_, err := backend.Ask(context.Background(), s, backend.Request{Op: backend.Peek, Group: backend.Group{Key: fmt.Sprint(i), Policies: ps}})
		require.NoError(t, err)
	}
	require.Zero(t, s.Len())
}

// TestResetOfAFullStore: a key that is reset is as new, though others share an
// overflow that is spent.
func TestResetOfAFullStore(t *testing.T) {
	s := memory.New(&memory.Options{MaxKeys: 2})
	ps := policies(3)
	for _, key := range []string{"a", "b", "late"} {
		for range 3 {
			require.True(t, take(t, s, key, ps).Allowed)
		}
		require.False(t, take(t, s, key, ps).Allowed)
	}
	d, err := backend.Ask(context.Background(), s, backend.Request{Op: backend.Reset, Group: backend.Group{Key: "a", Policies: ps}})
	require.NoError(t, err)
	require.Zero(t, d.Used)
	require.Equal(t, int64(1), take(t, s, "a", ps).Used)
	require.False(t, take(t, s, "late", ps).Allowed)
}

// TestIdleKeysLeaveWhileOthersCall: also from stripes that nobody calls in.
func TestIdleKeysLeaveWhileOthersCall(t *testing.T) {
	now := time.UnixMicro(trace.Start)
	s := memory.New(&memory.Options{Now: func() time.Time { return now }})
	ps := policies(3)
	for i := range 10_000 {
		take(t, s, fmt.Sprint(i), ps)
	}
	now = now.Add(time.Hour)
	for range 400_000 {
		take(t, s, "hot", ps)
	}
	require.Less(t, s.Len(), 100)
}

// TestLoweredRate: what denied a call stays for as long as it counts by that
// call's numbers, not only by those that it was stored by.
func TestLoweredRate(t *testing.T) {
	now := time.UnixMicro(trace.Start)
	s := memory.New(&memory.Options{Now: func() time.Time { return now }})
	of := func(l algo.Limit) []backend.Policy {
		return []backend.Policy{{Name: "p", Algorithm: algo.TokenBucket(l, 10), OnFailure: backend.FailOpen}}
	}
	for range 10 {
		require.True(t, take(t, s, "k", of(algo.PerSecond(100))).Allowed)
	}
	for range 1000 {
		require.False(t, take(t, s, "k", of(algo.PerHour(1))).Allowed)
		now = now.Add(time.Millisecond)
	}
}

// TestClocksBefore1970 count as 1970.
func TestClocksBefore1970(t *testing.T) {
	for _, now := range []time.Time{{}, time.Unix(-5, 0)} {
		s := memory.New(&memory.Options{Now: func() time.Time { return now }})
		for _, a := range []algo.Algorithm{algo.FixedWindow(algo.PerSecond(2)), algo.BucketedWindow(algo.PerSecond(2), 5), algo.SlidingLog(algo.PerSecond(2)), algo.TokenBucket(algo.PerSecond(2), 2), algo.SlidingWindow(algo.PerSecond(2))} {
			ps := []backend.Policy{{Name: "p", Algorithm: a, OnFailure: backend.FailOpen}}
			require.True(t, take(t, s, "k", ps).Allowed, a.String())
		}
	}
}

// TestFullRaces: callers of many new keys at once never get more than one
// limit out of the shared count.
func TestFullRaces(t *testing.T) {
	s := memory.New(&memory.Options{MaxKeys: 1})
	ps := policies(100)
	take(t, s, "own", ps)
	var passed [64]int
	var callers sync.WaitGroup
	for c := range passed {
		callers.Add(1)
		go func() {
			defer callers.Done()
			for i := range 50 {
				if take(t, s, fmt.Sprint(c, i), ps).Allowed {
					passed[c]++
				}
			}
		}()
	}
	callers.Wait()
	sum := 0
	for _, n := range passed {
		sum += n
	}
	require.Equal(t, 100, sum)
}

func TestOptions(t *testing.T) {
	var invalid *backend.InvalidError
	require.ErrorAs(t, memory.New(&memory.Options{MaxKeys: -1}).Check(policies(1)), &invalid)
	require.Equal(t, -1, invalid.Value)
}
