package shard_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/internal/joint"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/settlement"
	"github.com/headgate-go/headgate/shard"
	"github.com/stretchr/testify/require"
)

// counted is a memory store that counts what it is asked.
type counted struct {
	*memory.Store
	asked atomic.Int64
	slow  time.Duration
	gate  chan struct{} // what every Peek waits for, where there is one
}

func (c *counted) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	c.asked.Add(1)
	time.Sleep(c.slow)
	if c.gate != nil && r.Op == backend.Peek {
		<-c.gate
	}
	return c.Store.Do(ctx, r, d)
}

func counting(t *testing.T) (*shard.Store, *counted, *atomic.Int64) {
	now := new(atomic.Int64)
	now.Store(1_745_000_145_000_000)
	c := &counted{Store: memory.New(&memory.Options{Now: func() time.Time { return time.UnixMicro(now.Load()) }})}
	return shard.New(plain{c}, c), c, now
}

// TestASpentKeyAsksNobody for a second, and then once for all who call.
func TestASpentKeyAsksNobody(t *testing.T) {
	for kind, a := range kinds(algo.PerDay(160)) {
		if kind == tokenBucket {
			continue // it has a unit again sooner
		}
		s, c, now := counting(t)
		ps := one(a, 16)
		for do(t, s, take("k", ps, 1)).Allowed {
		}
		c.asked.Store(0)
		first := do(t, s, take("k", ps, 1))
		require.Equal(t, backend.FromDenyCache, first.Source)
		require.Equal(t, backend.Estimated, first.Known)
		for range 1000 {
			now.Add(900)
			d := do(t, s, take("k", ps, 1))
			require.False(t, d.Allowed)
			require.EqualValues(t, 160, d.Used)
		}
		require.Zero(t, c.asked.Load())
		require.InDelta(t, first.RetryAfter-900*time.Millisecond, do(t, s, take("k", ps, 1)).RetryAfter, float64(time.Microsecond))
		now.Add(200_000)
		c.slow = time.Millisecond
		faulttest.Go(64, func(int) {
			if d, err := layer.Ask(context.Background(), s, take("k", ps, 1)); err != nil || d.Allowed {
				t.Error(d, err)
			}
		})()
		require.GreaterOrEqual(t, c.asked.Load(), int64(16), "a second has passed")
		require.LessOrEqual(t, c.asked.Load(), int64(2*16), "%v: one sum, or two where a caller came late", &a)
	}
}

// TestASmallerCostIsAsked though a larger one is known to be denied.
func TestASmallerCostIsAsked(t *testing.T) {
	s, _, _ := counting(t)
	ps := one(algo.FixedWindow(algo.PerDay(160)), 16)
	for range 16 {
		require.True(t, do(t, s, take("k", ps, 6)).Allowed)
	}
	for range 3 {
		d := do(t, s, take("k", ps, 6))
		require.False(t, d.Allowed)
		require.EqualValues(t, 64, d.Remaining, "in no single share is room for it")
	}
	for i := range 64 {
		require.True(t, do(t, s, take("k", ps, 1)).Allowed, i)
	}
	require.False(t, do(t, s, take("k", ps, 1)).Allowed)
}

// TestCostsOfTheirOwn for each policy: all or nothing in each share.
func TestCostsOfTheirOwn(t *testing.T) {
	s, _, _ := counting(t)
	ps := two(algo.FixedWindow(algo.PerDay(1600)), algo.SlidingLog(algo.PerDay(16_000)), 16)
	ps.policies[1].Name = "tokens"
	each := make([]backend.State, 2)
	r := backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Policies: ps.policies, Shards: ps.k, Costs: []int64{1, 250}, Each: each}}
	for i := range 64 {
		require.True(t, do(t, s, r).Allowed, i)
		require.EqualValues(t, 16_000-250*(i+1), each[1].Remaining)
		require.EqualValues(t, 1600-(i+1), each[0].Remaining)
	}
	d := do(t, s, r)
	require.False(t, d.Allowed)
	require.Equal(t, "tokens", d.Policy)
	require.Equal(t, d.State, each[1])
	require.EqualValues(t, 64, each[0].Used)
	require.Zero(t, s.Stats().WrongDenials)
}

