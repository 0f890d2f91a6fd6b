package breaker_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// enter reports whether the node may be asked, and leaves it with the result.
func enter(h *layer.Shared, said error) bool {
	leave, err := h.Enter("a:1")
	if err == nil {
		leave(said)
	}
	return err == nil
}

// TestTrialAfterAnAnswer: an open circuit waits for the node's answer: to a probe, or to
// a round trip from before. Then one trial decides.
func TestTrialAfterAnAnswer(t *testing.T) {
	for name, answer := range map[string]func(h *layer.Shared, late func(error)){
		"probe":      func(h *layer.Shared, _ func(error)) { h.Answered("a:1") },
		"late reply": func(_ *layer.Shared, late func(error)) { late(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s := nobody(t)
			l, err := headgate.New(s, []headgate.Policy{policy}, nil)
			require.NoError(t, err)
			h := s.Shared()
			late, err := h.Enter("a:1")
			require.NoError(t, err)
			require.False(t, h.Awaits("a:1"))
			fails(t, h, "a:1")
			require.True(t, h.Awaits("a:1"))
			require.Never(t, func() bool { return enter(h, nil) }, 50*time.Millisecond, time.Millisecond, "no answer yet")
			require.Equal(t, "open", l.Stats().Circuits["a:1"])
			answer(h, late)
			require.False(t, h.Awaits("a:1"))
			require.True(t, enter(h, nil))
			require.Equal(t, "closed", l.Stats().Circuits["a:1"])
		})
	}
}

// TestFailuresInARow: five failures in a row open a circuit, however many round trips
// succeeded before. Four do not.
func TestFailuresInARow(t *testing.T) {
	s := nobody(t)
	_, err := headgate.New(s, []headgate.Policy{policy}, nil)
	require.NoError(t, err)
	h := s.Shared()
	for _, failures := range []int{4, 5} {
		for range 100 {
			require.True(t, enter(h, nil))
		}
		for range failures {
			require.True(t, enter(h, layer.ErrFailed))
		}
		require.Equal(t, failures == 5, h.Awaits("a:1"))
	}
}

// TestCallsBesideTrial: calls that come while another one is the trial of an open circuit
// wait for it, and are decided after it.
func TestCallsBesideTrial(t *testing.T) {
	p := redistest.NewProxy(t, redistest.Start(t).Addr())
	client := redis.NewClient(&redis.Options{Addr: p.Addr()})
	defer client.Close()
	s := standalone.New(client, &standalone.Options{Budget: 10 * time.Second})
	l, err := headgate.New(s, []headgate.Policy{policy}, nil)
	require.NoError(t, err)
	r := &rig{Limiter: l, seen: &changes{}}
	recovers(t, r)
	p.Set(redistest.Delay(20 * time.Millisecond))
	for node := range l.Stats().Circuits {
		fails(t, s.Shared(), node)
		s.Shared().Answered(node)
	}
	faulttest.Go(5, func(i int) {
		d, err := l.Allow(context.Background(), fmt.Sprint(i))
		assert.NoError(t, err)
		assert.Equal(t, headgate.FromStore, d.Source, d.Err)
	})()
}

// TestQuietCallIsTrial: while no call comes no probe waits for an answer, so the next call is the
// trial of the open circuit.
func TestQuietCallIsTrial(t *testing.T) {
	s := nobody(t)
	l, err := headgate.New(s, []headgate.Policy{policy}, nil)
	require.NoError(t, err)
	r := &rig{Limiter: l, seen: &changes{}}
	r.opensSoon(t)
	require.Eventually(t, func() bool { return r.state() == "half_open" }, 30*time.Second, 10*time.Millisecond)
}

// TestPauseDoubles: a node that answers each probe at once and fails each trial is tried
// less and less often, at last about once per second.
func TestPauseDoubles(t *testing.T) {
	s := nobody(t)
	_, err := headgate.New(s, []headgate.Policy{policy}, nil)
	require.NoError(t, err)
	h, trials := s.Shared(), []time.Time(nil)
	fails(t, h, "a:1")
	for begin := time.Now(); time.Since(begin) < 2*time.Second; time.Sleep(time.Millisecond) {
		h.Answered("a:1")
		if enter(h, layer.ErrFailed) {
			trials = append(trials, time.Now())
		}
	}
	require.GreaterOrEqual(t, len(trials), 3)
	require.LessOrEqual(t, len(trials), 5, "at 0, 100, 300, 700, 1500 ms, and each up to a quarter later")
	for i, pause := 1, 100*time.Millisecond; i < len(trials); i, pause = i+1, 2*pause {
		require.GreaterOrEqual(t, trials[i].Sub(trials[i-1]), pause)
	}
}

