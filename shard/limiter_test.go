package shard_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/shard"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func spread(t *testing.T, store backend.Store, mode headgate.FailureMode, limit int64) *headgate.Limiter {
	t.Helper()
	l, err := headgate.New(store, []headgate.Policy{{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(limit)), OnFailure: mode}}, &headgate.Options{Shards: 4})
	require.NoError(t, err)
	return l
}

func slow(t *testing.T) (*standalone.Store, *redistest.Proxy) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })
	return standalone.New(client, &standalone.Options{Budget: time.Second}), proxy
}

// TestImpatientPeeks say nothing of the nodes: the limit holds, though it would
// fail open.
func TestImpatientPeeks(t *testing.T) {
	store, proxy := slow(t)
	l := spread(t, store, headgate.FailOpen, 100)
	passed := 0
	for range 5 {
		proxy.Set(redistest.Delay(20 * time.Millisecond))
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		_, _ = l.Peek(ctx, headgate.Call{Key: "k"})
		cancel()
		proxy.Set(redistest.Pass)
		for range 100 {
			if d, err := l.Allow(context.Background(), "k"); err == nil && d.Allowed {
				passed++
			}
		}
	}
	require.Equal(t, 100, passed)
}

// TestCostsAreTheirCallers: a sum that goes on without its caller reads none of
// what is his. It fails under the race detector alone.
func TestCostsAreTheirCallers(t *testing.T) {
	store, proxy := slow(t)
	l := spread(t, store, headgate.FailClosed, 40)
	costs := []int64{0}
	for i := range 6 {
		key := fmt.Sprint("k", i)
		for range 36 {
			_, _ = l.Allow(context.Background(), key)
		}
		costs[0] = 8
		proxy.Set(redistest.Delay(10 * time.Millisecond))
		ctx, cancel := context.WithTimeout(context.Background(), 17*time.Millisecond)
		_, _ = l.Do(ctx, headgate.Call{Key: key, Costs: costs})
		cancel()
		costs[0] = 1
		time.Sleep(30 * time.Millisecond) // the sum goes on
		proxy.Set(redistest.Pass)
	}
}

// TestClosedIsClosed, whatever is known of the key.
func TestClosedIsClosed(t *testing.T) {
	redis, _ := slow(t)
	for _, store := range []backend.Store{memory.New(nil), redis} {
		l := spread(t, store, headgate.FailClosed, 40)
		for range 60 {
			_, _ = l.Allow(context.Background(), "k")
		}
		require.NoError(t, store.Close())
		_, err := l.Allow(context.Background(), "k")
		require.ErrorIs(t, err, headgate.ErrClosed, "%T", store)
	}
}

// TestAResetShowsEverywhere in this process, at once.
func TestAResetShowsEverywhere(t *testing.T) {
	redis, _ := slow(t)
	for _, store := range []backend.Store{memory.New(nil), redis} {
		a, b := spread(t, store, headgate.FailClosed, 40), spread(t, store, headgate.FailClosed, 40)
		for range 60 {
			_, _ = b.Allow(context.Background(), "k")
		}
		require.NoError(t, a.Reset(context.Background(), "k"))
		d, err := b.Allow(context.Background(), "k")
		require.NoError(t, err)
		require.True(t, d.Allowed, "%T", store)
	}
}

// asked counts what reaches a store, and fails as often as it is told to.
type asked struct {
	backend.Store
	n, fail *atomic.Int64
}

func (a asked) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	a.n.Add(1)
	if a.fail.Load() > 0 && a.fail.Add(-1) >= 0 {
		return backend.ErrUnavailable
	}
	return a.Store.Do(ctx, r, d)
}

// TestOneFailureIsOne: what did not answer once is asked again before a
// failure mode applies.
func TestOneFailureIsOne(t *testing.T) {
	var now atomic.Int64
	m := memory.New(&memory.Options{Now: func() time.Time { return time.UnixMicro(now.Load()) }})
	a := asked{m, &atomic.Int64{}, &atomic.Int64{}}
	s := shard.New(breaker.New(a, nil), m)
	ps := spreadList{[]backend.Policy{{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(160)), OnFailure: backend.FailOpen}}, 16}
	call := func() backend.Decision {
		d, err := layer.Ask(context.Background(), s, backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Policies: ps.policies, Shards: ps.k, Cost: 1}})
		require.NoError(t, err)
		return d
	}
	for call().Allowed {
	}
	now.Add(1_100_000) // what is remembered is stale
	a.fail.Store(1)
	opened := 0
	for range 500 {
		if call().Source == backend.FromFailOpen {
			opened++
		}
	}
	require.LessOrEqual(t, opened, 1)
}

// TestASpentKeyIsCheap, however long it is and however many lists there are.
func TestASpentKeyIsCheap(t *testing.T) {
	m := memory.New(nil)
	a := asked{m, &atomic.Int64{}, &atomic.Int64{}}
	s := shard.New(plain{a}, m)
	for size, lists := range map[int]int{10: 300, 1024: 1, 1025: 1, 4000: 1} {
		for list := range lists {
			ps := spreadList{[]backend.Policy{{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(64 + int64(list))), OnFailure: backend.FailOpen}}, 16}
			key := fmt.Sprint(strings.Repeat("k", size), list)
			call := func() bool {
				d, err := layer.Ask(context.Background(), s, backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Policies: ps.policies, Shards: ps.k, Cost: 1}})
				require.NoError(t, err)
				return d.Allowed
			}
			for call() {
			}
			a.n.Store(0)
			for range 50 {
				require.False(t, call())
			}
			require.LessOrEqual(t, a.n.Load(), int64(16), "key of %d bytes, list %d", size, list)
		}
	}
}

// late is a store whose answers take a while to come back.
type late struct{ backend.Store }

func (l late) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	err := l.Store.Do(ctx, r, d)
	time.Sleep(40 * time.Millisecond)
	return err
}

// TestADenialLapsesInTime: what is remembered of a share ends when the share
// has room, however long the answer was on its way.
func TestADenialLapsesInTime(t *testing.T) {
	m := memory.New(nil)
	s := shard.New(plain{late{m}}, m)
	ps := one(algo.FixedWindow(algo.Per(8, 500*time.Millisecond)), 2)
	part := []backend.Policy{{Name: ps.policies[0].Name, Algorithm: ps.policies[0].Algorithm.Part(0, 2)}}
	for range 3 {
		var d backend.Decision
		for d = do(t, shard.New(plain{m}, m), take("k", ps, 1)); d.Allowed; d = do(t, shard.New(plain{m}, m), take("k", ps, 1)) {
		}
		time.Sleep(max(0, d.RetryAfter-60*time.Millisecond))
		for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond / 2) {
			room, err := layer.Ask(context.Background(), m, backend.Request{Op: backend.Peek, Group: backend.Group{
				Key: "k", Sub: shard.Names("k", 2)[0], Policies: part, Cost: 1}})
			require.NoError(t, err)
			if d := do(t, s, take("k", ps, 1)); d.Allowed {
				break
			}
			require.False(t, room.Allowed, "denied from memory while a share had room")
		}
	}
}
