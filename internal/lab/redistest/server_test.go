package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// record stands in for a test that is expected to end badly. Its Fatal and Skip
// end the goroutine, as the real ones do.
type record struct {
	testing.TB
	errors         []string
	fatal, skipped string
	cleanups       []func()
}

func (r *record) Helper()                   {}
func (r *record) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *record) Errorf(s string, a ...any) { r.errors = append(r.errors, fmt.Sprintf(s, a...)) }

func (r *record) Fatal(a ...any) { r.Fatalf("%s", fmt.Sprint(a...)) }

func (r *record) Fatalf(s string, a ...any) {
	r.fatal = fmt.Sprintf(s, a...)
	runtime.Goexit()
}

func (r *record) FailNow() { runtime.Goexit() }

func (r *record) Skipf(s string, a ...any) {
	r.skipped = fmt.Sprintf(s, a...)
	runtime.Goexit()
}

// observe runs f with a record in place of t.
func observe(t *testing.T, f func(testing.TB)) *record {
	t.Helper()
	r, done := &record{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, c := range r.cleanups {
				c()
			}
		}()
		f(r)
	}()
	<-done
	return r
}

func TestStartAnswers(t *testing.T) {
	s := Start(t, "--maxmemory-policy", "noeviction")
	pong, err := s.Client(t).Ping(t.Context()).Result()
	require.NoError(t, err)
	assert.Equal(t, "PONG", pong)
}

func TestStartTakesAPasswordServer(t *testing.T) {
	s := Start(t, "--requirepass", "secret")
	c := s.Client(t, func(o *redis.Options) { o.Password = "secret" })
	require.NoError(t, c.Ping(t.Context()).Err())
}

func TestStartSaysWhyItFailed(t *testing.T) {
	r := observe(t, func(t testing.TB) { Start(t, "--no-such-option", "1") })
	assert.Contains(t, r.fatal, "redis-server ended")
	assert.Contains(t, r.fatal, "no-such-option")
}

func TestTakenPort(t *testing.T) {
	a := Start(t)
	b := &Server{bin: a.bin, dir: t.TempDir(), port: a.port}
	assert.ErrorIs(t, b.run(), errTaken)
	busy, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", a.port+10000))
	require.NoError(t, err)
	defer busy.Close()
	a.Kill()
	b.args = []string{"--cluster-enabled", "yes"}
	assert.ErrorIs(t, b.run(), errTaken, "the port of the cluster bus")
}

// A further port is drawn again too: a test that chose it before the server began would find
// it taken on a busy machine.
func TestTakenTLSPort(t *testing.T) {
	certificate, _ := Certificate(t)
	args := append(certificate, "--tls-port", AnyPort)
	a := Start(t, args...)
	b := &Server{bin: a.bin, dir: t.TempDir(), port: randomPort(), tlsPort: a.TLSPort(), args: args}
	assert.ErrorIs(t, b.run(), errTaken)
	assert.True(t, listening("127.0.0.1:"+Start(t, args...).TLSPort()))
}

func TestStartKillsAtCleanup(t *testing.T) {
	var s *Server
	t.Run("inner", func(t *testing.T) { s = Start(t) })
	assert.False(t, listening(s.Addr()))
}

