package redistest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var incr = redis.NewScript(`return redis.call('INCR', KEYS[1])`)

// stage is a proxy before a server of its own, a client of each, and the script
// loaded. The proxied client never sends anything twice.
func stage(t *testing.T, opts ...func(*redis.Options)) (p *Proxy, direct, proxied *redis.Client) {
	t.Helper()
	s := Start(t)
	p = NewProxy(t, s.Addr())
	direct = s.Client(t)
	proxied = s.Client(t, append([]func(*redis.Options){func(o *redis.Options) {
		o.Addr, o.MaxRetries, o.ReadTimeout, o.ContextTimeoutEnabled = p.Addr(), -1, 10*time.Second, true
	}}, opts...)...)
	require.NoError(t, incr.Load(t.Context(), direct).Err())
	return p, direct, proxied
}

func take(c *redis.Client, key string) error {
	return incr.EvalSha(context.Background(), c, []string{key}).Err()
}

func count(t *testing.T, c *redis.Client, key string) int {
	t.Helper()
	n, err := c.Get(t.Context(), key).Int()
	require.NoError(t, err)
	return n
}

func TestFaultsComeAfterExecution(t *testing.T) {
	for fault, want := range map[Fault]error{
		SwallowReply(time.Millisecond): io.EOF,
		ResetAfterRequest:              syscall.ECONNRESET,
		HalfReply:                      io.EOF,
	} {
		t.Run(fault.String(), func(t *testing.T) {
			p, direct, c := stage(t)
			require.NoError(t, take(c, "k"))
			p.Set(fault)
			err := take(c, "k")
			require.Error(t, err)
			assert.True(t, errors.Is(err, want) || strings.Contains(err.Error(), want.Error()), "%v", err)
			assert.Equal(t, 2, count(t, direct, "k"), "the server had executed it")
			require.NoError(t, c.Ping(t.Context()).Err(), "other commands pass")
			p.Set(Pass)
			require.NoError(t, take(c, "k"))
			assert.Equal(t, 1, p.Hit())
			assert.Equal(t, 3, p.Seen())
		})
	}
}

// What a limiter must guard against, in one line: with its
// defaults a lost reply is a charge four times over. If this changes upstream,
// so may our care.
func TestDefaultClientRepeatsWhatItLost(t *testing.T) {
	p, direct, c := stage(t, func(o *redis.Options) { o.MaxRetries = 0 })
	p.Set(ResetAfterRequest)
	p.Limit(3)
	require.NoError(t, take(c, "k"), "and the caller sees nothing of it")
	assert.Equal(t, 4, count(t, direct, "k"))
}

func TestSwallowedReplyOutlastsADeadline(t *testing.T) {
	p, direct, c := stage(t)
	p.Set(SwallowReply(time.Hour)) // cleanup has to end it
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.Error(t, incr.EvalSha(ctx, c, []string{"k"}).Err())
	require.Error(t, ctx.Err())
	assert.Equal(t, 1, count(t, direct, "k"))
}

func TestDelay(t *testing.T) {
	p, _, c := stage(t)
	require.NoError(t, take(c, "k"))
	p.Set(Delay(50 * time.Millisecond))
	begin := time.Now()
	require.NoError(t, take(c, "k"))
	assert.GreaterOrEqual(t, time.Since(begin), 50*time.Millisecond)
}

func TestFreeze(t *testing.T) {
	p, direct, c := stage(t)
	require.NoError(t, take(c, "k"))
	p.Set(Freeze)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.Error(t, incr.EvalSha(ctx, c, []string{"k"}).Err())
	require.Error(t, c.Ping(ctx).Err(), "nothing passes")
	assert.Equal(t, 1, p.Hit())
	assert.Equal(t, 1, count(t, direct, "k"))
	p.Set(Pass)
	require.Eventually(t, func() bool { return count(t, direct, "k") == 2 }, 5*time.Second, poll, "executed at the thaw")
	require.NoError(t, take(c, "k"))
}

func TestEveryAndLimit(t *testing.T) {
	p, direct, c := stage(t)
	p.Every(3)
	p.Limit(2)
	p.Set(ResetAfterRequest)
	var failed []int
	for i := 1; i <= 12; i++ {
		if take(c, "k") != nil {
			failed = append(failed, i)
		}
	}
	assert.Equal(t, []int{3, 6}, failed)
	assert.Equal(t, 2, p.Hit())
	assert.Equal(t, 12, p.Seen())
	assert.Equal(t, 12, count(t, direct, "k"))
}

func TestPipelineIsCountedByCommand(t *testing.T) {
	p, direct, c := stage(t)
	p.Every(3)
	p.Set(ResetAfterRequest)
	pipe, ctx := c.Pipeline(), t.Context()
	first := incr.EvalSha(ctx, pipe, []string{"k"})
	pipe.Set(ctx, "evalsha", "*3\r\n$7\r\nEVALSHA\r\n", time.Minute) // a value, no command
	second := incr.EvalSha(ctx, pipe, []string{"k"})
	third := incr.EvalSha(ctx, pipe, []string{"k"})
	_, err := pipe.Exec(ctx)
	require.Error(t, err)
	assert.NoError(t, first.Err())
	assert.NoError(t, second.Err(), "replies before the fault arrive")
	assert.Error(t, third.Err())
	assert.Equal(t, 3, p.Seen())
	assert.Equal(t, 3, count(t, direct, "k"))
}

func TestRewrite(t *testing.T) {
	p, direct, c := stage(t)
	version, ok := strings.CutPrefix(firstLine(t, direct, "redis_version:"), "redis_version:")
	require.True(t, ok)
	old := strings.Repeat("0", len(version))
	p.Rewrite(func(b []byte) []byte {
		return bytes.ReplaceAll(b, []byte("redis_version:"+version), []byte("redis_version:"+old))
	})
	assert.Equal(t, "redis_version:"+old, firstLine(t, c, "redis_version:"))
	p.Rewrite(nil)
	assert.Equal(t, "redis_version:"+version, firstLine(t, c, "redis_version:"))
}

func firstLine(t *testing.T, c *redis.Client, prefix string) string {
	t.Helper()
	for line := range strings.Lines(c.Info(t.Context(), "server").Val()) {
		if strings.HasPrefix(line, prefix) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func TestProxyBeforeADeadServer(t *testing.T) {
	s := Start(t)
	p := NewProxy(t, s.Addr())
	c := s.Client(t, func(o *redis.Options) { o.Addr, o.MaxRetries = p.Addr(), -1 })
	require.NoError(t, c.Ping(t.Context()).Err())
	s.Kill()
	require.Error(t, c.Ping(t.Context()).Err())
	require.Error(t, c.Ping(t.Context()).Err())
	s.Restart(t)
	require.NoError(t, c.Ping(t.Context()).Err())
}

// Many clients while the faults change: for the race detector, and for the sum.
func TestProxyUnderLoad(t *testing.T) {
	p, direct, c := stage(t)
	var wg sync.WaitGroup
	for range 16 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 50 {
				_ = take(c, "k")
			}
		}()
	}
	for _, f := range []Fault{ResetAfterRequest, Delay(time.Millisecond), HalfReply, Freeze, SwallowReply(0), Pass} {
		for seen := p.Seen(); f != Pass && f != Freeze && p.Seen() < min(seen+50, 600); {
			time.Sleep(poll / 10)
		}
		p.Set(f)
	}
	wg.Wait()
	assert.Equal(t, 800, p.Seen())
	assert.Equal(t, 800, count(t, direct, "k"), "each ran once, whatever became of its reply")
	assert.Positive(t, p.Hit())
}
