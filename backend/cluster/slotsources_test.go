package cluster_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// slower delays the answers for the slots of all nodes but first.
func slower(c *redistest.Cluster, p *proxies, first *redistest.Server) {
	for _, n := range c.Nodes() {
		p.proxy(n.Addr()).Rewrite(func(b []byte) []byte {
			if b[0] == '*' && n != first { // CLUSTER SLOTS
				time.Sleep(50 * time.Millisecond)
			}
			return b
		})
	}
}

// asks returns how often the node was asked for the slots.
func asks(t *testing.T, n *redistest.Server) int64 {
	time.Sleep(50 * time.Millisecond) // a store asks four times per second at most
	return n.CommandStats(t)["cluster|slots"].Calls
}

// TestReusedAddress: the address of a node leads to a node of another cluster, which
// answers first for the slots. Keys of the other nodes keep their counts.
func TestReusedAddress(t *testing.T) {
	c := redistest.SharedCluster(t)
	p := proxies{t: t}
	left, stranger := c.Primary(0), redistest.Start(t, "--cluster-enabled", "yes")
	require.NoError(t, command(stranger, "CLUSTER", "ADDSLOTSRANGE", 0, slot.Count-1).Err())
	var reused atomic.Bool
	o := redis.ClusterOptions{Addrs: []string{c.Primary(8000).Addr()}, Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
		if addr == left.Addr() && reused.Load() {
			return net.Dial(network, stranger.Addr())
		}
		return net.Dial(network, p.proxy(addr).Addr())
	}}
	store := cluster.New(with{&o}, patient)
	defer store.Close()
	l := faulttest.Limiter(t, store, faulttest.Wide)
	require.NoError(t, callAll(l))
	key := inSlot(8000, 1, "k")[0]
	_, err := l.Allow(t.Context(), key)
	require.NoError(t, err)
	slower(c, &p, nil)
	reused.Store(true)
	require.NoError(t, command(left, "CLIENT", "KILL", "TYPE", "normal").Err())
	for asks(t, stranger) < 2 {
		_, _ = store.Stored(t.Context(), key) // reloads the slots
		require.EqualValues(t, 1, faulttest.Used(t, l, key))
	}
}

// TestNoHostname: the nodes should announce hostnames and have none, so "?" stands
// in CLUSTER SLOTS and in MOVED. The endpoint is no way to the other nodes.
func TestNoHostname(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, "--cluster-preferred-endpoint-type", "hostname")
	o := redis.ClusterOptions{Addrs: []string{"endpoint.test:1"}, Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
		if addr == "endpoint.test:1" {
			addr = c.Addrs()[0]
		}
		return net.Dial(network, addr)
	}}
	for o.Protocol = 2; o.Protocol <= 3; o.Protocol++ {
		store := cluster.New(with{&o}, patient)
		defer store.Close()
		l := faulttest.Limiter(t, store, faulttest.Wide)
		require.NoError(t, callAll(l))
		to := c.Primary(slot.Count - 1)
		if o.Protocol == 3 {
			to = c.Primary(0)
		}
		move(t, c, []int{7}, to)
		d, err := l.Allow(context.Background(), inSlot(7, 1, "k")[0])
		require.NoError(t, err)
		require.NoError(t, d.Err)
	}
}

// TestAnswersInPart: a node that knows only some of the others answers first for the
// slots. The nodes that it leaves out are not dropped.
func TestAnswersInPart(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	p := proxies{t: t}
	store := cluster.New(with{p.options(c)}, patient)
	defer store.Close()
	l := faulttest.Limiter(t, store, faulttest.Wide)
	require.NoError(t, callAll(l))
	first, left := c.Replica(c.Primary(0)), c.Primary(slot.Count-1)
	for _, n := range []*redistest.Server{c.Replica(left), left} {
		require.NoError(t, command(first, "CLUSTER", "FORGET", id(t, n)).Err())
	}
	slower(c, &p, first)
	for before := asks(t, first); asks(t, first) < before+2; {
		_, _ = store.Stored(t.Context(), "k") // reloads the slots
		require.NoError(t, callAll(l))
	}
}

