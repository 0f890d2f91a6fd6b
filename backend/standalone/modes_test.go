package standalone_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// trouble is a way in which no store decides.
type trouble struct {
	name    string
	perhaps known
	client  func(t *testing.T) *redis.Client
}

func troubles() []trouble {
	ctx := context.Background()
	with := func(break_ func(t *testing.T, s *redistest.Server, c *redis.Client)) func(t *testing.T) *redis.Client {
		return func(t *testing.T) *redis.Client {
			s := redistest.Start(t)
			c := redis.NewClient(&redis.Options{Addr: s.Addr()}) // go-redis' own settings
			t.Cleanup(func() { _ = c.Close() })
			_, err := limiter(t, c, nil, wide).Allow(ctx, "loads the script")
			require.NoError(t, err)
			break_(t, s, c)
			return c
		}
	}
	config := func(pairs ...string) func(t *testing.T) *redis.Client {
		return with(func(t *testing.T, _ *redistest.Server, c *redis.Client) {
			for i := 0; i < len(pairs); i += 2 {
				require.NoError(t, c.ConfigSet(ctx, pairs[i], pairs[i+1]).Err())
			}
		})
	}
	return []trouble{
		{"refused", notRun, with(func(_ *testing.T, s *redistest.Server, _ *redis.Client) { s.Kill() })},
		{"frozen", either, with(func(t *testing.T, s *redistest.Server, _ *redis.Client) { s.Stop(); t.Cleanup(s.Cont) })},
		{"black hole", notRun, func(t *testing.T) *redis.Client {
			c := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}})
			t.Cleanup(func() { _ = c.Close() })
			return c
		}},
		{"OOM", notRun, config("maxmemory", "1")},
		{"NOREPLICAS", notRun, config("min-replicas-to-write", "1")},
		{"READONLY", notRun, with(func(t *testing.T, s *redistest.Server, c *redis.Client) {
			primary := redistest.Start(t)
			host, port, _ := net.SplitHostPort(primary.Addr())
			require.NoError(t, c.Do(ctx, "replicaof", host, port).Err())
			synced(t, c)
			require.NoError(t, c.ScriptFlush(ctx).Err())
		})},
		{"NOAUTH", notRun, with(func(t *testing.T, s *redistest.Server, c *redis.Client) {
			require.NoError(t, c.ConfigSet(ctx, "requirepass", "secret").Err())
			require.NoError(t, s.Client(t, func(o *redis.Options) { o.Password = "secret" }).
				Do(ctx, "client", "kill", "type", "normal").Err())
		})},
		{"NOPERM", notRun, with(func(t *testing.T, _ *redistest.Server, c *redis.Client) {
			require.NoError(t, c.Do(ctx, "acl", "setuser", "default", "-evalsha").Err())
		})},
		{"BUSY", notRun, with(func(t *testing.T, s *redistest.Server, c *redis.Client) {
			require.NoError(t, c.ConfigSet(ctx, "busy-reply-threshold", "10").Err())
			go s.Client(t).Eval(ctx, "while true do end", nil)
			require.Eventually(t, func() bool { return redis.HasErrorPrefix(c.Ping(ctx).Err(), "BUSY") }, 5*time.Second, 5*time.Millisecond)
			t.Cleanup(func() { c.ScriptKill(ctx) })
		})},
		{"malformed reply", mayHaveRun, func(t *testing.T) *redis.Client {
			s := redistest.Start(t)
			_, err := limiter(t, s.Client(t), nil, wide).Allow(ctx, "loads the script")
			require.NoError(t, err)
			proxy := redistest.NewProxy(t, s.Addr())
			proxy.Rewrite(func(b []byte) []byte {
				if b[0] == '$' && len(b) > 15 {
					b[len(b)-3] ^= 0xff
				}
				return b
			})
			c := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
			t.Cleanup(func() { _ = c.Close() })
			return c
		}},
	}
}

func synced(t *testing.T, c *redis.Client) {
	require.Eventually(t, func() bool {
		role, ok := c.Do(context.Background(), "role").Val().([]any)
		return ok && role[0] == "slave" && role[3] == "connected"
	}, 10*time.Second, 10*time.Millisecond)
}

// TestFailureModes: whatever keeps the store from deciding, each mode gives
// the same answer, in time, and says what is known of the count.
func TestFailureModes(t *testing.T) {
	for _, trouble := range troubles() {
		t.Run(trouble.name, func(t *testing.T) {
			client := trouble.client(t)
			late := redistest.Lateness(t, standalone.DefaultBudget)
			l, longest, errs := limiter(t, client, nil, wide), time.Duration(0), []error(nil)
			for _, mode := range []headgate.FailureMode{headgate.FailOpen, headgate.FailClosed} {
				l, err := l.OnFailure(mode)
				require.NoError(t, err)
				took, err := fails(t, l, mode)
				longest, errs = max(longest, took), append(errs, err)
			}
			if err := l.Reset(context.Background(), "key"); trouble.name != "OOM" { // which lets go of keys all the same
				errs = append(errs, err)
			}
			require.LessOrEqual(t, longest, late.Within())
			for _, err := range errs {
				told(t, err, trouble.perhaps)
			}
		})
	}
}

