package headgate_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestSpreadRefuses: what needs one place for a key is refused on a spread key, by an error
// that names what to use in its place. Nothing is counted. One spread key alone is no more
// than a take.
func TestSpreadRefuses(t *testing.T) {
	ctx := t.Context()
	for _, s := range []backend.Store{memory.New(nil), remote(memory.New(nil))} {
		l, plain := limiter(t, s, &headgate.Options{Shards: 2}, hourlyLog(2)), limiter(t, s, nil, daily("plain", 9))
		refuse := func(verb string, err error) {
			t.Helper()
			require.ErrorIs(t, err, headgate.ErrUnsupported, verb)
			require.ErrorContains(t, err, "Options.Borrow", verb)
		}
		for i := range int64(4) { // the last time, a remembered denial is no answer to a wrong call
			c, used := headgate.Call{Key: "k"}, min(i, 2)
			_, _, err := l.Reserve(ctx, c)
			refuse("Reserve", err)
			_, _, err = l.WaitReserve(ctx, c)
			refuse("WaitReserve", err)
			_, err = l.Record(ctx, c)
			refuse("Record", err)
			_, err = headgate.All(ctx, l.Part("k"), plain.Part("p"))
			refuse("All", err)
			_, err = headgate.All(ctx, plain.Part("p"), l.Part("k"))
			refuse("All", err)
			_, err = headgate.WaitAll(ctx, plain.Part("p"), l.Part("k"))
			refuse("WaitAll", err)
			_, _, err = headgate.ReserveAll(ctx, l.Part("k"))
			refuse("ReserveAll", err)
			requireCount(t, l, "k", used)
			requireCount(t, plain, "p", 0)
			d, err := headgate.All(ctx, l.Part("k"))
			require.NoError(t, err)
			require.Equal(t, used < 2, d.Allowed)
		}
	}
}

// TestFloodOnASpreadKey: spent, it costs its servers a sum a second and
// process, with the deny cache and without.
func TestFloodOnASpreadKey(t *testing.T) {
	const k = 16
	p := headgate.Policy{Name: "tenant", Algorithm: algo.FixedWindow(algo.Per(160, algo.MaxPeriod)), OnFailure: headgate.FailClosed}
	for name, o := range map[string]*headgate.Options{"cache": {Shards: k}, "no cache": {Shards: k, DenyCacheTTL: -1}} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			l := limiter(t, unhurried(t, server), o, p)
			for range 160 {
				d, err := l.Allow(context.Background(), "k")
				require.NoError(t, err)
				require.True(t, d.Allowed)
			}
			server.ResetStats(t)
			asked, passed := flood(t, l, "k", 64, time.Second, 0)
			sent := server.CommandStats(t)["evalsha"].Calls
			t.Logf("%d calls in 1 s, %d commands, %+v", asked, sent, l.Stats())
			require.Zero(t, passed)
			require.Greater(t, asked, 1000)
			require.LessOrEqual(t, sent, int64(3*(k+2)+64), "two sums, and what was under way")
			require.NoError(t, l.Reset(context.Background(), "k"))
			d, err := l.Allow(context.Background(), "k")
			require.NoError(t, err)
			require.True(t, d.Allowed, "a reset in this process shows at once")
		})
	}
}

// spreadShadow is a spread limit, and a tighter one as a shadow.
func spreadShadow(t *testing.T, s backend.Store) *headgate.Limiter {
	return limiter(t, s, &headgate.Options{Shards: 4},
		headgate.Policy{Name: "a", Algorithm: algo.SlidingLog(algo.PerDay(80)), OnFailure: headgate.FailClosed},
		headgate.Policy{Name: "b", Algorithm: algo.FixedWindow(algo.PerDay(60)), OnFailure: headgate.FailClosed, Shadow: true})
}

// TestShadowOfSpreadKeyFails: no failure of a shadow counts as one of the limiter.
func TestShadowOfSpreadKeyFails(t *testing.T) {
	s := newLossy()
	l := spreadShadow(t, s)
	s.lose(onAll, 0)
	for range 3 {
		d, err := l.Allow(context.Background(), "k")
		require.NoError(t, err)
		require.False(t, d.Allowed)
	}
	require.EqualValues(t, 3, l.Stats().FailClosed)
}

