package batch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// leased returns a group of one call about a lease.
func leased(op backend.Op, key string, cost int64, ps []backend.Policy, id int) *batch.Asked {
	g := group(key, cost, ps)
	g.Op, g.Lease = op, &backend.Lease{ID: backend.LeaseID{1, byte(id), byte(id >> 8)}, Length: time.Minute}
	return g
}

func settled(key string, actual int64, ps []backend.Policy, id int) *batch.Asked {
	g := leased(backend.Settle, key, 0, ps, id)
	g.Lease.Attempt = backend.LeaseID{2}
	for range ps {
		g.Lease.Actual = append(g.Lease.Actual, actual)
	}
	return g
}

// run runs one group in a command of its own.
func run(t *testing.T, s *batch.Server, g *batch.Asked) *batch.Answer {
	t.Helper()
	_ = s.Run(context.Background(), []*batch.Asked{g})
	return &g.Takes[0]
}

// TestSlotsLeaveAFewAtATime: slots whose leases ended leave by 128 per call, and do
// not count before.
func TestSlotsLeaveAFewAtATime(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	ps := policy(algo.InFlight(2))
	name := names.DefaultPrefix.Log(names.Tag("k", ""), &ps[0])
	for i := range 1000 {
		require.NoError(t, client.ZAdd(ctx, name, redis.Z{Score: float64(i), Member: i}).Err())
	}
	a := run(t, batch.Alone(client, &layer.Shared{}, time.Second), leased(backend.Reserve, "k", 1, ps, 1))
	require.NoError(t, a.Err)
	require.EqualValues(t, 1, a.Decision.Used)
	require.EqualValues(t, 1000-128+1, client.ZCard(ctx, name).Val())
}

// TestScriptRefusesLeases of a length that no client of ours sends.
func TestScriptRefusesLeases(t *testing.T) {
	client := redistest.Start(t).Client(t)
	runner := batch.Alone(client, &layer.Shared{}, time.Second)
	for _, length := range []time.Duration{time.Millisecond, 25 * time.Hour} {
		g := leased(backend.Reserve, "k", 1, policy(algo.FixedWindow(algo.PerHour(5))), 1)
		g.Lease.Length = length
		var invalid *backend.InvalidError
		require.ErrorAs(t, run(t, runner, g).Err, &invalid)
		require.Zero(t, client.DBSize(context.Background()).Val())
	}
}

// TestNoLeaseWithoutItsCharge: where the server refuses a charge or what gives it
// back, the lease is as before.
func TestNoLeaseWithoutItsCharge(t *testing.T) {
	server := redistest.Start(t)
	admin, ctx := server.Client(t), context.Background()
	whole := batch.Alone(admin, &layer.Shared{}, time.Second)
	l := algo.PerHour(5)
	for _, c := range []struct {
		missing string
		ps      []backend.Policy
	}{
		{"-hset", policy(algo.TokenBucket(l, 5))},
		{"-hset", policy(algo.BucketedWindow(l, 5))},
		{"-zadd", policy(algo.SlidingLog(l))},
		{"-zadd", append(policy(algo.SlidingLog(l)), backend.Policy{Name: "f", Algorithm: algo.FixedWindow(l)})},
	} {
		require.NoError(t, admin.FlushDB(ctx).Err())
		require.NoError(t, run(t, whole, leased(backend.Reserve, "k", 3, c.ps, 1)).Err)
		runner, _ := limited(t, server, c.missing)
		require.ErrorIs(t, run(t, runner, leased(backend.Reserve, "k", 1, c.ps, 2)).Err, backend.ErrUnavailable)
		lease := names.DefaultPrefix.Lease("k", backend.LeaseID{1, 2})
		require.Eventually(t, func() bool { return admin.Exists(ctx, lease).Val() == 0 }, 10*time.Second, time.Millisecond)
		require.ErrorIs(t, run(t, runner, settled("k", 1, c.ps, 1)).Err, backend.ErrUnavailable)
		require.NoError(t, run(t, whole, settled("k", 2, c.ps, 1)).Err, "the lease is held")
		require.EqualValues(t, 3, run(t, whole, group("k", 1, c.ps)).Decision.Used)
	}
}

