package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/backend/storetest"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestSuite: over a store that never fails, the layer changes nothing.
func TestSuite(t *testing.T) {
	storetest.Brief(t, storetest.Harness{New: func(*testing.T) storetest.Subject {
		var now atomic.Int64
		s := memory.New(&memory.Options{Now: func() time.Time { return time.UnixMicro(now.Load()) }})
		return storetest.Subject{Store: breaker.New(s, nil), SetNow: now.Store}
	}})
}

var policy = headgate.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.Per(10, algo.MaxPeriod)), OnFailure: headgate.FailClosed}

// changes notes what an observer is told.
type changes struct {
	mu struct {
		sync.Mutex
		told    []string
		sources map[headgate.Source]int
	}
}

func (c *changes) observe(e headgate.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case e.Type == headgate.EventCircuit:
		c.mu.told = append(c.mu.told, e.Circuit.From+" to "+e.Circuit.To)
	case e.Type == headgate.EventDecision && e.Err == nil:
		if c.mu.sources == nil {
			c.mu.sources = map[headgate.Source]int{}
		}
		c.mu.sources[e.Decision.Source]++
	}
}

func (c *changes) list() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.mu.told...)
}

// rig is a limiter on a server behind a proxy.
type rig struct {
	*headgate.Limiter
	client *redis.Client
	server *redistest.Server
	proxy  *redistest.Proxy
	seen   *changes
}

func build(t *testing.T, o *standalone.Options, tune ...func(*redis.Options)) *rig {
	t.Helper()
	r := &rig{server: redistest.Start(t), seen: &changes{}}
	r.proxy = redistest.NewProxy(t, r.server.Addr())
	opts := &redis.Options{Addr: r.proxy.Addr()}
	for _, f := range tune {
		f(opts)
	}
	r.client = redis.NewClient(opts)
	t.Cleanup(func() { _ = r.client.Close() })
	var err error
	r.Limiter, err = headgate.New(standalone.New(r.client, o), []headgate.Policy{policy}, &headgate.Options{Observer: r.seen.observe})
	require.NoError(t, err)
	_, err = r.Allow(context.Background(), "loads the script")
	require.NoError(t, err)
	return r
}

func (r *rig) state() string {
	for _, s := range r.Stats().Circuits {
		return s
	}
	return "none"
}

// opens waits for the verdict on the last round trip.
func (r *rig) opens(t *testing.T) {
	require.Eventually(t, func() bool { return r.state() == "open" }, 10*time.Second, time.Millisecond)
}

// opensSoon calls until the circuit is open: a call that a busy machine sent too late
// for its budget is no failure of the store's.
func (r *rig) opensSoon(t *testing.T) {
	require.Eventually(t, func() bool {
		_, _ = r.Allow(context.Background(), "k")
		return r.state() == "open"
	}, 30*time.Second, time.Millisecond)
}

// many calls from many callers, each with a context of its own making.
func many(n, callers int, call func(i int)) {
	var next atomic.Int64
	faulttest.Go(callers, func(int) {
		for i := next.Add(1); i <= int64(n); i = next.Add(1) {
			call(int(i))
		}
	})()
}

// TestDenialsAreSuccesses: denials are a store at work.
func TestDenialsAreSuccesses(t *testing.T) {
	n := redistest.Steps(20_000, 1_000_000)
	r := build(t, &standalone.Options{Budget: 10 * time.Second})
	_, err := r.AllowN(context.Background(), "k", 10)
	require.NoError(t, err)
	r.proxy.Set(redistest.Pass)
	direct := headgateOn(t, r.server)
	many(n, 64, func(int) {
		if d, err := direct.Allow(context.Background(), "k"); err != nil || d.Allowed || d.Err != nil {
			t.Error(err, d)
		}
	})
	for _, s := range direct.Stats().Circuits {
		require.Equal(t, "closed", s)
	}
}

