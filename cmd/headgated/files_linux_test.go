package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestNoMoreFiles takes the files of a running server away. No listener ends for it, and each
// serves again, beside the connections that took the files.
func TestNoMoreFiles(t *testing.T) {
	t.Parallel()
	file, http, resp := filepath.Join(t.TempDir(), "limits.yaml"), freePort(t), freePort(t)
	require.NoError(t, os.WriteFile(file, []byte(userLimits), 0o600))
	cmd := program(t, http, "-config", file, "-grpc", freePort(t), "-resp", resp)
	open, err := os.ReadDir("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/fd")
	require.NoError(t, err)
	few := unix.Rlimit{Cur: uint64(len(open)) + 10, Max: uint64(len(open)) + 10}
	require.NoError(t, unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, &few, nil))
	for _, address := range []string{resp, http} {
		for range 20 {
			c, err := net.Dial("tcp", address)
			require.NoError(t, err)
			defer func() { _ = c.Close() }()
		}
		require.Eventually(t, func() bool { return ready(http) && ping(resp) }, 20*time.Second, 50*time.Millisecond)
	}
	require.NoError(t, cmd.Process.Signal(unix.SIGTERM))
	require.NoError(t, cmd.Wait(), "it has not ended by itself")
}

// ping reports whether the server of the Redis protocol answers at an address within a second.
func ping(address string) bool {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	b := make([]byte, 7)
	_, _ = c.Write([]byte("PING\r\n"))
	_, err = c.Read(b)
	return err == nil && string(b) == "+PONG\r\n"
}

// TestMemoryLimit: the heap's limit follows that of the control group. With 512 MiB, five
// reloads of 50,000 limits apply.
func TestMemoryLimit(t *testing.T) {
	group := controlGroup(t, 512<<20)
	file, http := filepath.Join(t.TempDir(), "limits.yaml"), freePort(t)
	limits := func(n int) string {
		var b strings.Builder
		b.WriteString("domain: d\ndescriptors:\n")
		for i := range redistest.Steps(100, 50_000) {
			fmt.Fprintf(&b, "  - {key: user, value: \"%d\", rate_limit: {unit: day, requests_per_unit: %d}}\n", i, n+i)
		}
		return b.String()
	}
	require.NoError(t, os.WriteFile(file, []byte(limits(1)), 0o600))
	metrics := freePort(t)
	t.Setenv("HEADGATED_TEST_GROUP", group)
	cmd := program(t, http, "-config", file, "-grpc", freePort(t), "-metrics", metrics)
	has := func(text string) bool { return strings.Contains(metricsOf(metrics), text) }
	require.True(t, has("go_gc_gomemlimit_bytes 4.83183"), "90 %% of 512 MiB")
	for n := 2; n <= 6; n++ {
		replaceFile(t, file, limits(n))
		require.Eventually(t, func() bool {
			return has(fmt.Sprintf("headgated_config_loads_total{files=\"limits\",result=\"ok\"} %d", n))
		}, time.Minute, 50*time.Millisecond, "reload %d", n)
	}
	require.NoError(t, cmd.Process.Signal(unix.SIGTERM))
	require.NoError(t, cmd.Wait())
}

// TestBallastTakesNoMemory: it is not written. The test runs in a process of its own, where that
// memory has had no other use.
func TestBallastTakesNoMemory(t *testing.T) {
	if info, _ := debug.ReadBuildInfo(); slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("NOT TESTED: the race detector may give memory that was used before")
	}
	const fresh = "HEADGATED_TEST_FRESH"
	if os.Getenv(fresh) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestBallastTakesNoMemory$")
		cmd.Env = append(os.Environ(), fresh+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	ballast := tuneCollector(func(string) string { return "" })
	require.Len(t, ballast, ballastSize)
	require.Less(t, resident(t, ballast), ballastSize/4, "pages beside it may be huge ones")
	runtime.KeepAlive(ballast)
}

// TestBallast: the heap may grow to twice the ballast before it is collected, for as long as
// the process runs. With GOGC there is none.
func TestBallast(t *testing.T) {
	t.Setenv("GOGC", "")
	require.Nil(t, tuneCollector(func(string) string { return "100" }))
	file, metrics := filepath.Join(t.TempDir(), "limits.yaml"), freePort(t)
	require.NoError(t, os.WriteFile(file, []byte(userLimits), 0o600))
	program(t, freePort(t), "-config", file, "-grpc", freePort(t), "-metrics", metrics)
	now := func(name string) (n float64) {
		_, value, _ := strings.Cut(metricsOf(metrics), "\n"+name+" ")
		_, err := fmt.Sscan(value, &n)
		require.NoError(t, err)
		return n
	}
	// Each scrape leaves garbage. The second collection that begins from now on ends without
	// what is garbage now.
	begin := now("go_gc_duration_seconds_count")
	for now("go_gc_duration_seconds_count") < begin+2 {
	}
	require.GreaterOrEqual(t, now("go_memstats_next_gc_bytes"), float64(2*ballastSize))
}

// resident returns how many bytes of b are in memory.
func resident(t testing.TB, b []byte) (n int) {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	size := os.Getpagesize()
	pages := make([]byte, 8*(len(b)/size))
	_, err = f.ReadAt(pages, 8*int64(uintptr(unsafe.Pointer(&b[0]))/uintptr(size)))
	require.NoError(t, err)
	for at := 7; at < len(pages); at += 8 {
		if pages[at]&0x80 != 0 {
			n += size
		}
	}
	return n
}

func metricsOf(address string) string {
	resp, err := nethttp.Get("http://" + address + "/metrics")
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

// controlGroup makes a control group with so much memory, and returns the file that takes its
// processes.
func controlGroup(t testing.TB, bytes int64) string {
	t.Helper()
	for _, at := range [][2]string{{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}} {
		root, limit := at[0], at[1]
		group := filepath.Join(root, fmt.Sprint("headgated-test-", os.Getpid()))
		if os.Mkdir(group, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			for range 100 { // until the process has left
				if os.Remove(group) == nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
		// The kernel makes the file: beside groups of version 1 the second folder is a plain one.
		f, err := os.OpenFile(filepath.Join(group, limit), os.O_WRONLY, 0)
		if err != nil {
			continue
		}
		_, err = f.WriteString(strconv.FormatInt(bytes, 10))
		if errors.Join(err, f.Close()) == nil {
			return filepath.Join(group, "cgroup.procs")
		}
	}
	t.Skip("no control group can be made here")
	return ""
}