// TestSettleAtOnceAfterARefusedReserve: a Reserve that was refused left no lease, also for
// a settlement that comes at once. Else that would give back what another call was charged.
func TestSettleAtOnceAfterARefusedReserve(t *testing.T) {
	server := redistest.Start(t)
	whole := batch.Alone(server.Client(t), &layer.Shared{}, time.Second)
	runner, _ := limited(t, server, "-hset")
	l := algo.PerDay(1000)
	for i, ps := range [][]backend.Policy{
		policy(algo.FixedWindow(l)), append(policy(algo.TokenBucket(l, 1000)), backend.Policy{Name: "f", Algorithm: algo.FixedWindow(l)}),
	} {
		key := string(rune('a' + i))
		require.NoError(t, run(t, whole, leased(backend.Reserve, key, 500, ps, 1)).Err)
		for id := range 50 {
			require.ErrorIs(t, run(t, runner, leased(backend.Reserve, key, 5, ps, 2+id)).Err, backend.ErrUnavailable)
			require.ErrorIs(t, run(t, whole, settled(key, 0, ps, 2+id)).Err, backend.ErrNotHeld)
		}
		look := group(key, 0, ps)
		look.Op = backend.Peek
		require.EqualValues(t, 500, run(t, whole, look).Decision.Used)
	}
}

// TestLogIsWrittenAsAWhole: where a right is missing for the second write of a Reserve
// or a Settle, the first is not made.
func TestLogIsWrittenAsAWhole(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client(t)
	whole := batch.Alone(admin, &layer.Shared{}, time.Second)
	ps := policy(algo.SlidingLog(algo.PerHour(9)))
	look := group("k", 0, ps)
	look.Op = backend.Peek
	runner, _ := limited(t, server, "-hset")
	require.ErrorIs(t, run(t, runner, leased(backend.Reserve, "k", 4, ps, 1)).Err, backend.ErrUnavailable)
	require.Zero(t, run(t, whole, look).Decision.Used)
	require.NoError(t, run(t, whole, leased(backend.Reserve, "k", 4, ps, 2)).Err)
	runner, _ = limited(t, server, "-zrem")
	require.ErrorIs(t, run(t, runner, settled("k", 1, ps, 2)).Err, backend.ErrUnavailable)
	require.EqualValues(t, 4, run(t, whole, look).Decision.Used)
	require.NoError(t, run(t, whole, settled("k", 1, ps, 2)).Err)
	require.EqualValues(t, 1, run(t, whole, look).Decision.Used)
}

// TestExcessSaturates: what a settle charges beyond the estimate is no more than a
// record would.
func TestExcessSaturates(t *testing.T) {
	runner := batch.Alone(redistest.Start(t).Client(t), &layer.Shared{}, time.Second)
	for i, of := range []algo.Algorithm{
		algo.SlidingLog(algo.PerHour(1e6)), algo.CompactLog(algo.PerHour(1e6)), algo.FixedWindow(algo.PerHour(algo.MaxCount)),
	} {
		key, ps := fmt.Sprint(i), policy(of)
		for id := range 4 {
			require.True(t, run(t, runner, leased(backend.Reserve, key, 1, ps, id)).Decision.Allowed)
		}
		for id := range 4 {
			require.NoError(t, run(t, runner, settled(key, of.Max(), ps, id)).Err)
		}
		look := group(key, 0, ps)
		look.Op = backend.Peek
		require.Equal(t, 2*of.Max(), run(t, runner, look).Decision.Used, "%v", &ps[0].Algorithm)
	}
}