func headgateOn(t *testing.T, s *redistest.Server) *headgate.Limiter {
	l, err := headgate.New(standalone.New(s.Client(t), &standalone.Options{Budget: 10 * time.Second}), []headgate.Policy{policy}, &headgate.Options{DenyCacheTTL: -1})
	require.NoError(t, err)
	return l
}

// TestOneLostBatchLeavesItClosed: one failed round trip is no outage.
func TestOneLostBatchLeavesItClosed(t *testing.T) {
	r := build(t, &standalone.Options{Budget: 10 * time.Second})
	r.proxy.Set(redistest.ResetAfterRequest.Times(1))
	d, err := r.Allow(context.Background(), "k")
	require.NoError(t, err)
	require.ErrorIs(t, d.Err, headgate.ErrPerhapsCounted)
	require.Equal(t, "closed", r.state())
	recovers(t, r)
}

// recovers: the store serves again within a few open times.
func recovers(t *testing.T, r *rig) {
	require.Eventually(t, func() bool {
		d, err := r.Allow(context.Background(), "another")
		return err == nil && d.Source == headgate.FromStore
	}, 10*time.Second, 20*time.Millisecond)
	require.Eventually(t, func() bool { return r.state() == "closed" }, 5*time.Second, 10*time.Millisecond)
}

// TestOpensAndCloses: five in a row open the circuit, an open one answers at
// once, and the observer is told of each step.
func TestOpensAndCloses(t *testing.T) {
	r := build(t, &standalone.Options{Budget: time.Second})
	r.proxy.Set(redistest.ResetAfterRequest)
	perhaps := 0
	for i := 0; i < 5 || r.state() == "closed"; i++ { // more, where a busy machine sent one too late
		if i == 4 {
			r.server.Stop() // or it would answer a probe
		}
		d, err := r.Allow(context.Background(), "k")
		require.NoError(t, err)
		if errors.Is(d.Err, headgate.ErrPerhapsCounted) {
			perhaps++
		}
	}
	r.opens(t)
	seen := r.proxy.Seen()
	late, begin := redistest.Lateness(t, 0), time.Now()
	for range 100 {
		d, err := r.Allow(context.Background(), "k")
		require.NoError(t, err)
		require.Equal(t, headgate.FromFailClosed, d.Source)
		require.ErrorIs(t, d.Err, headgate.ErrUnavailable, "nothing was sent, so nothing was counted")
	}
	took := time.Since(begin)
	require.Less(t, took, 2*time.Second+late.Max(), "a hundred answers: each would take a second, or wait for a probe")
	require.Equal(t, seen, r.proxy.Seen(), "an open circuit sends nothing")
	r.proxy.Set(redistest.Pass)
	r.server.Cont()
	recovers(t, r)
	changes := []string{"closed to open", "open to half_open", "half_open to closed"}
	require.Eventually(t, func() bool { return slices.Equal(changes, r.seen.list()) }, 10*time.Second, time.Millisecond)
	s := r.Stats()
	require.EqualValues(t, perhaps, s.PerhapsCounted)
	require.Positive(t, perhaps)
	require.GreaterOrEqual(t, s.FailClosed, int64(105))
	require.Zero(t, s.FailOpen+s.FailLocal)
	require.Len(t, s.Circuits, 1)
}

// TestBadObserver: what an observer does wrong harms no call and no circuit.
func TestBadObserver(t *testing.T) {
	for name, f := range map[string]func(){"panics": func() { panic("an observer's") }} {
		t.Run(name, func(t *testing.T) {
			r := build(t, &standalone.Options{Budget: time.Second})
			for range 2 {
				_, err := r.With(policy)
				require.NoError(t, err)
			}
			client := redis.NewClient(&redis.Options{Addr: r.proxy.Addr()})
			defer client.Close()
			store := standalone.New(client, &standalone.Options{Budget: time.Second})
			var err error
			for range 2 {
				r.Limiter, err = headgate.New(store, []headgate.Policy{policy}, &headgate.Options{Observer: func(headgate.Event) { f() }})
				require.NoError(t, err)
			}
			_, err = r.Allow(context.Background(), "k")
			require.NoError(t, err)
			r.proxy.Set(redistest.ResetAfterRequest) // fails at once: a stopped process excuses what takes time
			r.opensSoon(t)
			r.proxy.Set(redistest.Pass)
			recovers(t, r)
		})
	}
}

