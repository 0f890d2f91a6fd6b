package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// stillWithin is for what the store does by itself: it ends a test that would
// never end, on a machine that is busy with something else.
const stillWithin = 30 * time.Second

// callAll decides on keys of each primary, and returns the first error.
func callAll(l *headgate.Limiter) error {
	for i := range 30 {
		d, err := l.Allow(context.Background(), fmt.Sprint("key", i))
		if err == nil {
			err = d.Err
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reload makes the store reload its topology: a slot moves between primaries,
// and the next call on that slot gets a MOVED reply.
func reload(t *testing.T, c *redistest.Cluster, l *headgate.Limiter) {
	t.Helper()
	const moved = 8
	to := c.Primary(slot.Count - 1)
	if c.Primary(moved) == to {
		to = c.Primary(0)
	}
	move(t, c, []int{moved}, to)
	_, err := l.Allow(context.Background(), inSlot(moved, 1, "reload")[0])
	require.NoError(t, err)
}

// reloadTwice returns after two answers at least, of six nodes each.
func reloadTwice(t *testing.T, c *redistest.Cluster, l *headgate.Limiter) {
	t.Helper()
	for asked := slotsAsked(t, c); slotsAsked(t, c) < asked+18; {
		reload(t, c, l)
	}
}

// TestDroppedNodesAreClosed: a node that has left the cluster keeps neither a
// client nor a circuit.
func TestDroppedNodesAreClosed(t *testing.T) {
	cluster.Remember(t, 0)
	ctx := context.Background()
	c := redistest.StartCluster(t)
	owner, added := c.Primary(7), c.Grow(t)
	var client atomic.Pointer[redis.Client]
	o := redis.ClusterOptions{Addrs: c.Addrs()[:1], NewClient: func(o *redis.Options) *redis.Client {
		made := redis.NewClient(o)
		if o.Addr == added.Addr() {
			client.Store(made)
		}
		return made
	}}
	store := cluster.New(with{&o}, &cluster.Options{Budget: 500 * time.Millisecond})
	defer store.Close()
	l := faulttest.Limiter(t, store, faulttest.Wide)
	require.NoError(t, callAll(l))
	move(t, c, []int{7}, added)
	_, err := l.Allow(ctx, inSlot(7, 1, "k")[0]) // MOVED names the node
	require.NoError(t, err)
	require.Contains(t, l.Stats().Circuits, added.Addr())
	require.NoError(t, client.Load().Ping(ctx).Err())
	move(t, c, []int{7}, owner)
	c.Forget(t, added)
	require.Eventually(t, func() bool {
		reload(t, c, l)
		_, circuit := l.Stats().Circuits[added.Addr()]
		return !circuit && errors.Is(client.Load().Ping(ctx).Err(), redis.ErrClosed)
	}, stillWithin, 50*time.Millisecond)
	require.NoError(t, callAll(l))
}

// TestDroppedNodesFinishTheirBatches: a batch that is out to a node when the
// topology drops the node gets its reply.
func TestDroppedNodesFinishTheirBatches(t *testing.T) {
	cluster.Remember(t, 0)
	c := redistest.StartCluster(t, "--cluster-allow-replica-migration", "no")
	p := &proxies{t: t}
	o := p.options(c)
	o.Addrs = o.Addrs[:1]
	store := cluster.New(with{o}, patient)
	defer store.Close()
	l := faulttest.Limiter(t, store, faulttest.Wide)
	owner, added := c.Primary(7), c.Grow(t)
	move(t, c, []int{7}, added)
	key := inSlot(7, 1, "k")[0]
	_, err := l.Allow(context.Background(), key)
	require.NoError(t, err)

	held, release := make(chan struct{}, 1), make(chan struct{})
	p.proxy(added.Addr()).Rewrite(func(b []byte) []byte {
		if b[0] == '$' { // a decision; CLUSTER SLOTS has an array
			held <- struct{}{}
			<-release
		}
		return b
	})
	done := make(chan headgate.Decision, 1)
	go func() {
		d, _ := l.Allow(context.Background(), key)
		done <- d
	}()
	<-held
	move(t, c, []int{7}, owner)
	reloadTwice(t, c, l)
	close(release)
	d := <-done
	require.NoError(t, d.Err)
	require.EqualValues(t, 2, faulttest.Used(t, l, key))
}

// TestLeftEndpointsHaveNoCircuit: an endpoint of the store that has died and
// left the cluster keeps no circuit. It keeps its one client, since the store
// still asks it for the slots.
func TestLeftEndpointsHaveNoCircuit(t *testing.T) {
	cluster.Remember(t, 0)
	c := redistest.StartCluster(t)
	victim := c.Primary(0)
	heir := c.Replica(victim)
	var made atomic.Int64
	o := redis.ClusterOptions{Addrs: c.Addrs(), NewClient: func(o *redis.Options) *redis.Client {
		if o.Addr == victim.Addr() {
			made.Add(1)
		}
		return redis.NewClient(o)
	}}
	store := cluster.New(with{&o}, &cluster.Options{Budget: 2 * time.Second})
	defer store.Close()
	l := faulttest.Limiter(t, store, faulttest.Wide)
	require.NoError(t, callAll(l))
	require.Contains(t, l.Stats().Circuits, victim.Addr())
	first := made.Load() // two, where two goroutines made one at once: the second is closed
	victim.Kill()
	require.Error(t, callAll(l), "the circuit has seen the node fail")
	promote(t, heir, "TAKEOVER")
	c.Forget(t, victim)
	require.Eventually(t, func() bool {
		reload(t, c, l)
		_, circuit := l.Stats().Circuits[victim.Addr()]
		return !circuit && callAll(l) == nil
	}, stillWithin, 50*time.Millisecond)
	reloadTwice(t, c, l)
	require.Equal(t, first, made.Load())
}

// TestSlotsWithoutANode: a call on a slot that has lost its node, and whose
// node has left, gets an error that says so, and not one of a closed client.
func TestSlotsWithoutANode(t *testing.T) {
	cluster.Remember(t, 0)
	c := redistest.SharedCluster(t)
	var whole atomic.Bool
	whole.Store(true)
	slots := func(context.Context) ([]redis.ClusterSlot, error) {
		// The first slots are not where the map says: MOVED replies make the store reload.
		slots := []redis.ClusterSlot{{Start: -1, End: 10_000, Nodes: []redis.ClusterNode{{Addr: c.Primary(8000).Addr()}}}}
		if whole.Load() {
			slots = append(slots, redis.ClusterSlot{Start: 11_000, End: 16_383, Nodes: []redis.ClusterNode{{Addr: c.Primary(11_000).Addr()}}})
		}
		return slots, nil
	}
	store := cluster.New(with{&redis.ClusterOptions{ClusterSlots: slots}}, &cluster.Options{Budget: time.Second})
	defer store.Close()
	l := faulttest.Limiter(t, store, faulttest.Wide)
	key := inSlot(12_000, 1, "k")[0]
	d, err := l.Allow(context.Background(), key)
	require.NoError(t, err)
	require.NoError(t, d.Err)
	whole.Store(false)
	moved := 0
	require.Eventually(t, func() bool {
		_, err := l.Allow(context.Background(), inSlot(moved, 1, "k")[0])
		require.NoError(t, err)
		moved++
		_, circuit := l.Stats().Circuits[c.Primary(11_000).Addr()]
		return !circuit
	}, stillWithin, 50*time.Millisecond)
	d, err = l.Allow(context.Background(), key)
	require.NoError(t, err)
	require.ErrorContains(t, d.Err, "no node is known for slot 12000")
}

// TestUnknownEndpoint: the nodes announce no host, neither in CLUSTER SLOTS nor
// in a redirect. The host is that of the node that answered.
func TestUnknownEndpoint(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, "--cluster-preferred-endpoint-type", "unknown-endpoint")
	store, err := cluster.Open(c.Addrs()[:1], patient)
	require.NoError(t, err)
	defer store.Close()
	l := faulttest.Limiter(t, store, faulttest.Wide)
	require.NoError(t, callAll(l))
	keys := inSlot(7, 3, "k")
	allow := func(key string) {
		t.Helper()
		d, err := l.Allow(context.Background(), key)
		require.NoError(t, err)
		require.NoError(t, d.Err)
	}
	allow(keys[0])
	to := c.Primary(slot.Count - 1)
	m := beginMove(t, c, 7, to)
	allow(keys[1]) // ASK
	require.Positive(t, to.CommandStats(t)["asking"].Calls)
	m.end(t)
	allow(keys[2]) // MOVED
	_, err = l.Ping(context.Background())
	require.NoError(t, err)
}

// TestCauseOfUnknownSlots: where nobody names the slots, Err says why.
func TestCauseOfUnknownSlots(t *testing.T) {
	alone := redistest.Shared(t).Addr()
	fails := func(context.Context) ([]redis.ClusterSlot, error) { return nil, errors.New("no map today") }
	panics := func(context.Context) ([]redis.ClusterSlot, error) { panic("no map ever") }
	none := func(*redis.Options) *redis.Client { return nil }
	for _, c := range []struct {
		cause string
		opts  redis.ClusterOptions
	}{
		{"connection refused", redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}},
		{"cluster support disabled", redis.ClusterOptions{Addrs: []string{alone}}},
		{"no map today", redis.ClusterOptions{ClusterSlots: fails}},
		{"no map ever", redis.ClusterOptions{ClusterSlots: panics}},
		{"NewClient returned no client for " + alone, redis.ClusterOptions{Addrs: []string{alone}, NewClient: none}},
	} {
		store := cluster.New(with{&c.opts}, &cluster.Options{Budget: time.Second})
		l := faulttest.Limiter(t, store, faulttest.Wide)
		for range 2 { // the second call comes too soon for another reload
			d, err := l.Allow(context.Background(), "k")
			require.NoError(t, err)
			require.ErrorIs(t, d.Err, headgate.ErrUnavailable)
			require.ErrorContains(t, d.Err, c.cause)
		}
		require.NoError(t, store.Close())
	}
}

// TestMappedAddresses: behind address translation the user's NewClient, or the
// user's ClusterSlots, names the addresses to dial.
func TestMappedAddresses(t *testing.T) {
	c := redistest.SharedCluster(t)
	var p proxies
	p.t = t
	var made atomic.Int64
	third := slot.Count/3 + 1
	slots := func(context.Context) (slots []redis.ClusterSlot, err error) {
		for start := 0; start < slot.Count; start += third {
			primary := redis.ClusterNode{Addr: p.proxy(c.Primary(start).Addr()).Addr()}
			end := min(start+third, slot.Count) - 1
			slots = append(slots, redis.ClusterSlot{Start: start, End: end, Nodes: []redis.ClusterNode{primary}})
		}
		return slots, nil
	}
	newClient := func(o *redis.Options) *redis.Client {
		made.Add(1)
		o.Addr = p.proxy(o.Addr).Addr()
		return redis.NewClient(o)
	}
	for _, o := range []redis.ClusterOptions{{ClusterSlots: slots}, {Addrs: c.Addrs()[:1], NewClient: newClient}} {
		// A cluster client fills in what its options leave out.
		client := redis.NewClusterClient(&o)
		store := cluster.New(client, patient)
		seen := p.Seen()
		require.NoError(t, callAll(faulttest.Limiter(t, store, faulttest.Wide)))
		require.GreaterOrEqual(t, p.Seen()-seen, 30, "all calls took the mapped addresses")
		require.NoError(t, store.Close())
		require.NoError(t, client.Close())
	}
	require.EqualValues(t, 3, made.Load(), "one client per primary")
}
