package rls

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

var (
	withReference = flag.Bool("reference", false, "build and run envoyproxy/ratelimit")
	before        = flag.String("before", "", "an older headgated, whose file is named ratelimit, in place of envoyproxy/ratelimit")
	requests      = flag.Int("requests", 4000, "requests of each comparison")
)

// binaries are built once for all tests.
var binaries = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "rls"); err != nil {
		return "", err
	}
	for _, b := range []struct{ in, name, pkg string }{
		{".", "reference", "github.com/envoyproxy/ratelimit/src/service_cmd"},
		{"../../cmd/headgated", "ratelimit", "."},
	} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, b.name), b.pkg)
		cmd.Dir = b.in
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w: %s", cmd, err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if *withReference {
		if dir, err := binaries(); err == nil {
			_ = os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// service is one of the two under test.
type service struct {
	name   string
	cmd    *exec.Cmd
	redis  *redistest.Server
	addr   string
	client rlspb.RateLimitServiceClient
}

// start runs a service by the environment of envoyproxy/ratelimit, on a Redis of its own.
// headgated is started under that service's name.
func start(t testing.TB, name, folder string, env ...string) *service {
	t.Helper()
	s := launch(t, name, folder, os.Stderr, env...)
	require.Eventually(t, func() bool {
		_, err := s.client.ShouldRateLimit(context.Background(), request("none", nil))
		return err == nil
	}, time.Minute, 20*time.Millisecond, "%s does not serve", name)
	return s
}

// launch is start without a wait until the service serves.
func launch(t testing.TB, name, folder string, log io.Writer, env ...string) *service {
	t.Helper()
	if !*withReference {
		t.Skip("NOT TESTED: without -reference the service that headgated replaces is not built")
	}
	dir, err := binaries()
	require.NoError(t, err)
	s := &service{name: name, redis: redistest.Start(t)}
	ports := freePorts(t, 4)
	s.addr = net.JoinHostPort("127.0.0.1", ports[0])
	s.cmd = exec.Command(filepath.Join(dir, name))
	if name == "reference" && *before != "" {
		s.cmd = exec.Command(*before)
	}
	s.cmd.Env = append(os.Environ(), append([]string{
		"REDIS_SOCKET_TYPE=tcp", "REDIS_TYPE=SINGLE", "REDIS_URL=" + s.redis.Addr(),
		"RUNTIME_ROOT=" + folder, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"GRPC_PORT=" + ports[0], "PORT=" + ports[1], "DEBUG_PORT=" + ports[2],
		"USE_STATSD=false", "USE_PROMETHEUS=true", "PROMETHEUS_ADDR=127.0.0.1:" + ports[3],
		"LOG_LEVEL=error", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true",
	}, env...)...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	s.client = s.dial(t)
	return s
}

func (s *service) dial(t testing.TB) rlspb.RateLimitServiceClient {
	t.Helper()
	c, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return rlspb.NewRateLimitServiceClient(c)
}

// both starts the two services on the same files.
func both(t testing.TB, files map[string]string, env ...string) (reference, headgated *service) {
	t.Helper()
	root := t.TempDir()
	folder := filepath.Join(root, "ratelimit", "config")
	require.NoError(t, os.MkdirAll(folder, 0o700))
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name+".yaml"), []byte(text), 0o600))
	}
	return start(t, "reference", root, env...), start(t, "ratelimit", root, env...)
}

// freePorts returns ports that are free now.
func freePorts(t testing.TB, n int) (ports []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports
}

// cpu returns the processor time of a process so far.
func cpu(t testing.TB, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // the kernel's tick
}