// TestLargeLease: a lease of more units than its record has bytes for is settled to the
// unit. One case has a list of one policy, one of several.
func TestLargeLease(t *testing.T) {
	runner := batch.Alone(redistest.Start(t).Client(t), &layer.Shared{}, time.Second)
	month := algo.Calendar(algo.MaxCount, algo.Month(1), time.UTC)
	const estimate, actual = 900_000_000_000_007, 1_100_000_000_003
	for name, ps := range map[string][]backend.Policy{
		"window":   policy(algo.FixedWindow(algo.PerDay(algo.MaxCount))),
		"calendar": policy(month),
		"both":     append(policy(algo.FixedWindow(algo.PerDay(algo.MaxCount))), backend.Policy{Name: "month", Algorithm: month, OnFailure: backend.FailClosed}),
	} {
		require.True(t, run(t, runner, leased(backend.Reserve, name, estimate, ps, 1)).Decision.Allowed)
		require.False(t, run(t, runner, leased(backend.Reserve, name, 100_000_000_000_000, ps, 2)).Decision.Allowed)
		require.NoError(t, run(t, runner, settled(name, actual, ps, 1)).Err)
		look := group(name, 0, ps)
		look.Op = backend.Peek
		require.EqualValues(t, actual, run(t, runner, look).Decision.Used, name)
	}
}

// TestRowsLeave: what the entries of a log that stays in use gave back leaves with
// them.
func TestRowsLeave(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	now := time.UnixMicro(1745000145_000_000)
	runner := batch.Alone(clock.Client{Processor: client, Now: func() time.Time { return now }}, &layer.Shared{}, time.Second)
	ps := policy(algo.SlidingLog(algo.PerSecond(100_000)))
	for id := range redistest.Steps(1000, 3000) {
		require.NoError(t, run(t, runner, leased(backend.Reserve, "k", 900, ps, id)).Err)
		require.NoError(t, run(t, runner, group("k", 1, ps)).Err)
		require.NoError(t, run(t, runner, settled("k", 5, ps, id)).Err, fmt.Sprint(id))
		now = now.Add(20 * time.Millisecond)
	}
	name := names.DefaultPrefix.Log("k", &ps[0])
	look := group("k", 0, ps)
	look.Op = backend.Peek
	require.EqualValues(t, 6*49, run(t, runner, look).Decision.Used)
	require.Less(t, client.HLen(ctx, name+":back").Val(), int64(500))
	require.Less(t, client.ZCard(ctx, name).Val(), int64(300))
}

// TestCancelledBucketLeaves: after a cancellation the key is unused when its last
// unit has left, and not when the empty bucket would have.
func TestCancelledBucketLeaves(t *testing.T) {
	now := time.UnixMicro(1745000145_000_000)
	client := clock.Client{Processor: redistest.Start(t).Client(t), Now: func() time.Time { return now }}
	runner := batch.Alone(client, &layer.Shared{}, time.Second)
	ps := policy(algo.BucketedWindow(algo.PerMinute(10), 6))
	want := run(t, runner, group("k", 1, ps)).Decision.ResetAfter
	now = now.Add(25 * time.Second)
	require.NoError(t, run(t, runner, leased(backend.Reserve, "k", 5, ps, 1)).Err)
	require.NoError(t, run(t, runner, settled("k", 0, ps, 1)).Err)
	look := group("k", 0, ps)
	look.Op = backend.Peek
	require.Equal(t, want-25*time.Second, run(t, runner, look).Decision.ResetAfter)
}

// TestFieldsLeaveBesideLeases: also where nothing but reservations of logs or slots keeps
// a key in use.
func TestFieldsLeaveBesideLeases(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	now := time.UnixMicro(1745000145_000_000)
	runner := batch.Alone(clock.Client{Processor: client, Now: func() time.Time { return now }}, &layer.Shared{}, time.Second)
	for _, of := range []algo.Algorithm{algo.SlidingLog(algo.PerHour(1000)), algo.CompactLog(algo.PerHour(1000)), algo.InFlight(1000)} {
		key := of.Kind().String()
		require.NoError(t, run(t, runner, group(key, 1, policy(algo.FixedWindow(algo.PerMinute(5))))).Err)
		for id := range 100 {
			now = now.Add(time.Minute)
			require.True(t, run(t, runner, leased(backend.Reserve, key, 1, policy(of), id)).Decision.Allowed)
		}
		require.Equal(t, []string{names.Leases}, client.HKeys(ctx, names.DefaultPrefix.Hash(key)).Val())
	}
}
