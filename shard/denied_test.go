package shard_test

import (
	"context"
	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/internal/layer"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/shard"
	"github.com/stretchr/testify/require"
)

// two is a list of two policies.
func two(a, b algo.Algorithm, k int) spreadList {
	ps := one(a, k)
	ps.policies = append(ps.policies, one(b, k).policies...)
	ps.policies[1].Name = "q"
	return ps
}

// costing is a take that costs each policy so much.
func costing(key string, ps spreadList, costs ...int64) backend.Request {
	r := take(key, ps, 0)
	r.Costs = costs
	return r
}

// ignorant is a wrapper on the same store that shares nothing of what it knows.
func ignorant(s backend.Store) *shard.Store { return shard.New(plain{s}, struct{ backend.Store }{s}) }

// TestDeniesOnlyWhatHasNoRoom: whatever the costs were, and however they went
// up and down, a call of the only process is denied only where no share has
// room for it.
func TestDeniesOnlyWhatHasNoRoom(t *testing.T) {
	redistest.Plain(t)
	for _, a := range kinds(algo.PerSecond(40)) {
		for _, b := range kinds(algo.PerSecond(24)) {
			s, counts, now := counting(t)
			other := ignorant(counts)
			ps, dice := two(a, b, 4), rand.New(rand.NewPCG(1, 2))
			for range redistest.Steps(500, 2000) {
				r := costing("k", ps, 1+dice.Int64N(10), 1+dice.Int64N(6))
				if dice.IntN(8) == 0 {
					r.Op = backend.Peek
				}
				look := r
				look.Op = backend.Peek
				room := do(t, other, look).Allowed
				require.Equal(t, room, do(t, s, r).Allowed, "%v %v %v %v", &a, &b, r.Op, r.Costs)
				now.Add(dice.Int64N(20_000) * dice.Int64N(2))
			}
		}
	}
}

// meanwhile is a store on which something else happens once, before the answer
// of the first request comes back.
type meanwhile struct {
	backend.Store
	do atomic.Pointer[func()]
}

func (m *meanwhile) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	err := m.Store.Do(ctx, r, d)
	if do := m.do.Swap(nil); do != nil {
		(*do)()
	}
	return err
}

// TestAnswersToOthersAreEstimates: a call that learns meanwhile that a share
// denies a smaller cost is denied too, but nobody told it for how long.
func TestAnswersToOthersAreEstimates(t *testing.T) {
	ps := one(algo.TokenBucket(algo.PerMinute(12), 12), 2)
	for range 20 {
		_, counts, now := counting(t)
		for do(t, ignorant(counts), take("k", ps, 1)).Allowed {
		}
		m := &meanwhile{Store: counts}
		s := shard.New(plain{m}, counts)
		do(t, s, peek("another key", ps, 1))
		now.Add(1000)
		beside := func() { require.False(t, do(t, s, take("k", ps, 1)).Allowed) }
		m.do.Store(&beside)
		d, want := do(t, s, take("k", ps, 3)), do(t, ignorant(counts), peek("k", ps, 3))
		require.False(t, d.Allowed)
		if d.Known == backend.Exact {
			require.Equal(t, want.State, d.State)
		}
	}
}

// TestAPeekThatFindsRoom ends what is remembered of a spent key, also in the deny
// cache.
func TestAPeekThatFindsRoom(t *testing.T) {
	for _, cost := range []int64{0, 1, 2} {
		_, h, now := hooking()
		l, err := headgate.New(hubbed{h, &layer.Shared{Clock: layer.Of(h).Clock}}, one(algo.FixedWindow(algo.PerDay(160)), 16).policies, &headgate.Options{Shards: 16})
		require.NoError(t, err)
		allow := func() bool {
			d, err := l.Allow(t.Context(), "k")
			require.NoError(t, err)
			return d.Allowed
		}
		for allow() {
		}
		now.Add(int64(100 * time.Millisecond / time.Microsecond))
		r := take("k", spreadList{l.Policies(), 16}, 1)
		r.Op = backend.Reset
		do(t, ignorant(h), r)
		require.False(t, allow(), "another process' reset does not show at once")
		d, err := l.Peek(t.Context(), headgate.Call{Key: "k", Costs: []int64{cost}})
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.True(t, allow(), "after a peek of %d", cost)
	}
}