// TestResetShowsAtOnce to all wrappers on the store in this process.
func TestResetShowsAtOnce(t *testing.T) {
	server := redistest.Start(t)
	store := standalone.New(server.Client(t), &standalone.Options{Budget: longBudget})
	a, b := wrappers(store), wrappers(store)
	ps, same := one(algo.FixedWindow(algo.Per(64, algo.MaxPeriod)), 8), one(algo.FixedWindow(algo.Per(64, algo.MaxPeriod)), 8)
	for range 2 {
		for do(t, a, take("k", ps, 1)).Allowed {
		}
		require.Equal(t, backend.FromDenyCache, do(t, b, take("k", same, 1)).Source, "they share what they know")
		r := take("k", one(same.policies[0].Algorithm, 8), 1)
		r.Op, r.Policies[0].OnFailure = backend.Reset, backend.FailOpen // another list of the same count
		require.Zero(t, do(t, joint.New(b, breaker.New(store, nil), store, settlement.NewBackground()), r).Used)
		for range 64 {
			require.True(t, do(t, a, take("k", ps, 1)).Allowed)
		}
	}
}

// TestManyKeys: what is known of them is bounded, and forgetting harms nobody.
func TestManyKeys(t *testing.T) {
	s, _, _ := counting(t)
	ps := one(algo.FixedWindow(algo.PerDay(4)), 2)
	for round := range 5 {
		for i := range redistest.Steps(5_000, 20_000) {
			require.Equal(t, round < 4, do(t, s, take(fmt.Sprint(i), ps, 1)).Allowed)
		}
	}
}

// TestManyLists: a caller that makes a list for each call is answered alike.
func TestManyLists(t *testing.T) {
	s, _, _ := counting(t)
	for range 1000 {
		require.True(t, do(t, s, take("k", one(algo.FixedWindow(algo.PerDay(1000)), 8), 1)).Allowed)
	}
	require.False(t, do(t, s, take("k", one(algo.FixedWindow(algo.PerDay(1000)), 8), 1)).Allowed)
}

// TestChangingShards while counts live: limiters of another K count apart, so
// each passes its limit, and no more.
func TestChangingShards(t *testing.T) {
	const limit = 480
	for _, ks := range [][]int{{1, 4}, {4, 1}, {4, 8}, {8, 4}, {16, 64}, {3, 5}, {64, 2}, {0, 16}} {
		for _, a := range kinds(algo.Per(limit, algo.MaxPeriod/64)) {
			s, _, _ := counting(t)
			for _, k := range ks {
				ps, passed := one(a, k), 0
				require.NoError(t, s.CheckShards(ps.policies, ps.k))
				for do(t, s, take("k", ps, 1)).Allowed {
					passed++
				}
				require.Equal(t, limit, passed, "%v, K %d of %v", &a, k, ks)
			}
			again := 0
			for _, k := range ks { // and back: nothing is handed out anew
				if do(t, s, take("k", one(a, k), 1)).Allowed {
					again++
				}
			}
			require.Zero(t, again)
		}
	}
}

// TestCheck refuses what can't be spread, and names the values.
func TestCheck(t *testing.T) {
	s, _, _ := counting(t)
	limit := func(n int64) backend.Policy {
		return backend.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(n)), OnFailure: backend.FailOpen}
	}
	bucket := func(l algo.Limit, burst int64) backend.Policy {
		return backend.Policy{Name: "q", Algorithm: algo.TokenBucket(l, burst), OnFailure: backend.FailOpen}
	}
	for _, row := range []struct {
		want string
		k    int
		ps   []backend.Policy
	}{
		{"-1", -1, []backend.Policy{limit(10)}},
		{"11", 11, []backend.Policy{limit(10)}},
		{"1025", 1025, []backend.Policy{limit(10_000)}},
		{"4", 4, []backend.Policy{bucket(algo.PerDay(100), 3)}},
		{"4", 4, []backend.Policy{bucket(algo.PerDay(3), 100)}},
		{"period", 2, []backend.Policy{bucket(algo.Per(7, algo.MaxPeriod), 100)}},
		{"11", 11, []backend.Policy{bucket(algo.PerDay(100), 100), limit(10)}},
		{"2", 2, []backend.Policy{{Name: "r", Algorithm: algo.InFlight(9), OnFailure: backend.FailOpen}}},
	} {
		err := s.CheckShards(row.ps, row.k)
		var bad *backend.InvalidError
		require.ErrorAs(t, err, &bad, "%+v", row.ps)
		require.Contains(t, err.Error(), row.want)
	}
	for _, ps := range []spreadList{
		{[]backend.Policy{limit(10)}, 10}, {[]backend.Policy{limit(1)}, 1}, {[]backend.Policy{limit(1)}, 0}, {[]backend.Policy{limit(1024)}, 1024},
		{[]backend.Policy{limit(10), bucket(algo.PerDay(100), 100)}, 1},
		{[]backend.Policy{bucket(algo.PerDay(100), 3)}, 1}, {[]backend.Policy{bucket(algo.Per(8, algo.MaxPeriod), 100)}, 4},
	} {
		require.NoError(t, s.CheckShards(ps.policies, ps.k))
	}
}
