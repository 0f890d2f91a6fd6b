package shard_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/backend/storetest"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/shard"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// longBudget: the budget is not the subject.
const longBudget = 20 * time.Second

// wrappers are what the root puts over a store, but for the deny cache.
func wrappers(s backend.Store) *shard.Store { return shard.New(breaker.New(s, nil), s) }

// both runs the suite on keys that are not spread, and what holds of spread ones.
// Keys that are not spread go through to a store with a suite of its own.
func both(t *testing.T, ks []int, subject func(*testing.T) storetest.Subject) {
	t.Run("Whole", func(t *testing.T) { storetest.Brief(t, storetest.Harness{New: subject}) })
	onSpreadKeys(t, ks, subject)
}

// onSpreadKeys runs what holds of spread keys.
func onSpreadKeys(t *testing.T, ks []int, subject func(*testing.T) storetest.Subject) {
	for _, k := range ks {
		t.Run(fmt.Sprint("Spread", k), func(t *testing.T) {
			storetest.Spread(t, storetest.Harness{New: func(t *testing.T) storetest.Subject {
				s := subject(t)
				s.Cached = true // a verdict that stands is repeated as the deny cache would
				return s
			}}, k)
		})
	}
}

func TestSuiteInMemory(t *testing.T) {
	ks := []int{2}
	if redistest.Long() {
		ks = []int{2, 4, 16}
	}
	both(t, ks, func(t *testing.T) storetest.Subject {
		s, now := over(t)
		return storetest.Subject{Store: s, SetNow: now.Store}
	})
}

// lines leads a client through proxies that can lose replies.
type lines struct {
	t  testing.TB
	mu struct {
		sync.Mutex
		of map[string]*redistest.Proxy
	}
}

func (l *lines) dial(_ context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	if l.mu.of == nil {
		l.mu.of = map[string]*redistest.Proxy{}
	}
	if l.mu.of[addr] == nil {
		l.mu.of[addr] = redistest.NewProxy(l.t, addr)
	}
	to := l.mu.of[addr].Addr()
	l.mu.Unlock()
	return net.Dial(network, to)
}

func (l *lines) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.mu.of {
		p.Set(redistest.ResetAfterRequest.Times(1))
	}
}

// TestSuiteOnAServer differs from TestSuiteOnACluster only in the reset of stored keys
// and lost replies.
func TestSuiteOnAServer(t *testing.T) {
	if !redistest.Long() {
		t.Skip("runs at full length")
	}
	server := redistest.Start(t)
	admin, ctx := server.Client(t), context.Background()
	both(t, []int{4}, func(t *testing.T) storetest.Subject {
		require.NoError(t, admin.FlushDB(ctx).Err())
		var now atomic.Int64
		l := &lines{t: t}
		client := server.Client(t, func(o *redis.Options) { o.Dialer = l.dial })
		store := standalone.New(clock.Client{Processor: client, Now: func() time.Time { return time.UnixMicro(now.Load()) }}, &standalone.Options{Budget: longBudget})
		return storetest.Subject{
			Store: shard.New(faulttest.Attempts{Fallback: breaker.New(store, nil)}, store), SetNow: now.Store, LoseReply: l.lose,
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
		}
	})
	server.NoImmortals(t)
}

// with is a cluster client that is nothing but its options.
type with struct{ *redis.ClusterOptions }

func (w with) Options() *redis.ClusterOptions { return w.ClusterOptions }

func TestSuiteOnACluster(t *testing.T) {
	redistest.Plain(t)
	c := redistest.StartCluster(t)
	admin := c.Client(t)
	run := onSpreadKeys // keys that are not spread are tested in memory, and on a server
	if redistest.Long() {
		run = both
	}
	run(t, []int{4}, func(t *testing.T) storetest.Subject {
		ctx := context.Background()
		require.NoError(t, admin.ForEachMaster(ctx, func(ctx context.Context, n *redis.Client) error { return n.FlushAll(ctx).Err() }))
		var now atomic.Int64
		l := &lines{t: t}
		client := clock.Cluster{
			ClusterOptions: with{&redis.ClusterOptions{Addrs: c.Addrs(), Dialer: l.dial}},
			Now:            func() time.Time { return time.UnixMicro(now.Load()) },
		}
		store := cluster.New(client, &cluster.Options{Budget: longBudget})
		t.Cleanup(func() { _ = store.Close() })
		return storetest.Subject{Store: shard.New(faulttest.Attempts{Fallback: breaker.New(store, nil)}, store), SetNow: now.Store}
	})
	c.NoImmortals(t)
}

// open is cluster.Open with arguments that are right.
func open(addrs []string, o *cluster.Options) *cluster.Store {
	s, err := cluster.Open(addrs, o)
	if err != nil {
		panic(err)
	}
	return s
}
