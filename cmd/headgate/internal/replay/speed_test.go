package replay

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate/cmd/headgate/internal/logs"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

var (
	speedLines = flag.Int("lines", 0, "lines of TestSpeed, such as 10000000; 0 skips it")
	speedKeys  = flag.Int("keys", 1_000_000, "clients of TestSpeed")
)

// generate writes a Combined log: clients by a Zipf distribution, some 10,000 calls per second.
func generate(w io.Writer, lines, clients int) error {
	r := rand.New(rand.NewPCG(1, 2))
	z := rand.NewZipf(r, 1.1, 10, uint64(clients-1))
	b := bufio.NewWriterSize(w, 1<<20)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range lines {
		n := uint32(z.Uint64()) * 2654435761
		fmt.Fprintf(b, "%d.%d.%d.%d - - [%s] \"GET /items/%d?page=%d HTTP/1.1\" 200 %d \"-\" \"Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101\"\n",
			n>>24, n>>16&255, n>>8&255, n&255, at.Add(time.Duration(i)*100*time.Microsecond).Format("02/Jan/2006:15:04:05 -0700"), r.IntN(5000), r.IntN(9), r.IntN(90000))
	}
	return b.Flush()
}

// TestSpeed prints the time of a replay of a plain log, beside wc -l and a loop over the lines
// that only parses. Run it with -lines 10000000 -v and GOMAXPROCS=1.
func TestSpeed(t *testing.T) {
	if *speedLines == 0 {
		t.Skip("-lines sets its size")
	}
	path := filepath.Join(t.TempDir(), "access.log")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, generate(f, *speedLines, *speedKeys))
	require.NoError(t, f.Close())
	defer debug.SetGCPercent(debug.SetGCPercent(GCPercent))
	timed := func(what string, run func() string) {
		begin, used := time.Now(), processor()
		more := run()
		t.Logf("%-16s %6.2f s, %6.2f s of the processor  %s", what, time.Since(begin).Seconds(), (processor() - used).Seconds(), more)
	}
	for _, a := range []string{
		"fixed-window, limit: 100, period: 1m", "sliding-window, limit: 100, period: 1m", "token-bucket, limit: 10, period: 1s, burst: 100", "sliding-log, limit: 100, period: 1m", "compact-log, limit: 100, period: 1m",
	} {
		timed("wc -l", func() string {
			out, err := exec.Command("wc", "-l", path).CombinedOutput()
			require.NoError(t, err)
			return strings.Fields(string(out))[0]
		})
		timed("parse only", func() string { return fmt.Sprint(parseOnly(t, path), " calls") })
		timed(strings.TrimSuffix(strings.Fields(a)[0], ","), func() string { return speed(t, path, "policies: {a: {algorithm: "+a+"}}") })
	}
	for name, open := range map[string]func(io.Writer) io.WriteCloser{
		"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"zstd": func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z },
	} {
		compress(t, path, path+"."+name, open)
		timed(name, func() string {
			return speed(t, path+"."+name, "policies: {a: {algorithm: fixed-window, limit: 100, period: 1m}}")
		})
	}
}

// processor is the time that this process has used, also in the kernel.
func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func compress(t *testing.T, from, to string, open func(io.Writer) io.WriteCloser) {
	in, err := os.Open(from)
	require.NoError(t, err)
	defer in.Close()
	out, err := os.Create(to)
	require.NoError(t, err)
	w := open(out)
	_, err = io.Copy(w, in)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, out.Close())
}

// parseOnly reads the address and the time of each line, in the simplest way.
func parseOnly(t *testing.T, path string) (n int) {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); n++ {
		host, rest, _ := bytes.Cut(sc.Bytes(), []byte(" "))
		_, rest, _ = bytes.Cut(rest, []byte("["))
		at, _, _ := bytes.Cut(rest, []byte("]"))
		if _, err := time.Parse("02/Jan/2006:15:04:05 -0700", string(at)); err != nil || len(host) == 0 {
			t.Fatal(sc.Text())
		}
	}
	return n
}

// speed replays a log, and returns what it took of memory.
func speed(t *testing.T, path, policies string) string {
	limits := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(limits, []byte(policies), 0o600))
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, err := logs.Open(logs.Options{Files: []string{path}, Key: "remote", Within: "second", Unsorted: 10 * time.Second, MaxKeys: logs.MostKeys})
	require.NoError(t, err)
	r, err := New(s, Config{Policies: limits, Options: Options{Cost: Cost{Units: 1}}})
	require.NoError(t, err)
	require.NoError(t, r.all(context.Background()))
	runtime.ReadMemStats(&after)
	sys := int64(after.HeapSys) - int64(before.HeapSys)
	runtime.GC()
	runtime.ReadMemStats(&after)
	live := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	runtime.KeepAlive(s)
	row := r.new.rows[0]
	runtime.KeepAlive(r)
	return fmt.Sprintf("%d calls, %d keys, %d denied (%d within a step); %d bytes per key, %d of the heap's growth",
		r.summary.Calls, r.summary.Keys, row.denied, row.within, live/max(1, r.summary.Keys), sys/max(1, r.summary.Keys))
}
