package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// stranger uses a connection, until it is closed or ctx ends.
type stranger func(ctx context.Context, c net.Conn)

// silent sends this and then nothing, and reads what comes.
func silent(text string) stranger {
	return func(_ context.Context, c net.Conn) {
		_, _ = io.WriteString(c, text)
		_, _ = io.Copy(io.Discard, c)
	}
}

// often sends this again and again, with a pause.
func often(first, text string, pause time.Duration) stranger {
	return func(ctx context.Context, c net.Conn) {
		go func() { _, _ = io.Copy(io.Discard, c) }()
		_, err := io.WriteString(c, first)
		for ; err == nil && ctx.Err() == nil; time.Sleep(pause) {
			_, err = io.WriteString(c, text)
		}
	}
}

func reset(_ context.Context, c net.Conn) {
	_, _ = io.WriteString(c, "*3\r\n$7\r\nHG.T")
	_ = c.(*net.TCPConn).SetLinger(0)
}

// unknownFields asks with fields that the protocol does not have.
func unknownFields(ctx context.Context, c net.Conn) {
	conn, err := grpc.NewClient("passthrough:x", grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return c, nil }), insecureOption)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	req := userRequest("stranger")
	req.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), strings.Repeat("x", 10_000)))
	for ctx.Err() == nil {
		if _, err := rlspb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, req); err != nil {
			return
		}
		time.Sleep(time.Second)
	}
}

const settingsFrame = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

var strangers = map[string]struct {
	flags []string
	use   stranger
}{
	"silent":            {[]string{"grpc", "http", "metrics", "resp"}, silent("")},
	"half a hello":      {[]string{"secure"}, silent("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")},
	"POST":              {[]string{"resp"}, silent("POST / HTTP/1.1\r\nHost: x\r\n\r\nCL.THROTTLE k 1 1 1\r\n")},
	"RST":               {[]string{"resp", "http"}, reset},
	"byte by byte":      {[]string{"resp", "http"}, often("", "*", 200*time.Millisecond)},
	"flood of SETTINGS": {[]string{"grpc"}, often(silentHTTP2, strings.Repeat(settingsFrame, 50), 50*time.Millisecond)},
	"unknown fields":    {[]string{"grpc"}, unknownFields},
}

// accepts reports whether a server listens.
func accepts(address string) bool {
	c, err := net.Dial("tcp", address)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// busy is what a bare listener takes beside which nothing is judged: half of the time that a
// connection has for its first request.
const busy = 50 * time.Millisecond

// TestStrangers runs two servers, one with TLS, beside hostile connections of each kind. New
// connections are served within a second, no request of a steady client fails, and the memory
// stays within twice that of an idle server.
func TestStrangers(t *testing.T) {
	each, most, length := redistest.Steps(20, 400), redistest.Steps(40, 200), 2*time.Second
	if redistest.Long() {
		length = time.Minute
	}
	dir := t.TempDir()
	file, pair := filepath.Join(dir, "limits.yaml"), certificate(t, dir, "one")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "one.key"), pair.key, 0o600))
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(userLimits, ": 2}", ": 1000000000}", 1)), 0o600))
	at := map[string]string{"grpc": freePort(t), "http": freePort(t), "metrics": freePort(t), "resp": freePort(t), "secure": freePort(t)}
	args := []string{"-config", file, "-budget", "5s", "-log-level", "error", "-max-connections", fmt.Sprint(most)}
	plain := program(t, at["http"], append(args, "-grpc", at["grpc"], "-resp", at["resp"], "-metrics", at["metrics"])...)
	program(t, at["metrics"], append(args, "-http", freePort(t), "-metrics", freePort(t), "-grpc", freePort(t), "-resp", at["secure"],
		"-tls-cert", filepath.Join(dir, "one.cert"), "-tls-key", filepath.Join(dir, "one.key"))...) // ready is asked of the first
	require.Eventually(t, func() bool { return accepts(at["secure"]) }, 10*time.Second, time.Millisecond)

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer func() { cancel(); running.Wait() }()
	machine := newBare(ctx, t, &running)
	steady := load(ctx, t, &running, at, machine)
	time.Sleep(length / 4)
	idle := memoryOf(t, plain)
	for _, s := range strangers {
		for i := range each {
			running.Go(func() { hostile(ctx, at[s.flags[i%len(s.flags)]], s.use) })
		}
	}
	var slowest time.Duration
	newcomers, excused, peak := 0, 0, int64(0)
	for begin := time.Now(); time.Since(begin) < length; newcomers++ {
		for name, ask := range newcomer(t, at) {
			asked := time.Now()
			err := ask()
			took := time.Since(asked)
			if late := machine.slowest(asked); late > busy {
				excused++
				continue
			}
			require.NoError(t, err, "%s, after %v", name, took)
			slowest = max(slowest, took)
		}
		peak = max(peak, memoryOf(t, plain))
	}
	t.Logf("%d hostile connections of each kind, %d allowed, %v: %d steady requests, %d failed; %d newcomers, the slowest waited %v, %d beside a bare listener that took more than %v; memory %d MiB idle, %d MiB at most",
		each, most, length, steady.sent.Load(), steady.failed.Load(), 4*newcomers, slowest, excused, busy, idle>>20, peak>>20)
	require.Zero(t, steady.failed.Load())
	require.Less(t, excused, 2*newcomers, "the machine is too busy")
	require.Less(t, slowest, time.Second)
	require.LessOrEqual(t, peak, 2*idle)
}

