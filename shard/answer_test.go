package shard_test

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/shard"
	"github.com/stretchr/testify/require"
)

// TestAShareDoesNotAnswerForTheKey: where another share may have room by the time
// that one answers again, the call goes on.
func TestAShareDoesNotAnswerForTheKey(t *testing.T) {
	_, h, now := hooking()
	b := breaker.New(h, nil)
	s := shard.New(b, h)
	a := algo.SlidingLog(algo.Per(8, 10*time.Second))
	ps := one(a, 2)
	names := shard.Names("k", 2)
	sub := func(i int, n int64) backend.Decision {
		r := take("k", spreadList{[]backend.Policy{{Name: "p", Algorithm: a.Part(int64(i), 2)}}, 0}, n)
		r.Sub = names[i]
		return do(t, h, r)
	}
	require.True(t, sub(0, 4).Allowed)
	now.Add(9_950_000)
	require.True(t, sub(1, 4).Allowed) // share 1 is spent for 10 s, share 0 for 50 ms more
	dead := true
	h.after = func(r backend.Request, d *backend.Decision, err *error) {
		if r.Sub == names[1] {
			if dead {
				*d, *err = backend.Decision{}, backend.ErrUnavailable
			} else {
				now.Add(60_000) // share 0 has room when the answer comes
			}
		}
	}
	do(t, s, peek("k", ps, 1)) // share 0 denies, nobody answers for share 1
	dead = false
	d := do(t, s, take("k", ps, 1))
	h.after = nil
	want := do(t, ignorant(h), peek("k", ps, 1))
	require.True(t, d.Allowed || d.Known == backend.Estimated || d.State == want.State, "a share's numbers as the key's")
}

// TestTheDenyCacheKeepsNoShare: the same through a limiter.
func TestTheDenyCacheKeepsNoShare(t *testing.T) {
	_, h, now := hooking()
	a := algo.SlidingLog(algo.Per(8, 10*time.Second))
	names := shard.Names("k", 2)
	l, err := headgate.New(hubbed{h, &layer.Shared{Clock: layer.Of(h).Clock}}, one(a, 2).policies, &headgate.Options{Shards: 2})
	require.NoError(t, err)
	sub := func(i int, n int64) backend.Decision {
		r := take("k", spreadList{[]backend.Policy{{Name: "p", Algorithm: a.Part(int64(i), 2)}}, 0}, n)
		r.Sub = names[i]
		return do(t, h, r)
	}
	require.True(t, sub(0, 4).Allowed)
	now.Add(9_950_000)
	require.True(t, sub(1, 4).Allowed)
	dead := true
	h.after = func(r backend.Request, d *backend.Decision, err *error) {
		if r.Sub == names[1] {
			if dead {
				*d, *err = backend.Decision{}, backend.ErrUnavailable
			} else {
				now.Add(60_000)
			}
		}
	}
	_, _ = l.Peek(context.Background(), headgate.Call{Key: "k"})
	dead = false
	_, _ = l.Allow(context.Background(), "k")
	h.after = nil
	wrong := 0
	for range 9 {
		now.Add(100_000)
		d, err := l.Allow(context.Background(), "k")
		require.NoError(t, err)
		if !d.Allowed {
			wrong++
		}
		if wrong == 0 {
			break
		}
	}
	require.Zero(t, wrong, "denied, with half of the limit free")
}

type losing struct {
	*memory.Store
	n atomic.Int64 // of the requests
}

func (l *losing) Shared() *layer.Shared { return &layer.Shared{Budget: 50 * time.Millisecond} }
func (l *losing) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if l.n.Add(1) == 2 {
		_, _ = layer.Ask(ctx, l.Store, *r)
		<-ctx.Done()
		return fmt.Errorf("%w: %w", backend.ErrPerhapsCounted, ctx.Err()) // as backend/internal/wire words it
	}
	return l.Store.Do(ctx, r, d)
}

// TestPerhapsCountedStaysSo: also where it is the budget that ended it, with failure
// modes and without.
func TestPerhapsCountedStaysSo(t *testing.T) {
	l := &losing{Store: memory.New(nil)}
	ps := one(algo.FixedWindow(algo.Per(40, algo.MaxPeriod)), 2)
	names := shard.Names("k", 2)
	// Another process spends one share: the call asks it first or not.
	r := take("k", spreadList{[]backend.Policy{{Name: "p", Algorithm: ps.policies[0].Algorithm.Part(0, 2)}}, 0}, 20)
	r.Sub = names[0]
	for _, over := range []layer.Fallback{breaker.New(l, nil), plain{l}} {
		for i := 0; ; i++ {
			s := shard.New(over, l)
			l.n.Store(9)
			l.Store = memory.New(nil)
			do(t, s, peek("k", ps, 1)) // the sum before the first take
			do(t, l.Store, r)
			l.n.Store(0)
			d, err := layer.Ask(context.Background(), s, take("k", ps, 1))
			if err = cmp.Or(err, d.Err); err != nil {
				require.ErrorIs(t, err, backend.ErrPerhapsCounted)
				break
			}
			require.True(t, d.Allowed)
			require.Less(t, i, 9)
		}
	}
}

// TestUsedIsExactAfterASum compares a take after a sum with a peek.
func TestUsedIsExactAfterASum(t *testing.T) {
	exact := 0
	for kind := range kinds(algo.PerDay(80)) {
		s, h, now := hooking()
		ps := one(kinds(algo.PerDay(40))[kind], 4)
		for i := range 10 { // another process fills one share
			r := take("k", ps, 1)
			r.Sub, r.Policies = shard.Names("k", 4)[0], []backend.Policy{{Name: "p", Algorithm: ps.policies[0].Algorithm.Part(0, 4)}}
			require.True(t, do(t, h, r).Allowed, i)
		}
		for { // others spend three shares, all of which this process sees
			d := do(t, s, take("k", ps, 1))
			if d.Remaining <= 8 || !d.Allowed {
				break
			}
		}
		for do(t, s, take("k", ps, 1)).Allowed {
		}
		now.Add(1_100_000)
		r := take("k", ps, 1) // another process frees a share
		r.Sub, r.Op, r.Policies = shard.Names("k", 4)[2], backend.Reset, []backend.Policy{{Name: "p", Algorithm: ps.policies[0].Algorithm.Part(2, 4)}}
		do(t, h, r)
		for range 20 {
			d := do(t, s, take("k", ps, 1))
			if d.Allowed && d.Known == backend.Exact {
				exact++
				want := do(t, ignorant(h), peek("k", ps, 0))
				require.Equal(t, want.State, d.State, "kind %d", kind)
			}
		}
	}
	require.NotZero(t, exact)
}
