package denial_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/backend/storetest"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/internal/denial"
	"github.com/headgate-go/headgate/internal/joint"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/settlement"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// patient: the budget is not the subject.
var patient = &standalone.Options{Budget: 20 * time.Second}

// wrapper is the deny cache over the layers below it, without failure modes.
func wrapper(store *standalone.Store, d time.Duration) *denial.Store {
	attempts := faulttest.Attempts{Fallback: breaker.New(store, nil)}
	return denial.New(joint.New(attempts, attempts, store, settlement.NewBackground()), store.Shared(), d)
}

// subject is the wrappers in the root's order, on a real server whose clock
// the suite sets, and which a proxy can break.
func subject(t *testing.T, server *redistest.Server, d time.Duration) storetest.Subject {
	admin, ctx := server.Client(t), context.Background()
	require.NoError(t, admin.FlushDB(ctx).Err())
	proxy := redistest.NewProxy(t, server.Addr())
	client := server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })
	var now atomic.Int64
	virtual := func() time.Time { return time.UnixMicro(now.Load()) }
	store := standalone.New(clock.Client{Processor: client, Now: virtual}, patient)
	return storetest.Subject{
		Store:  wrapper(store, d),
		Cached: d > 0,
		SetNow: now.Store,
		Expiries: func() map[string]time.Duration {
			m := map[string]time.Duration{}
			for _, k := range admin.Keys(ctx, "*").Val() {
				m[k] = admin.PTTL(ctx, k).Val()
				for _, f := range admin.HKeys(ctx, k).Val() { // none of a log
					m[k+" "+f] = m[k]
				}
			}
			return m
		},
		Corrupt: func(key string, ps []backend.Policy) {
			hash := "headgate:{" + slot.Tag(key, "") + "}"
			for _, p := range ps {
				if p.Algorithm.Kind().Storage() == rule.StoredApart {
					for _, log := range admin.Keys(ctx, hash+":"+p.Algorithm.Kind().Mark()+":*/"+p.Name).Val() {
						admin.Set(ctx, log, "garbage", time.Hour)
					}
				}
			}
			for _, f := range admin.HKeys(ctx, hash).Val() {
				admin.HSet(ctx, hash, f, "garbage")
			}
		},
		LoseReply: func() { proxy.Set(redistest.ResetAfterRequest.Times(1)) },
	}
}

// TestSuite runs the cases for the race detector, and TestSuiteWhole the others without it.
func TestSuite(t *testing.T) {
	server := redistest.Start(t)
	storetest.Raced(t, storetest.Harness{New: func(t *testing.T) storetest.Subject { return subject(t, server, time.Second) }})
}

// TestSuiteWhole: with the cache on, what it answers is held to the contract too;
// off, the wrapper is not there.
func TestSuiteWhole(t *testing.T) {
	redistest.Plain(t)
	server := redistest.Start(t)
	for name, d := range map[string]time.Duration{"On": time.Second, "Off": -1} {
		answered := int64(0)
		t.Run(name, func(t *testing.T) {
			if d < 0 && !redistest.Long() {
				t.Skip("at full length")
			}
			storetest.Brief(t, storetest.Harness{New: func(t *testing.T) storetest.Subject {
				s := subject(t, server, d)
				t.Cleanup(func() { answered += s.Store.(*denial.Store).Answered() })
				return s
			}})
		})
		require.Equal(t, d > 0, answered > 100, "%s: %d answers", name, answered)
	}
	server.NoImmortals(t)
}

// TestTwins: whatever a random history asks, what the cache denies the store
// would have denied too, and all else is the store's. The clock never steps
// back, as the one that counts an entry's time in production can't.
func TestTwins(t *testing.T) {
	redistest.Plain(t)
	s := trace.Steady(redistest.Seed(t))
	server := redistest.Start(t)
	store := standalone.New(clock.Client{Processor: server.Client(t), Now: func() time.Time { return time.UnixMicro(s.Now()) }}, patient)
	wrapper := wrapper(store, time.Second)
	model, said := trace.NewModel(s.Now), 0
	steps := redistest.Steps(5_000, 20_000)
	for i := 0; i < steps || said <= steps/200 && i < 20*steps; i++ { // some histories deny little
		r := s.Next()
		want, got := trace.Ask(context.Background(), model, r), trace.Ask(context.Background(), wrapper, r)
		if got.Decision.Source == backend.FromDenyCache {
			said++
			require.False(t, want.Decision.Allowed, "step %d at %d: %v %+v", i, s.Now(), r.Op, r.Group)
			continue
		}
		require.NoError(t, trace.Same(want, got), "step %d at %d: %v %+v", i, s.Now(), r.Op, r.Group)
	}
	require.Greater(t, said, steps/1000, "answers from the cache")
}

// TestStoresTell what the cache asks of them, also before any server answers.
func TestStoresTell(t *testing.T) {
	at := time.Unix(1_745_000_000, 0)
	now := func() time.Time { return at }
	client, addrs := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), &redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}
	defer client.Close()
	nodes := redis.NewClusterClient(addrs)
	defer nodes.Close()
	for _, s := range []struct{ virtual, real backend.Store }{
		{standalone.New(clock.Client{Processor: client, Now: now}, nil), standalone.New(client, nil)},
		{cluster.New(clock.Cluster{ClusterOptions: nodes, Now: now}, nil), cluster.New(nodes, nil)},
	} {
		require.Equal(t, at, layer.Of(s.virtual).Clock())
		shared := layer.Of(s.real)
		require.Nil(t, shared.Clock, "the process' own")
		require.False(t, shared.Local)
		require.Equal(t, standalone.DefaultBudget, shared.Budget)
		require.False(t, shared.Closed.Load())
		require.NoError(t, s.real.Close())
		require.True(t, shared.Closed.Load())
	}
}