// TestOutageInARow: a circuit that stays closed for a second has no pause before its
// next trial. One that opens again at once has.
func TestOutageInARow(t *testing.T) {
	s := nobody(t)
	_, err := headgate.New(s, []headgate.Policy{policy}, nil)
	require.NoError(t, err)
	h := s.Shared()
	for _, closed := range []time.Duration{0, 1100 * time.Millisecond, 10 * time.Millisecond} {
		time.Sleep(closed)
		fails(t, h, "a:1")
		h.Answered("a:1")
		require.Equal(t, closed != 10*time.Millisecond, enter(h, nil))
	}
}

// TestFailingServer: a server that answers PING and fails every script opens its circuit
// no more often than once per second.
func TestFailingServer(t *testing.T) {
	length := time.Duration(redistest.Steps(3, 30)) * time.Second
	for name, fault := range map[string]func(t *testing.T, s *redistest.Server, p *redistest.Proxy){
		"OOM": func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) {
			require.NoError(t, s.Client(t).ConfigSet(context.Background(), "maxmemory", "1").Err())
		},
		"READONLY": func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) {
			require.NoError(t, s.Client(t).Do(context.Background(), "replicaof", "127.0.0.1", "1").Err())
		},
		"MASTERDOWN": func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) {
			c, ctx := s.Client(t), context.Background()
			require.NoError(t, c.ConfigSet(ctx, "replica-serve-stale-data", "no").Err())
			require.NoError(t, c.Do(ctx, "replicaof", "127.0.0.1", "1").Err())
		},
		"NOAUTH": func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) {
			c, ctx := s.Client(t), context.Background()
			require.NoError(t, c.ConfigSet(ctx, "requirepass", "secret").Err())
			require.NoError(t, c.Do(ctx, "client", "kill", "type", "normal").Err())
		},
		"BUSY": func(t *testing.T, s *redistest.Server, _ *redistest.Proxy) {
			c, ctx := s.Client(t, func(o *redis.Options) { o.ReadTimeout = -1 }), context.Background()
			require.NoError(t, c.ConfigSet(ctx, "busy-reply-threshold", "5").Err())
			go c.Eval(ctx, "while true do end", nil)
		},
		"slow": func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) {
			p.Set(redistest.Delay(150 * time.Millisecond))
		},
		"reset": func(_ *testing.T, _ *redistest.Server, p *redistest.Proxy) { p.Set(redistest.ResetAfterRequest) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := build(t, nil)
			recovers(t, r) // it has been a primary
			fault(t, r.server, r.proxy)
			openings := func() (n int) {
				for _, change := range r.seen.list() {
					if strings.HasSuffix(change, "to open") {
						n++
					}
				}
				return n
			}
			tried := func() bool { return name == "slow" || openings() >= 2 } // slow answers excuse it
			var slowest time.Duration
			begin := time.Now()
			for i := 0; time.Since(begin) < length || !tried() && time.Since(begin) < 10*length; i++ {
				asked := time.Now()
				_, err := r.Allow(context.Background(), fmt.Sprint(i))
				require.NoError(t, err)
				slowest = max(slowest, time.Since(asked))
				time.Sleep(time.Millisecond)
			}
			opened, lasted := openings(), time.Since(begin)
			t.Logf("%d openings in %v, slowest call %v", opened, lasted, slowest)
			require.True(t, tried(), "it is tried all the same")
			most := int(lasted/time.Second) + 4
			if name == "READONLY" || name == "MASTERDOWN" {
				most -= 3 // a probe sees that
			}
			require.LessOrEqual(t, opened, most)
		})
	}
}