// TestWaitForSlotsIsOfTheBudget: what a call waits for the first answer of the cluster
// is a part of its budget, and requests that are made together wait together.
func TestWaitForSlotsIsOfTheBudget(t *testing.T) {
	s := redistest.Start(t, "--cluster-enabled", "yes")
	s.Stop()
	t.Cleanup(s.Cont)
	const budget = 400 * time.Millisecond
	var answers atomic.Bool
	o := redis.ClusterOptions{ClusterSlots: func(ctx context.Context) ([]redis.ClusterSlot, error) {
		if answers.Load() {
			time.Sleep(budget * 3 / 4)
			return []redis.ClusterSlot{{Start: 0, End: slot.Count - 1, Nodes: []redis.ClusterNode{{Addr: s.Addr()}}}}, nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	store := cluster.New(with{&o}, &cluster.Options{Budget: budget})
	defer store.Close()
	spread, err := faulttest.Limiter(t, store, faulttest.Wide).WithShards(8)
	require.NoError(t, err)
	unavailable := func(f func() (headgate.Decision, error)) {
		t.Helper()
		late, begin := redistest.Lateness(t, budget), time.Now()
		d, err := f()
		took := time.Since(begin)
		require.NoError(t, err)
		require.ErrorIs(t, d.Err, headgate.ErrUnavailable)
		require.Less(t, took, budget*3/2+late.Max(), "two budgets would be too long")
	}
	unavailable(func() (headgate.Decision, error) {
		return spread.Peek(t.Context(), headgate.Call{Key: "k"})
	})
	answers.Store(true)
	time.Sleep(budget) // the reload has ended, and another one may begin
	unavailable(func() (headgate.Decision, error) {
		return faulttest.Limiter(t, store, faulttest.Wide).Peek(t.Context(), headgate.Call{Key: "k"})
	})
}

// TestKnownSlotsDontWait: requests that are made together with others, whose nodes are not
// known yet, are decided before those.
func TestKnownSlotsDontWait(t *testing.T) {
	server := redistest.Start(t, "--cluster-enabled", "yes")
	require.NoError(t, command(server, "CLUSTER", "ADDSLOTSRANGE", 0, slot.Count-1).Err())
	var asked atomic.Int64
	all := make(chan struct{})
	o := redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		end := slot.Count / 2
		if asked.Add(1) > 1 {
			<-all
			end = slot.Count - 1
		}
		return []redis.ClusterSlot{{Start: 0, End: end, Nodes: []redis.ClusterNode{{Addr: server.Addr()}}}}, nil
	}}
	store := cluster.New(with{&o}, patient)
	defer store.Close()
	l, known, unknown := faulttest.Limiter(t, store, faulttest.Wide), inSlot(1, 1, "k")[0], inSlot(slot.Count-1, 1, "k")[0]
	require.Zero(t, faulttest.Used(t, l, known))
	time.Sleep(300 * time.Millisecond) // then the slots may be loaded again
	rs, answers, done := make([]backend.Request, 2), make([]backend.Answer, 2), make(chan struct{})
	for i, key := range []string{unknown, known} {
		rs[i] = backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Policies: l.Policies(), Cost: 1}}
	}
	go func() {
		defer close(done)
		store.DoAll(context.Background(), rs, answers)
	}()
	require.Eventually(t, func() bool { return faulttest.Used(t, l, known) == 1 }, 5*time.Second, time.Millisecond)
	close(all)
	<-done
	for i := range answers {
		require.NoError(t, answers[i].Err)
		require.True(t, answers[i].Decision.Allowed)
	}
}