// TestAtMostSpreadFailsLocal: AllowAtMost grants what it charges, in this process too.
func TestAtMostSpreadFailsLocal(t *testing.T) {
	down := map[string]bool{}
	s := inMemory(func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		if _, ok := down[r.Sub]; !ok {
			down[r.Sub] = len(down)%2 == 1
		}
		if down[r.Sub] {
			return backend.ErrUnavailable
		}
		return next.Do(ctx, r, d)
	})
	l, err := headgate.New(s, []headgate.Policy{
		{Name: "a", Algorithm: algo.FixedWindow(algo.Per(40, 24*time.Hour)), OnFailure: headgate.FailLocal},
	}, &headgate.Options{Instances: 1, Shards: 4})
	require.NoError(t, err)
	total := int64(0)
	for i := range 8 {
		d, err := l.AllowAtMost(context.Background(), "k", 40)
		require.NoError(t, err)
		t.Logf("%d: %v %d %v", i, d.Source, d.Passed, d.Err)
		total += d.Passed
	}
	require.Equal(t, int64(40), total)
}

// TestAtMostSpreadLost: the lost reply of a later sub-key leaves what the first has
// granted, and is counted.
func TestAtMostSpreadLost(t *testing.T) {
	n := 0
	s := inMemory(func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		err := next.Do(ctx, r, d)
		if r.UpTo {
			if n++; n > 1 {
				*d = backend.Decision{}
				return backend.ErrPerhapsCounted
			}
		}
		return err
	})
	l := limiter(t, s, &headgate.Options{Shards: 4},
		headgate.Policy{Name: "a", Algorithm: algo.FixedWindow(algo.Per(40, 24*time.Hour)), OnFailure: headgate.FailClosed})
	d, err := l.AllowAtMost(context.Background(), "k", 40)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.EqualValues(t, 10, d.Passed)
	require.Equal(t, time.Second, d.NextAfter, "a caller that sleeps for it does not spin")
	require.EqualValues(t, 1, l.Stats().PerhapsCounted)
	require.Zero(t, l.Stats().FailClosed, "the store decided")
}

// TestSpreadDenialOfSeveralPolicies: one policy has spent one share, another the other share.
// A call that costs less of the second one has room.
func TestSpreadDenialOfSeveralPolicies(t *testing.T) {
	l := limiter(t, remote(memory.New(nil)), &headgate.Options{Shards: 2},
		headgate.Policy{Name: "p", Algorithm: algo.SlidingLog(algo.PerMinute(4)), OnFailure: headgate.FailClosed},
		headgate.Policy{Name: "q", Algorithm: algo.SlidingLog(algo.PerHour(6)), OnFailure: headgate.FailClosed})
	for i, costs := range [][]int64{{2, 1}, {1, 2}, {1, 2}, {1, 1}} {
		d, err := l.Do(t.Context(), headgate.Call{Key: "k", Costs: costs})
		require.NoError(t, err)
		require.Equal(t, i != 2, d.Allowed, "%d", i)
	}
}

// hourlyLog is a log of so many calls per hour.
func hourlyLog(n int64) headgate.Policy {
	return headgate.Policy{Name: "p", Algorithm: algo.SlidingLog(algo.PerHour(n)), OnFailure: headgate.FailClosed}
}

// TestSpreadDenialAtAHigherCost: what RetryAfter a remembered denial has for a higher cost is
// a lower bound, since each sub-key refills at a rate of its own. Another list of a greater
// burst has filled some sub-keys beyond their shares.
func TestSpreadDenialAtAHigherCost(t *testing.T) {
	ctx, now := t.Context(), time.UnixMicro(1745000145_000000)
	s := remote(memory.New(&memory.Options{Now: func() time.Time { return now }}))
	s.shared.Clock = func() time.Time { return now }
	bucket := func(burst int64) headgate.Policy {
		return headgate.Policy{Name: "p", Algorithm: algo.TokenBucket(algo.PerHour(70), burst), OnFailure: headgate.FailClosed}
	}
	free, paid := limiter(t, s, &headgate.Options{Shards: 5}, bucket(25)), limiter(t, s, &headgate.Options{Shards: 5}, bucket(50))
	for key, known := 0, 0; known < 20; key++ {
		require.Less(t, key, 1000)
		k := fmt.Sprint(key)
		for _, n := range []int64{10, 10, 5, 5, 5} {
			d, err := paid.AllowN(ctx, k, n)
			require.NoError(t, err)
			require.True(t, d.Allowed)
		}
		denied, err := free.Allow(ctx, k)
		require.NoError(t, err)
		if denied.Allowed { // one sub-key was drawn twice
			continue
		}
		for n := int64(2); n <= 5; n++ {
			d, err := free.AllowN(ctx, k, n)
			require.NoError(t, err)
			require.Equal(t, headgate.FromDenyCache, d.Source)
			want, err := free.Peek(ctx, headgate.Call{Key: k, Costs: []int64{n}})
			require.NoError(t, err)
			require.LessOrEqual(t, d.RetryAfter, want.RetryAfter, "of %d", n)
			require.GreaterOrEqual(t, d.RetryAfter, denied.RetryAfter, "of %d", n)
			known++
		}
	}
}