// TestDeadServer: what a process with callers sends to a server that is not there, or
// does not answer, while its circuit is open. Nothing is left of it after Close.
func TestDeadServer(t *testing.T) {
	for _, name := range []string{"refused", "silent"} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			var dials atomic.Int64
			opts := &redis.Options{Addr: server.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials.Add(1)
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}}
			client := redis.NewClient(opts)
			defer client.Close()
			store := standalone.New(client, nil)
			l, err := headgate.New(store, []headgate.Policy{policy}, nil)
			require.NoError(t, err)
			_, err = l.Allow(context.Background(), "k")
			require.NoError(t, err)
			if server.Stop(); name == "refused" {
				server.Kill()
			}
			r := &rig{Limiter: l}
			r.opensSoon(t)
			time.Sleep(600 * time.Millisecond) // the client's own dials go on for that long
			late, took := redistest.Lateness(t, 50*time.Millisecond), []time.Duration(nil)
			before, begin := dials.Load(), time.Now()
			for time.Since(begin) < 2*time.Second {
				asked := time.Now()
				_, err := l.Allow(context.Background(), "k")
				require.NoError(t, err)
				took = append(took, time.Since(asked))
				time.Sleep(time.Millisecond)
			}
			slices.Sort(took)
			perSecond := float64(dials.Load()-before) / time.Since(begin).Seconds()
			t.Logf("%.1f connection attempts per second", perSecond)
			require.Less(t, took[len(took)/2], 25*time.Millisecond+late.Max(), "no call waits for a probe")
			require.Less(t, took[len(took)-1], 200*time.Millisecond+late.Max(), "but on a starved host, and there for two budgets at most")
			require.LessOrEqual(t, perSecond, 12.0)
			require.Positive(t, perSecond)
			require.NoError(t, store.Close())
			require.Eventually(t, func() bool { return !probing() }, 10*time.Second, time.Millisecond)
		})
	}
}

// TestDialerThatHangs: probes of a client whose own dialer ignores its context do not pile
// up.
func TestDialerThatHangs(t *testing.T) {
	server := redistest.Start(t)
	var hangs atomic.Bool
	var under atomic.Int64
	release := make(chan bool)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 4, Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
		if hangs.Load() {
			under.Add(1)
			<-release
		}
		return net.Dial(network, addr)
	}})
	defer client.Close()
	defer close(release)
	l, err := headgate.New(standalone.New(client, nil), []headgate.Policy{policy}, nil)
	require.NoError(t, err)
	_, err = l.Allow(context.Background(), "k")
	require.NoError(t, err)
	hangs.Store(true)
	server.Kill()
	for begin := time.Now(); time.Since(begin) < 4*time.Second; time.Sleep(5 * time.Millisecond) {
		_, err = l.Allow(context.Background(), "k")
		require.NoError(t, err)
	}
	require.Positive(t, under.Load())
	require.Less(t, under.Load(), int64(30), "16 of probes and those of the pool; a probe each 90 ms is 44")
}

// probing reports whether a goroutine of a probe runs.
func probing() bool {
	stacks := make([]byte, 1<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "batch.(*Server).probe(")
}

// TestProbeBesideAFullPool: the probe waits for no connection of the client's pool, which
// the application may hold.
func TestProbeBesideAFullPool(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1, PoolTimeout: time.Minute})
	defer client.Close()
	l, err := headgate.New(standalone.New(client, nil), []headgate.Policy{policy}, nil)
	require.NoError(t, err)
	r := &rig{Limiter: l, seen: &changes{}}
	recovers(t, r)
	server.Stop()
	r.opensSoon(t)
	held, holds := client.Conn(), make(chan error)
	go func() { holds <- held.Ping(context.Background()).Err() }() // which takes the one connection
	time.Sleep(500 * time.Millisecond)                             // a probe that had the connection has ended
	server.Cont()
	require.NoError(t, <-holds)
	end := time.Now().Add(3 * time.Second)
	for r.state() == "open" && time.Now().Before(end) {
		_, _ = l.Allow(context.Background(), "k")
		time.Sleep(time.Millisecond)
	}
	require.NotEqual(t, "open", r.state())
	require.NoError(t, held.Close())
	recovers(t, r)
}

// TestPanickingProbe: a panic of the user's OnConnect ends one probe, and nothing else.
func TestPanickingProbe(t *testing.T) {
	server := redistest.Start(t)
	var panics atomic.Bool
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), OnConnect: func(context.Context, *redis.Conn) error {
		if panics.Load() {
			panic("the user's")
		}
		return nil
	}})
	defer client.Close()
	l, err := headgate.New(standalone.New(client, nil), []headgate.Policy{policy}, nil)
	require.NoError(t, err)
	r := &rig{Limiter: l, seen: &changes{}}
	recovers(t, r)
	panics.Store(true)
	server.Restart(t)
	r.opensSoon(t)
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		_, err := l.Allow(context.Background(), "k")
		require.NoError(t, err)
	}
	require.Equal(t, "open", r.state())
	panics.Store(false)
	recovers(t, r)
}