// TestServedSlotsLeaveFirst: of requests that are made together on slots without a known node,
// those that an answer in part serves don't wait for the others. What they have waited is a part of
// their budget, also if their node is known by the time they look for it.
func TestServedSlotsLeaveFirst(t *testing.T) {
	server := redistest.Start(t, "--cluster-enabled", "yes")
	silent := redistest.Start(t, "--cluster-enabled", "yes")
	for start, end := range map[int]int{0: 99, 200: slot.Count - 1} {
		require.NoError(t, command(server, "CLUSTER", "ADDSLOTSRANGE", start, end).Err())
	}
	require.NoError(t, command(server, "CONFIG", "SET", "cluster-require-full-coverage", "no").Err())
	require.Eventually(t, func() bool {
		info, err := command(server, "CLUSTER", "INFO").Text()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	}, 10*time.Second, 10*time.Millisecond)
	silent.Stop()
	t.Cleanup(silent.Cont)
	const budget = 400 * time.Millisecond
	store, err := cluster.Open([]string{silent.Addr(), server.Addr()}, &cluster.Options{Budget: budget})
	require.NoError(t, err)
	defer store.Close()
	rs, answers := make([]backend.Request, 2), make([]backend.Answer, 2)
	for i, key := range []string{inSlot(150, 1, "k")[0], inSlot(300, 1, "k")[0]} {
		rs[i] = backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Policies: faulttest.Limiter(t, store, faulttest.Wide).Policies(), Cost: 1}}
	}
	late, begin := redistest.Lateness(t, budget), time.Now()
	store.DoAll(t.Context(), rs, answers)
	took := time.Since(begin)
	require.Less(t, took, budget*3/2+late.Max(), "two budgets would be too long")
	require.ErrorIs(t, answers[0].Err, backend.ErrUnavailable)
	require.NotErrorIs(t, answers[0].Err, context.DeadlineExceeded)
	require.NoError(t, answers[1].Err)
	require.True(t, answers[1].Decision.Allowed)
}

// TestUnknownSlotsInOneBatch: requests that are made together before a node is known leave together,
// one batch to each node.
func TestUnknownSlotsInOneBatch(t *testing.T) {
	c := redistest.SharedCluster(t)
	var sent trips
	o := redis.ClusterOptions{Addrs: c.Addrs(), NewClient: func(o *redis.Options) *redis.Client {
		n := redis.NewClient(o)
		n.AddHook(&sent)
		return n
	}}
	store := cluster.New(with{&o}, patient)
	defer store.Close()
	policies := faulttest.Limiter(t, store, faulttest.Wide).Policies()
	rs, answers := make([]backend.Request, 48), make([]backend.Answer, 48)
	for i := range rs {
		rs[i] = backend.Request{Op: backend.Take, Group: backend.Group{Key: fmt.Sprint("unknown slots ", i), Policies: policies, Cost: 1}}
	}
	store.DoAll(t.Context(), rs, answers)
	for i := range answers {
		require.NoError(t, answers[i].Err)
	}
	require.Positive(t, sent.Load())
	require.LessOrEqual(t, sent.Load(), int64(9), "a node may be named by a second answer, and lack the script")
}

// trips counts the pipelines and the commands that call the script.
type trips struct{ atomic.Int64 }

func (n *trips) count(cmds ...redis.Cmder) {
	if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Name() == "evalsha" }) {
		n.Add(1)
	}
}

func (n *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n.count(cmd)
		return next(ctx, cmd)
	}
}

func (n *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n.count(cmds...)
		return next(ctx, cmds)
	}
}

// TestUnservedIsNoDeadline: a call on a slot of which no node has answered in time has an error
// that names the budget. It is not that of a caller's deadline.
func TestUnservedIsNoDeadline(t *testing.T) {
	server := redistest.Start(t, "--cluster-enabled", "yes")
	server.Stop()
	t.Cleanup(server.Cont)
	store, err := cluster.Open([]string{server.Addr()}, nil)
	require.NoError(t, err)
	defer store.Close()
	l := faulttest.Limiter(t, store, faulttest.Wide)
	for range 10 {
		d, err := l.Allow(t.Context(), "k")
		require.NoError(t, err)
		require.ErrorIs(t, d.Err, headgate.ErrUnavailable)
		require.NotErrorIs(t, d.Err, context.DeadlineExceeded)
		require.NotContains(t, d.Err.Error(), "deadline")
		time.Sleep(50 * time.Millisecond)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	time.Sleep(250 * time.Millisecond)
	_, err = l.Allow(short, "k")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