func listening(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

func TestMissingServer(t *testing.T) {
	t.Setenv("HEADGATE_REDIS_SERVER", filepath.Join(t.TempDir(), "redis-server"))
	t.Run("skips on a laptop", func(t *testing.T) {
		t.Setenv("CI", "")
		r := observe(t, func(t testing.TB) { Start(t) })
		assert.Contains(t, r.skipped, "apt-get install -y redis-server")
		assert.Empty(t, r.fatal)
	})
	t.Run("fails in CI", func(t *testing.T) {
		t.Setenv("CI", "true")
		r := observe(t, func(t testing.TB) { Start(t) })
		assert.Contains(t, r.fatal, "apt-get install -y redis-server")
		assert.Empty(t, r.skipped)
	})
}

func TestSharedIsOne(t *testing.T) {
	assert.Same(t, Shared(t), Shared(t))
	require.NoError(t, Shared(t).Client(t).Ping(t.Context()).Err())
}

func TestRestartKeepsTheAddress(t *testing.T) {
	s := Start(t)
	c := s.Client(t)
	require.NoError(t, c.Set(t.Context(), "k", 1, time.Minute).Err())
	addr := s.Addr()
	s.Restart(t)
	assert.Equal(t, addr, s.Addr())
	assert.Zero(t, s.Client(t).Exists(t.Context(), "k").Val(), "a restarted server is empty")

	s.Kill()
	s.Kill()
	assert.False(t, listening(addr))
	s.Restart(t)
	require.NoError(t, s.Client(t).Ping(t.Context()).Err())
}

func TestStopAndCont(t *testing.T) {
	s := Start(t)
	c := s.Client(t, func(o *redis.Options) {
		o.MaxRetries, o.ReadTimeout, o.ContextTimeoutEnabled = -1, 30*time.Millisecond, true
	})
	require.NoError(t, c.Ping(t.Context()).Err())
	s.Stop()
	require.ErrorContains(t, c.Incr(t.Context(), "stopped").Err(), "i/o timeout")
	s.Cont()
	// What was sent to a stopped server is executed when it wakes.
	slow := s.Client(t)
	require.Eventually(t, func() bool { return slow.Exists(t.Context(), "stopped").Val() == 1 }, 5*time.Second, poll)
}

func TestKillEndsAStoppedServer(t *testing.T) {
	s := Start(t)
	s.Stop()
	s.Kill()
	assert.False(t, listening(s.Addr()))
	assert.Panics(t, s.Stop)
}

func TestCommandStats(t *testing.T) {
	s := Start(t)
	c := s.Client(t)
	script := redis.NewScript(`return redis.call('SET', KEYS[1], 1, 'PX', 1000)`)
	require.NoError(t, script.Load(t.Context(), c).Err())
	s.ResetStats(t)
	for range 3 {
		require.NoError(t, script.EvalSha(t.Context(), c, []string{"k"}).Err())
	}
	require.Error(t, c.Do(t.Context(), "SET", "k").Err())
	got := s.CommandStats(t)
	assert.EqualValues(t, 3, got["evalsha"].Calls)
	assert.EqualValues(t, 3, got["set"].Calls, "calls within a script count")
	assert.EqualValues(t, 1, got["set"].Rejected)
	assert.Positive(t, got["evalsha"].PerCall)
	assert.NotContains(t, got, "script|load", "reset")
}

func TestNoImmortals(t *testing.T) {
	s := Start(t)
	c, ctx := s.Client(t), t.Context()
	require.NoError(t, c.Set(ctx, "mortal", 1, time.Minute).Err())
	require.NoError(t, c.Set(ctx, "{1}", 1, 0).Err())
	require.NoError(t, c.Set(ctx, "{2}", 1, 0).Err())
	r := observe(t, func(t testing.TB) { s.NoImmortals(t) })
	assert.ElementsMatch(t, []string{`key "{1}" has no TTL`, `key "{2}" has no TTL`}, r.errors)
}

// TestNoImmortalsOfMany: no key is left out.
func TestNoImmortalsOfMany(t *testing.T) {
	s := Start(t)
	c, ctx := s.Client(t), t.Context()
	const keys = 2500
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range keys {
			p.Set(ctx, fmt.Sprint("k", i), 1, 0)
		}
		return nil
	})
	require.NoError(t, err)
	assert.Len(t, observe(t, func(t testing.TB) { s.NoImmortals(t) }).errors, keys)
}

// A panic or a timeout of a test process runs no cleanup. SIGKILL is the worst
// of the kind.
func TestServersDieWithTheirProcess(t *testing.T) {
	if _, ok := Child(); ok {
		Result("%s %s", Start(t).Addr(), Shared(t).Addr())
		self, err := os.FindProcess(os.Getpid())
		require.NoError(t, err)
		require.NoError(t, self.Kill())
		select {}
	}
	locate(t)
	if runtime.GOOS != "linux" {
		t.Skip("NOT TESTED: only Linux has a death signal")
	}
	cmd := exec.Command(os.Args[0], "-test.run", exactly(t.Name()))
	cmd.Env = append(os.Environ(), childEnv+"=0", "TMPDIR="+t.TempDir()) // it leaves one behind
	out, err := cmd.Output()
	require.ErrorContains(t, err, "killed")
	_, addrs, ok := strings.Cut(string(out), resultLine)
	require.True(t, ok, "%s", out)
	both := strings.Fields(addrs)[:2]
	require.Eventually(t, func() bool { return !listening(both[0]) && !listening(both[1]) }, 5*time.Second, poll)
}

func TestPortLeavesRoomForTheBus(t *testing.T) {
	assert.Less(t, randomPort()+10000, 32768, "below the ports of outgoing connections")
	s := Start(t, "--cluster-enabled", "yes")
	assert.True(t, listening(fmt.Sprint("127.0.0.1:", s.port+10000)))
	info := s.Client(t).ClusterInfo(context.Background()).Val()
	assert.Contains(t, info, "cluster_known_nodes:1")
}
