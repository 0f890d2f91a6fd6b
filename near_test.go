//go:build go1.25

package headgate_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// nearEvents are those with Near.
// TestNearBesideAFailedKey: each key goes by its own decision, though that of another binds.
func TestNearBesideAFailedKey(t *testing.T) {
	seen, s := &events{}, newLossy()
	s.lose(onAll, 0)
	opts := &headgate.Options{Observer: seen.observe}
	user, org := limiter(t, memory.New(nil), opts, daily("p", 10)), limiter(t, s, opts, daily("p", 10))
	_, err := headgate.All(context.Background(), user.Part("user", 8), org.Part("org", 1))
	require.NoError(t, err)
	require.Len(t, nearEvents(seen), 1)
}

// TestNearOfAnUndecidedReservation: a Commit that charges what no event has had may raise the
// count to the share.
func TestNearOfAnUndecidedReservation(t *testing.T) {
	for _, reply := range []bool{false, true} {
		ctx, seen, s := context.Background(), &events{}, newLossy()
		l := limiter(t, s, &headgate.Options{Observer: seen.observe}, daily("p", 10))
		_, err := l.AllowN(ctx, "k", 7)
		require.NoError(t, err)
		if s.lose(onReserve, 0); reply {
			s.lose(0, onReserve)
		}
		r, d, err := l.Reserve(ctx, headgate.Call{Key: "k", Costs: []int64{2}})
		require.NoError(t, err)
		require.Equal(t, headgate.FromFailOpen, d.Source)
		s.lose(0, 0)
		require.NoError(t, r.Commit(ctx, 2))
		require.Len(t, nearEvents(seen), 1)
	}
}

// TestNearOfASpreadKey: a spread key has no Near, also if a decision is exact.
func TestNearOfASpreadKey(t *testing.T) {
	seen := &events{}
	p := daily("p", 10)
	l := limiter(t, memory.New(nil), &headgate.Options{Shards: 2, Observer: seen.observe, Near: 0.1}, p)
	d, err := l.Allow(context.Background(), "k")
	require.NoError(t, err)
	require.Equal(t, backend.Exact, d.Known)
	require.Empty(t, nearEvents(seen))
}

func nearEvents(e *events) (found []headgate.Event) {
	for _, x := range e.of(headgate.EventDecision) {
		if x.Near != nil {
			found = append(found, x)
		}
	}
	return found
}

