package advise

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate/cmd/headgate/internal/logs"
	"github.com/headgate-go/headgate/cmd/headgate/internal/replay"
	"github.com/stretchr/testify/require"
)

var (
	speedLines = flag.Int("lines", 0, "lines of TestSpeed, such as 10000000; 0 skips it")
	speedKeys  = flag.Int("keys", 1_000_000, "clients of TestSpeed")
)

// written is a Combined log of clients by a Zipf distribution, of two hours.
func written(t *testing.T, lines, clients int) string {
	path := filepath.Join(t.TempDir(), "access.log")
	f, err := os.Create(path)
	require.NoError(t, err)
	b := bufio.NewWriterSize(f, 1<<20)
	r := rand.New(rand.NewPCG(1, 2))
	z := rand.NewZipf(r, 1.1, 10, uint64(clients-1))
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range lines {
		n := uint32(z.Uint64()) * 2654435761
		fmt.Fprintf(b, "%d.%d.%d.%d - - [%s] \"GET /items/%d HTTP/1.1\" 200 %d \"-\" \"Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101\"\n",
			n>>24, n>>16&255, n>>8&255, n&255, at.Add(2*time.Hour/time.Duration(lines)*time.Duration(i)).Format("02/Jan/2006:15:04:05 -0700"), r.IntN(5000), r.IntN(90000))
	}
	require.NoError(t, b.Flush())
	require.NoError(t, f.Close())
	return path
}

// processor is the time that this process has used, also in the kernel.
func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestSpeed prints the processor time of advice for all algorithms and two periods, beside that of a
// replay of one policy. Run it with -lines 10000000 -v and GOMAXPROCS=1.
func TestSpeed(t *testing.T) {
	if *speedLines == 0 {
		t.Skip("-lines sets its size")
	}
	path := written(t, *speedLines, *speedKeys)
	limits := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(limits, []byte("policies: {a: {algorithm: sliding-window, limit: 100, period: 1m}}"), 0o600))
	defer debug.SetGCPercent(debug.SetGCPercent(replay.GCPercent))
	open := func() *logs.Stream {
		s, err := logs.Open(logs.Options{Files: []string{path}, Key: "remote", Within: "second", Unsorted: 10 * time.Second, MaxKeys: logs.MostKeys})
		require.NoError(t, err)
		return s
	}
	for _, percent := range []float64{0.01, 0.1, 1, 5} {
		runtime.GC()
		begin := processor()
		r, err := replay.New(open(), replay.Config{Policies: limits, Options: replay.Options{Cost: replay.Cost{Units: 1}}})
		require.NoError(t, err)
		_, err = r.Run(t.Context())
		require.NoError(t, err)
		one := processor() - begin
		r = nil
		runtime.GC()
		begin = processor()
		report, err := Run(context.Background(), open(), Options{Per: []time.Duration{time.Minute, time.Hour}, Percent: percent, Keys: -1, Cost: 1})
		require.NoError(t, err)
		all := processor() - begin
		t.Logf("deny %v %%: %d calls of %d keys, a replay %.2f s, advice %.2f s, %.2f times as long", percent, report.Calls, report.Keys, one.Seconds(), all.Seconds(), all.Seconds()/one.Seconds())
		for _, v := range report.Advice {
			t.Logf("  %s: limit %d, burst %d, %d limits tried, %d denied", v.Policy, v.Limit, v.Burst, v.Tried, v.Denied)
		}
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	a, s := &advisor{Options: Options{Cost: 1}}, open()
	require.NoError(t, a.read(t.Context(), s))
	runtime.GC()
	runtime.ReadMemStats(&after)
	packed := int64(0)
	for key := range uint32(a.calls.keys.Len()) {
		packed += int64(cap(a.calls.keys.At(key).bytes))
	}
	live := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d bytes, %.1f per call for the calls, %d per key for all else", live, float64(packed)/float64(a.summary.Calls), (live-packed)/a.summary.Keys)
	runtime.KeepAlive(s)
}