// TestABusyPoolOfOurOwn: thirty-two callers on two connections to a node that
// takes 40 ms: the node is well, and its circuit stays closed.
func TestABusyPoolOfOurOwn(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	store, err := standalone.Open("redis://"+proxy.Addr()+"?pool_size=2", nil)
	require.NoError(t, err)
	defer store.Close()
	l, err := headgate.New(store, []headgate.Policy{policy}, nil)
	require.NoError(t, err)
	_, err = l.Allow(context.Background(), "warm")
	require.NoError(t, err)
	proxy.Set(redistest.Delay(40 * time.Millisecond))
	many(400, 32, func(i int) { _, _ = l.Allow(context.Background(), fmt.Sprint(i)) })
	require.Equal(t, "closed", l.Stats().Circuits[proxy.Addr()], "the circuit has the server's address")
}

// TestWithdrawnCallsLeaveConnectionsOpen: a caller that leaves before its
// command is written costs no connection.
func TestWithdrawnCallsLeaveConnectionsOpen(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 8})
	defer client.Close()
	l, err := headgate.New(standalone.New(client, nil), []headgate.Policy{policy}, nil)
	require.NoError(t, err)
	_, err = l.Allow(context.Background(), "warm")
	require.NoError(t, err)
	proxy.Set(redistest.Delay(10 * time.Millisecond))
	many(1000, 64, func(i int) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		_, _ = l.Allow(ctx, fmt.Sprint(i))
	})
	require.Less(t, client.PoolStats().Misses, uint32(200), "connections made")
}

// unruly is a client that panics, or ends its goroutine, as a hook of the
// user's might.
type unruly struct {
	client *redis.Client
	how    atomic.Int32
}

func (u *unruly) Process(ctx context.Context, cmd redis.Cmder) error {
	how := int32(0)
	if cmd.Name() == "evalsha" { // a probe has its own test
		how = u.how.Swap(0)
	}
	switch how {
	case 1:
		panic("a hook of the user's")
	case 2:
		runtime.Goexit()
	}
	return u.client.Process(ctx, cmd)
}

// TestHalfOpenSurvivesItsProbe: neither a client that panics or ends its
// goroutine while the one probe is out, nor a caller that is gone by then,
// leaves the circuit half-open for good.
func TestHalfOpenSurvivesItsProbe(t *testing.T) {
	server := redistest.Start(t)
	client := &unruly{client: server.Client(t)}
	l, err := headgate.New(standalone.New(client, &standalone.Options{Budget: time.Second}), []headgate.Policy{policy}, nil)
	require.NoError(t, err)
	r := &rig{Limiter: l, seen: &changes{}}
	for how := int32(1); how <= 2; how++ {
		opens := func(key string) { // a failure is excused if this machine is too busy
			state := r.state()
			for end := time.Now().Add(30 * time.Second); state != "open" && time.Now().Before(end); state = r.state() {
				client.how.Store(how)
				d, err := l.Allow(context.Background(), key)
				require.NoError(t, err)
				require.ErrorIs(t, d.Err, headgate.ErrUnavailable)
			}
			client.how.Store(0)
			require.Equal(t, "open", state)
		}
		opens("k")
		require.Eventually(t, func() bool { return r.state() == "half_open" }, 5*time.Second, time.Millisecond)
		opens("the probe")
		require.Eventually(t, func() bool { return r.state() == "half_open" }, 5*time.Second, time.Millisecond)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			ctx, cancel := context.WithCancel(context.Background())
			go cancel()
			_, _ = l.Allow(ctx, "whose caller leaves")
			runtime.Goexit()
		}()
		<-gone
		recovers(t, r)
	}
}
