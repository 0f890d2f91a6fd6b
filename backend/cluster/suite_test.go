package cluster_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/backend/storetest"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// patient is for tests that keep both cores busy: the budget is not their
// subject.
var patient = &cluster.Options{Budget: 20 * time.Second}

// patientAlone is patient, with a round trip for every call.
var patientAlone = &cluster.Options{Budget: 20 * time.Second, DisableBatching: true}

// proxies stand before the nodes of a cluster, which announce their own
// addresses: the dialer leads past that.
type proxies struct {
	t     testing.TB
	fault atomic.Pointer[redistest.Fault] // of Set, for nodes that are met later too
	mu    struct {
		sync.Mutex
		of map[string]*redistest.Proxy
	}
}

func (p *proxies) proxy(addr string) *redistest.Proxy {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.of == nil {
		p.mu.of = map[string]*redistest.Proxy{}
	}
	if p.mu.of[addr] == nil {
		p.mu.of[addr] = redistest.NewProxy(p.t, addr)
		if f := p.fault.Load(); f != nil {
			p.mu.of[addr].Set(*f)
		}
	}
	return p.mu.of[addr]
}

func (p *proxies) dial(_ context.Context, network, addr string) (net.Conn, error) {
	return net.Dial(network, p.proxy(addr).Addr())
}

// each does f with every proxy.
func (p *proxies) each(f func(*redistest.Proxy)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, proxy := range p.mu.of {
		f(proxy)
	}
}

func (p *proxies) hit() (n int) {
	p.each(func(p *redistest.Proxy) { n += p.Hit() })
	return n
}

// options lead to the cluster through p.
func (p *proxies) options(c *redistest.Cluster) *redis.ClusterOptions {
	return &redis.ClusterOptions{Addrs: c.Addrs(), Dialer: p.dial}
}

// with is a Client that is nothing but its options.
type with struct{ *redis.ClusterOptions }

func (w with) Options() *redis.ClusterOptions { return w.ClusterOptions }

func subject(t *testing.T, c *redistest.Cluster, admin *redis.ClusterClient, o *cluster.Options) storetest.Subject {
	ctx := context.Background()
	require.NoError(t, admin.ForEachMaster(ctx, func(ctx context.Context, n *redis.Client) error { return n.FlushAll(ctx).Err() }))
	p := &proxies{t: t}
	var now atomic.Int64
	virtual := func() time.Time { return time.UnixMicro(now.Load()) }
	return storetest.Subject{
		Store:    cluster.New(clock.Cluster{ClusterOptions: with{p.options(c)}, Now: virtual}, o),
		SetNow:   now.Store,
		Expiries: func() map[string]time.Duration { return expiries(admin) },
		Corrupt:  func(key string, ps []backend.Policy) { corrupt(admin, key, ps) },
		LoseReply: func() {
			p.each(func(p *redistest.Proxy) { p.Set(redistest.ResetAfterRequest.Times(1)) })
		},
	}
}

func expiries(c *redis.ClusterClient) map[string]time.Duration {
	m, mu := map[string]time.Duration{}, sync.Mutex{}
	_ = c.ForEachMaster(context.Background(), func(ctx context.Context, n *redis.Client) error {
		for _, k := range n.Keys(ctx, "*").Val() {
			mu.Lock()
			m[k] = n.PTTL(ctx, k).Val()
			for _, f := range n.HKeys(ctx, k).Val() { // none of a log
				m[k+" "+f] = m[k]
			}
			mu.Unlock()
		}
		return nil
	})
	return m
}

// corrupt writes what is no state into every policy's place.
func corrupt(c *redis.ClusterClient, key string, ps []backend.Policy) {
	ctx, tag := context.Background(), names.Tag(key, "")
	hash := names.DefaultPrefix.Hash(tag)
	for i := range ps {
		if ps[i].Algorithm.Kind().Storage() == rule.StoredApart {
			c.Set(ctx, names.DefaultPrefix.Log(tag, &ps[i]), "garbage", time.Hour)
		}
	}
	for _, f := range c.HKeys(ctx, hash).Val() {
		c.HSet(ctx, hash, f, "garbage")
	}
}

// TestSuite runs the cases for the race detector. TestSuiteWhole runs the others without it:
// backend/standalone has them under it, and passes requests by the same code.
func TestSuite(t *testing.T) {
	c := redistest.SharedCluster(t)
	admin := c.Client(t)
	storetest.Raced(t, storetest.Harness{New: func(t *testing.T) storetest.Subject { return subject(t, c, admin, patient) }})
	c.NoImmortals(t)
}

// TestSuiteWhole runs the contract on the bare store and on the breaker over it:
// where nothing fails they answer alike. backend/standalone decides by the same
// scripts and passes all of it.
func TestSuiteWhole(t *testing.T) {
	redistest.Plain(t)
	c := redistest.SharedCluster(t)
	admin := c.Client(t)
	t.Run("Bare", func(t *testing.T) {
		storetest.Brief(t, storetest.Harness{New: func(t *testing.T) storetest.Subject { return subject(t, c, admin, patient) }})
	})
	// The modes differ in how calls reach a node, which Brief's cases show.
	t.Run("Alone", func(t *testing.T) {
		if !redistest.Long() {
			t.Skip("at full length; backend/standalone has it too, and the tests of faults have this mode here")
		}
		storetest.Brief(t, storetest.Harness{New: func(t *testing.T) storetest.Subject { return subject(t, c, admin, patientAlone) }})
	})
	t.Run("ThroughBreaker", func(t *testing.T) {
		if !redistest.Long() {
			t.Skip("at full length; backend/standalone has it too")
		}
		storetest.Run(t, storetest.Harness{New: func(t *testing.T) storetest.Subject {
			s := subject(t, c, admin, patient)
			s.Store = faulttest.Attempts{Fallback: breaker.New(s.Store, nil)}
			return s
		}})
	})
	t.Run("Twins", func(t *testing.T) { twins(t, c, admin) })
	c.NoImmortals(t)
}

func twins(t *testing.T, c *redistest.Cluster, admin *redis.ClusterClient) {
	s := trace.New(redistest.Seed(t))
	store := cluster.New(clock.Cluster{ClusterOptions: admin, Now: func() time.Time { return time.UnixMicro(s.Now()) }}, patient)
	defer store.Close()
	model := trace.NewModel(s.Now)
	for i := range redistest.Steps(1_500, 100_000) {
		r := s.Next()
		want, got := trace.Ask(context.Background(), model, r), trace.Ask(context.Background(), store, r)
		require.NoError(t, trace.Same(want, got), "step %d at %d: %v %+v", i, s.Now(), r.Op, r.Group)
	}
}

// client is a plain client that finds its way by any living node.
func client(addrs []string) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, DialTimeout: 100 * time.Millisecond, ReadTimeout: 100 * time.Millisecond})
}

// open is cluster.Open with arguments that are right.
func open(addrs []string, o *cluster.Options) *cluster.Store {
	s, err := cluster.Open(addrs, o)
	if err != nil {
		panic(err)
	}
	return s
}
