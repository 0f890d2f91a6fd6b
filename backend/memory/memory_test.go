package memory_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/stretchr/testify/require"
)

// TestTwins holds the store equal to the plain Go rendering, though it drops
// what is unused.
func TestTwins(t *testing.T) {
	redistest.Plain(t)
	s := trace.Steady(7)
	store := memory.New(&memory.Options{Now: func() time.Time { return time.UnixMicro(s.Now()) }})
	model := trace.NewModel(s.Now)
	for i := range redistest.Steps(10_000, 100_000) {
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
	d, err := layer.Ask(context.Background(), s, backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Policies: ps, Cost: 1}})
	require.NoError(t, err)
	return d
}

// TestFull: new keys of a full store share one count, and no key loses its own.
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
		_, err := layer.Ask(context.Background(), s, backend.Request{Op: backend.Peek, Group: backend.Group{Key: fmt.Sprint(i), Policies: ps}})
		require.NoError(t, err)
	}
	require.Equal(t, 1, s.Len())
	require.Equal(t, int64(1), take(t, s, "late1", ps).Used)
}

// TestRoomAfterFull: a key that finds room begins empty, whatever it took of
// the shared count. Of that, all keys together take one limit.
func TestRoomAfterFull(t *testing.T) {
	now := time.UnixMicro(trace.Start)
	s := memory.New(&memory.Options{MaxKeys: 1, Now: func() time.Time { return now }})
	ps := policies(3)
	short := []backend.Policy{{Name: "short", Algorithm: algo.FixedWindow(algo.PerSecond(1)), OnFailure: backend.FailOpen}}
	take(t, s, "own", short)
	for range 3 {
		require.True(t, take(t, s, "late", ps).Allowed)
	}
	require.False(t, take(t, s, "late", ps).Allowed, "the shared count is spent")
	now = now.Add(2 * time.Second)
	for i := range int64(3) {
		require.Equal(t, i+1, take(t, s, "late", ps).Used, "a count of its own")
	}
	require.Equal(t, 1, s.Len())
	require.False(t, take(t, s, "late", ps).Allowed)
	require.False(t, take(t, s, "other", ps).Allowed, "the shared count is spent still")
}

// TestResetOfAFullStore: a key with a record of its own is unused after it. One
// that counts in the overflow can't be reset, and no count changes.
func TestResetOfAFullStore(t *testing.T) {
	s := memory.New(&memory.Options{MaxKeys: 2})
	ps := policies(3)
	for _, key := range []string{"a", "b", "late"} {
		for range 3 {
			require.True(t, take(t, s, key, ps).Allowed)
		}
		require.False(t, take(t, s, key, ps).Allowed)
	}
	reset := func(key string, ps []backend.Policy) error {
		_, err := layer.Ask(context.Background(), s, backend.Request{Op: backend.Reset, Group: backend.Group{Key: key, Policies: ps}})
		return err
	}
	both := append(policies(3), backend.Policy{Name: "other", Algorithm: algo.FixedWindow(algo.PerHour(10)), OnFailure: backend.FailOpen})
	require.True(t, take(t, s, "late", both[1:]).Allowed)
	require.ErrorIs(t, reset("late", ps), memory.ErrSharedCount)
	require.True(t, take(t, s, "b", both[1:]).Allowed)
	require.ErrorIs(t, reset("b", both), memory.ErrSharedCount, "one of two policies counts in the overflow")
	require.False(t, take(t, s, "b", ps).Allowed, "and the other is not reset either")

	require.NoError(t, reset("a", ps))
	require.Equal(t, int64(1), take(t, s, "a", ps).Used)
	require.False(t, take(t, s, "late", ps).Allowed)
}

// TestIdleKeysLeaveWhileOthersCall: also from stripes that nobody calls in.
func TestIdleKeysLeaveWhileOthersCall(t *testing.T) {
	now := time.UnixMicro(trace.Start)
	s := memory.New(&memory.Options{Now: func() time.Time { return now }})
	ps := policies(3)
	for i := range redistest.Steps(2_500, 10_000) {
		take(t, s, fmt.Sprint(i), ps)
	}
	now = now.Add(time.Hour)
	for range redistest.Steps(100_000, 400_000) {
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
