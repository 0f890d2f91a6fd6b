package redistest

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
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
	n, err := c.Get(t.Context(), key).Int()
	if err != redis.Nil {
		assert.NoError(t, err)
	}
	return n
}

func TestFaultsComeAfterExecution(t *testing.T) {
	for _, fault := range []Fault{SwallowReply(time.Millisecond), ResetAfterRequest, HalfReply} {
		t.Run(fault.String(), func(t *testing.T) {
			p, direct, c := stage(t)
			require.NoError(t, take(c, "k"))
			p.Set(fault)
			require.Error(t, take(c, "k"))
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
	p.Set(ResetAfterRequest.Times(3))
	require.NoError(t, take(c, "k"), "and the caller sees nothing of it")
	assert.Equal(t, 4, count(t, direct, "k"))
}

// bareConn is a connection that sends one request and has no client's ideas about
// what to do next.
func bareConn(t *testing.T, p *Proxy, request string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = conn.Write([]byte(request))
	require.NoError(t, err)
	return conn
}

var inline = "EVALSHA " + incr.Hash() + " 1 k\r\n"

func TestSwallowedReplyNeverComes(t *testing.T) {
	p, direct, _ := stage(t)
	p.Set(SwallowReply(time.Hour)) // the cleanup has to end it
	conn := bareConn(t, p, inline)
	require.Eventually(t, func() bool { return count(t, direct, "k") == 1 }, 5*time.Second, poll)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	_, err := conn.Read(make([]byte, 1))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestDelay(t *testing.T) {
	p, _, c := stage(t)
	require.NoError(t, take(c, "k"))
	p.Set(Delay(50 * time.Millisecond))
	begin := time.Now()
	require.NoError(t, take(c, "k"))
	assert.GreaterOrEqual(t, time.Since(begin), 50*time.Millisecond)
}

func TestEveryAndTimes(t *testing.T) {
	p, direct, c := stage(t)
	p.Set(ResetAfterRequest.Every(3).Times(2))
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
	p, direct, _ := stage(t)
	p.Set(HalfReply.Every(3))
	eval := "*4\r\n$7\r\nevalsha\r\n$40\r\n" + incr.Hash() + "\r\n$1\r\n1\r\n$1\r\nk\r\n"
	// A value that looks like a command is none.
	set := "*5\r\n$3\r\nSET\r\n$1\r\nv\r\n$21\r\n*1\r\n$7\r\nEVALSHA\r\n....\r\n$2\r\nPX\r\n$4\r\n9000\r\n"
	got, err := io.ReadAll(bareConn(t, p, eval+set+eval+eval))
	require.NoError(t, err)
	assert.Equal(t, ":1\r\n+OK\r\n:2\r\n:3", string(got), "replies before the fault arrive")
	assert.Equal(t, 3, p.Seen())
	assert.Equal(t, 3, count(t, direct, "k"))
}

// On a bare connection, since go-redis peeks at its socket before it reads, and
// so may take the reset away from the read: its callers see an EOF.
func TestResetIsAReset(t *testing.T) {
	p, direct, _ := stage(t)
	p.Set(ResetAfterRequest)
	_, err := io.ReadAll(bareConn(t, p, "PING\r\n"+inline))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	assert.Equal(t, 1, count(t, direct, "k"))
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
	p.Rewrite(func(b []byte) []byte { return b })
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
	for _, f := range []Fault{ResetAfterRequest, Delay(time.Millisecond), HalfReply, SwallowReply(0), Pass} {
		p.Set(f)
		enough := min(p.Seen()+50, 800)
		require.Eventually(t, func() bool { return p.Seen() >= enough }, 20*time.Second, poll/10)
	}
	wg.Wait()
	assert.Equal(t, 800, p.Seen())
	assert.Equal(t, 800, count(t, direct, "k"), "each ran once, whatever became of its reply")
	assert.Positive(t, p.Hit())
}