// told: what the server did not run is never "perhaps". What it may have run
// is, but for a frozen server's new connection, where nothing is sent yet.
func told(t *testing.T, err error, perhaps known) {
	switch {
	case perhaps == notRun && !redistest.Long() && errors.Is(err, headgate.ErrPerhapsCounted):
		require.ErrorContains(t, err, "no answer within") // a server of a busy machine answered late
	case perhaps == notRun:
		require.ErrorIs(t, err, headgate.ErrUnavailable)
	case perhaps == mayHaveRun && !redistest.Long() && errors.Is(err, headgate.ErrUnavailable):
		require.Regexp(t, "began too late|no answer within", err.Error()) // on a busy machine nothing was sent
	case perhaps == mayHaveRun || !errors.Is(err, headgate.ErrUnavailable):
		require.ErrorIs(t, err, headgate.ErrPerhapsCounted)
	}
}

// known is what can be known of the count.
type known int

const (
	notRun known = iota
	mayHaveRun
	either
)

func fails(t *testing.T, l *headgate.Limiter, mode headgate.FailureMode) (took time.Duration, said error) {
	begin := time.Now()
	d, err := l.Allow(context.Background(), "key")
	took = time.Since(begin)
	require.NoError(t, err)
	require.Equal(t, mode == headgate.FailOpen, d.Allowed)
	require.Equal(t, "wide", d.Policy)
	require.EqualValues(t, 1000, d.Limit)
	if mode == headgate.FailOpen {
		require.Equal(t, headgate.FromFailOpen, d.Source)
		require.Zero(t, d.RetryAfter)
	} else {
		require.Equal(t, headgate.FromFailClosed, d.Source)
		require.Positive(t, d.RetryAfter, "never zero on a denial")
	}
	return took, d.Err
}

// TestStrictestWins: of a mixed set the strictest mode decides, and every
// policy's state is told.
func TestStrictestWins(t *testing.T) {
	server := redistest.Start(t)
	open := wide
	open.Name, open.OnFailure = "open", headgate.FailOpen
	l := limiter(t, server.Client(t), nil, open, wide)
	server.Kill()
	each := make([]headgate.State, 2)
	d, err := l.Do(context.Background(), headgate.Call{Key: "k", Costs: []int64{1, 2}, Each: each})
	require.NoError(t, err)
	require.False(t, d.Allowed)
	require.Equal(t, "wide", d.Policy)
	require.Equal(t, "open", each[0].Policy)
	require.Equal(t, "wide", each[1].Policy)
}

// TestCallersContext: one that ends before anything is sent is an error and
// counts nothing; one that ends while the reply is awaited is a failure.
func TestCallersContext(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	l := limiter(t, redis.NewClient(&redis.Options{Addr: proxy.Addr()}), patient, wide)
	direct := limiter(t, server.Client(t), nil, wide)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := l.Allow(ctx, "before")
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, peek(t, direct, "before"))

	_, err = l.Allow(context.Background(), "loads the script")
	require.NoError(t, err)
	proxy.Set(redistest.SwallowReply(time.Minute))
	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	go func() {
		for ; proxy.Hit() == 0; time.Sleep(time.Millisecond) {
		}
		cancel()
	}()
	d, err := l.Allow(ctx, "while")
	require.NoError(t, err)
	require.ErrorIs(t, d.Err, headgate.ErrPerhapsCounted)
	require.Eventually(t, func() bool { return peek(t, direct, "while") == 1 }, 10*time.Second, time.Millisecond)
}

// TestFreshPrimary: after a restart that lost everything, script and counts,
// the next call is served.
func TestFreshPrimary(t *testing.T) {
	server := redistest.Start(t)
	l := limiter(t, server.Client(t), patient, wide)
	for range 3 {
		d, err := l.Allow(context.Background(), "key")
		require.NoError(t, err)
		require.Equal(t, headgate.FromStore, d.Source)
		require.EqualValues(t, 1, d.Used)
		server.Restart(t)
		_, _ = l.Allow(context.Background(), "finds the pool's dead connections")
	}
}

// TestImpossibleCost is an error at once, with Redis dead too.
func TestImpossibleCost(t *testing.T) {
	l := limiter(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), nil,
		headgate.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.PerSecond(5)), OnFailure: headgate.FailOpen})
	_, err := l.AllowN(context.Background(), "k", 6)
	require.ErrorIs(t, err, headgate.ErrNeverAdmissible)
	var invalid *headgate.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, int64(6), invalid.Value)
}

// TestLostLoad: a connection that dies with the script on it, in a client that
// knows no deadline, holds the others up for one budget.
func TestLostLoad(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	var lost atomic.Bool
	client.AddHook(loses{&lost})
	l := limiter(t, client, nil, wide)
	begin := time.Now()
	require.Eventually(t, func() bool {
		d, err := l.Allow(context.Background(), "k")
		require.NoError(t, err)
		return d.Err == nil
	}, 2500*time.Millisecond, 5*time.Millisecond)
	require.True(t, lost.Load())
	t.Logf("decided after %v", time.Since(begin))
}

// loses is a hook that keeps the first SCRIPT LOAD for three seconds.
type loses struct{ done *atomic.Bool }

func (l loses) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l loses) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l loses) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "script" && l.done.CompareAndSwap(false, true) {
			time.Sleep(3 * time.Second)
			return context.DeadlineExceeded
		}
		return next(ctx, cmd)
	}
}