// hostile uses connections one after the other, each until it is closed.
func hostile(ctx context.Context, address string, use stranger) {
	for ; ctx.Err() == nil; time.Sleep(time.Second) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		use(ctx, c)
		_ = c.Close()
		stop()
	}
}

// memoryOf returns the resident bytes of a process.
func memoryOf(t testing.TB, cmd *exec.Cmd) (n int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	require.NoError(t, err)
	_, rss, _ := strings.Cut(string(text), "VmRSS:")
	_, err = fmt.Sscan(rss, &n)
	require.NoError(t, err)
	return n << 10
}

type counts struct{ sent, failed atomic.Int64 }

// load sends requests over connections that stay, until ctx ends. One that fails because its
// client had no processor for so long that its connection was idle longest is the machine's.
func load(ctx context.Context, t *testing.T, running *sync.WaitGroup, at map[string]string, machine *bare) *counts {
	n := &counts{}
	rls, web := rlspb.NewRateLimitServiceClient(dial(t, at["grpc"])), &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4, MaxConnsPerHost: 4}}
	commands := redis.NewClient(&redis.Options{Addr: at["resp"], PoolSize: 4, MaxRetries: -1})
	t.Cleanup(func() { _ = commands.Close() })
	for i, ask := range []func() error{
		func() error { _, err := rls.ShouldRateLimit(context.Background(), userRequest("x")); return err },
		func() error { return post(web, at["http"]) },
		func() error { return commands.Do(context.Background(), "CL.THROTTLE", "k", 1000, 1, 1).Err() },
	} {
		for range 4 {
			running.Go(func() {
				for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
					n.sent.Add(1)
					asked := time.Now()
					if err := ask(); err != nil && machine.slowest(asked.Add(-time.Second)) <= busy && n.failed.Add(1) == 1 {
						t.Logf("the first failure, of %d: %v", i, err)
					}
				}
			})
		}
	}
	return n
}

func post(c *http.Client, address string) error {
	resp, err := c.Post("http://"+address+"/json", "", strings.NewReader(`{"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "x"}]}]}`))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("status %s", resp.Status)
	}
	return err
}

// newcomer returns calls that each open a connection of their own.
func newcomer(t testing.TB, at map[string]string) map[string]func() error {
	command := func(address string, secure *tls.Config) error {
		c := redis.NewClient(&redis.Options{Addr: address, TLSConfig: secure, MaxRetries: -1, DialerRetries: 1})
		defer func() { _ = c.Close() }()
		return c.Do(context.Background(), "CL.THROTTLE", "new", 1000, 1, 1).Err()
	}
	return map[string]func() error{
		"grpc": func() error {
			c, err := grpc.NewClient(at["grpc"], insecureOption)
			require.NoError(t, err)
			defer func() { _ = c.Close() }()
			_, err = rlspb.NewRateLimitServiceClient(c).ShouldRateLimit(context.Background(), userRequest("new"))
			return err
		},
		"http": func() error {
			return post(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, at["http"])
		},
		"resp":   func() error { return command(at["resp"], nil) },
		"secure": func() error { return command(at["secure"], &tls.Config{InsecureSkipVerify: true}) },
	}
}

var insecureOption = grpc.WithTransportCredentials(insecure.NewCredentials())
