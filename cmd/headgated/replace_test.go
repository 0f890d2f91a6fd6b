package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestMain runs the program itself where a test has started this binary for it.
func TestMain(m *testing.M) {
	if os.Getenv("HEADGATED_TEST_PROGRAM") != "" {
		if group := os.Getenv("HEADGATED_TEST_GROUP"); group != "" {
			_ = os.WriteFile(group, []byte("0"), 0o600) // this process
		}
		main()
	}
	os.Exit(m.Run())
}

// program starts headgated as a process, and returns when it is ready.
func program(t testing.TB, http string, args ...string) *exec.Cmd {
	t.Helper()
	return loggingTo(t, nil, http, args...)
}

// loggingTo is program with a log.
func loggingTo(t testing.TB, log *os.File, http string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"-http", http, "-metrics", "", "-reuse-port", "-drain-delay", "300ms"}, args...)...)
	cmd.Env = append(os.Environ(), "HEADGATED_TEST_PROGRAM=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if log != nil {
		cmd.Stderr = log
	}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool { return ready(http) }, 30*time.Second, 10*time.Millisecond)
	return cmd
}

func ready(address string) bool {
	resp, err := http.Get("http://" + address + "/ready")
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == 200
}

// freePort returns an address that nobody listens at. Its port is below those that systems use
// for outgoing connections, one of which could take it before headgated begins.
func freePort(t testing.TB) string {
	t.Helper()
	for range 10 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10000+rand.IntN(12000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port in 10 tries")
	return ""
}

// Under load the files change each second, and headgated is replaced twice by a new
// process: drain, then close. No request fails. Envoy answers 500 if its service fails.
func TestReplacedUnderLoad(t *testing.T) {
	envoyBinary(t)
	t.Parallel()
	long := redistest.Long()
	length, rate := 6*time.Second, 200.0
	if long {
		length, rate = time.Minute, 2000
	}
	redis, file, address := redistest.Start(t), filepath.Join(t.TempDir(), "limits.yaml"), freePort(t)
	text := func(n int) string {
		return fmt.Sprintf("domain: envoy\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: %d}}]\n", 1_000_000_000+n)
	}
	replaceFile(t, file, text(0))
	args := []string{"-config", file, "-redis", redis.Addr(), "-grpc", address, "-budget", "2s", "-log-level", "error"}
	old := program(t, freePort(t), args...)
	p := startEnvoy(t, address, startUpstream(t), 5*time.Second)
	load := loadProxy(t, p.deny+"/header", rate)
	begin, replaced := time.Now(), 0
	for swaps := 1; time.Since(begin) < length || replaced < 2; swaps++ { // a program may take seconds to begin
		time.Sleep(time.Second)
		replaceFile(t, file, text(swaps))
		if part := time.Duration(replaced + 1); time.Since(begin) > length*part/3 && replaced < 2 {
			next := program(t, freePort(t), args...)
			require.NoError(t, old.Process.Signal(syscall.SIGTERM))
			require.NoError(t, old.Wait(), "it drains and ends")
			old, replaced = next, replaced+1
		}
	}
	sent, failed := load()
	t.Logf("%d requests in %v, %d failed; replaced %d times", sent, time.Since(begin), failed, replaced)
	require.Zero(t, failed)
	require.Equal(t, 2, replaced)
	require.Greater(t, float64(sent), rate*length.Seconds()/10)
}

// loadProxy sends requests at a rate until the function that it returns is called.
func loadProxy(t testing.TB, url string, rate float64) (stop func() (sent, failed int64)) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}}
	ctx, cancel := context.WithCancel(context.Background())
	var sent, failed atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range 64 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := 0; ctx.Err() == nil; n++ {
				time.Sleep(time.Until(begin.Add(time.Duration(float64(n*64+i) / rate * float64(time.Second)))))
				req, _ := http.NewRequest(http.MethodGet, "http://"+url, nil)
				req.Header.Set("X-User", strconv.Itoa(n%100))
				resp, err := client.Do(req)
				if sent.Add(1); err != nil || resp.StatusCode != 200 || resp.Header.Get("X-Ratelimit-Limit") == "" {
					if failed.Add(1) == 1 {
						t.Logf("the first failure: %v %v", resp, err)
					}
				}
				if err == nil {
					_ = resp.Body.Close()
				}
			}
		}()
	}
	return func() (int64, int64) {
		cancel()
		wg.Wait()
		return sent.Load(), failed.Load()
	}
}