// TestNearOncePerFleet: of the calls of several processes on one server, batched or not,
// one crosses the share of the limit, and another after the count has fallen.
func TestNearOncePerFleet(t *testing.T) {
	server, seen := redistest.Start(t), &events{}
	p := headgate.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(1000)), OnFailure: headgate.FailClosed}
	var all []*headgate.Limiter
	for range 4 {
		s, err := standalone.Open("redis://"+server.Addr(), &standalone.Options{Budget: 10 * time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		all = append(all, limiter(t, s, &headgate.Options{Observer: seen.observe, DenyCacheTTL: -1}, p))
	}
	for round := 1; round <= 2; round++ {
		var callers sync.WaitGroup
		for i := range 32 {
			callers.Add(1)
			go func() {
				defer callers.Done()
				for range 35 {
					_, _ = all[i%4].AllowN(context.Background(), "k", int64(1+i%2))
				}
			}()
		}
		callers.Wait()
		near := nearEvents(seen)
		require.Len(t, near, round)
		require.GreaterOrEqual(t, near[round-1].Near[0].Used, int64(800))
		require.LessOrEqual(t, near[round-1].Near[0].Used, int64(801))
		require.NoError(t, all[0].Reset(context.Background(), "k"))
	}
}

// TestNear: each policy has its own share, denials and peeks and shadows have none, and a
// count that falls and rises is near again.
func TestNear(t *testing.T) {
	ctx, seen, now := context.Background(), &events{}, time.Unix(1_745_000_000, 0)
	s := memory.New(&memory.Options{Now: func() time.Time { return now }})
	l := limiter(t, s, &headgate.Options{Observer: seen.observe, Near: 0.5},
		headgate.Policy{Name: "a", Algorithm: algo.SlidingLog(algo.PerMinute(10)), OnFailure: headgate.FailClosed},
		headgate.Policy{Name: "b", Algorithm: algo.FixedWindow(algo.PerDay(algo.MaxCount)), OnFailure: headgate.FailClosed},
		headgate.Policy{Name: "c", Algorithm: algo.FixedWindow(algo.PerDay(4)), OnFailure: headgate.FailClosed, Shadow: true})
	do := func(a, b int64) []string {
		seen.forget()
		_, err := l.Do(ctx, headgate.Call{Key: "k", Costs: []int64{a, b, 1}})
		require.NoError(t, err)
		e := seen.of(headgate.EventDecision)[0]
		var names []string
		for _, s := range e.Near {
			names = append(names, s.Policy)
		}
		return names
	}
	const half = (algo.MaxCount + 1) / 2
	require.Nil(t, do(4, half-1))
	require.Equal(t, []string{"a", "b"}, do(1, 1))
	require.Nil(t, do(1, 1), "once")
	require.Nil(t, do(5, 1), "a denial")
	_, err := l.Peek(ctx, headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.Empty(t, nearEvents(seen))
	now = now.Add(time.Minute)
	require.Equal(t, []string{"a"}, do(6, 1), "again")

	for _, n := range []float64{1.01, math.NaN()} {
		_, err := headgate.New(s, l.Policies(), &headgate.Options{Near: n})
		require.ErrorAs(t, err, new(*headgate.InvalidError))
	}
	l = limiter(t, s, &headgate.Options{Observer: seen.observe, Near: -1}, bucket(1, 1))
	seen.forget()
	_, err = l.Allow(ctx, "off")
	require.NoError(t, err)
	require.Empty(t, nearEvents(seen))
}

// TestNearAtTheShare: the share of a limit is reached at the count that is that share, and
// not one above it, whatever the product of the two is in floating point.
func TestNearAtTheShare(t *testing.T) {
	p := headgate.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(100)), OnFailure: headgate.FailClosed}
	for percent := range int64(100) {
		seen := &events{}
		l := limiter(t, memory.New(nil), &headgate.Options{Observer: seen.observe, Near: float64(percent+1) / 100}, p)
		for range 100 {
			_, err := l.Allow(context.Background(), "k")
			require.NoError(t, err)
		}
		near := nearEvents(seen)
		require.Len(t, near, 1)
		require.Equal(t, percent+1, near[0].Near[0].Used)
	}
}

// TestNearOfOthers: reservations, records, AllowAtMost and waiters that one take serves.
// What no store has counted is near nothing.
func TestNearOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, seen, s := context.Background(), &events{}, newLossy()
		l := limiter(t, s, &headgate.Options{Observer: seen.observe}, headgate.Policy{
			Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(100)), OnFailure: headgate.FailOpen})
		_, _, err := l.Reserve(ctx, headgate.Call{Key: "a", Costs: []int64{80}})
		require.NoError(t, err)
		require.Len(t, nearEvents(seen), 1)
		_, err = l.AllowAtMost(ctx, "b", 200)
		require.NoError(t, err)
		require.Len(t, nearEvents(seen), 2)
		_, err = l.Record(ctx, headgate.Call{Key: "c", Costs: []int64{300}})
		require.NoError(t, err)
		require.Len(t, nearEvents(seen), 3)
		shared := l.Part("org", 90)
		_, err = headgate.All(ctx, l.Part("user", 1), shared)
		require.NoError(t, err)
		require.Len(t, nearEvents(seen), 4)
		require.Equal(t, "org", nearEvents(seen)[3].Near[0].Key, "it may not be the one that binds")
		_, err = headgate.All(ctx, l.Part("user", 81), l.Part("other", 85))
		require.NoError(t, err)
		require.Len(t, nearEvents(seen)[4].Near, 2)
		for i, used := range []int64{82, 85} {
			require.Equal(t, used, nearEvents(seen)[4].Near[i].Used, "each has its own state")
		}
		s.lose(onAll, 0)
		_, err = l.AllowN(ctx, "d", 90)
		require.NoError(t, err)
		require.Len(t, nearEvents(seen), 5)

		m := limiter(t, memory.New(nil), &headgate.Options{Observer: seen.observe}, headgate.Policy{
			Name: "p", Algorithm: algo.FixedWindow(algo.PerSecond(100)), OnFailure: headgate.FailClosed})
		_, err = m.AllowN(ctx, "k", 100)
		require.NoError(t, err)
		seen.forget()
		crowd(t, 90, func(int) error {
			_, err := m.Wait(ctx, "k")
			return err
		})
		require.Len(t, nearEvents(seen), 1)
	})
}
