package standalone_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// busyAddr names the server of TestBusyProcesses' children.
const busyAddr = "HEADGATE_BUSY_ADDR"

// TestBusyProcesses runs 16 processes of 8 callers beside busy loops. The store decides
// what a bare loop of go-redis completes within the budget in the same processes, and no
// circuit opens: that a process has no processor is no fault of the server.
func TestBusyProcesses(t *testing.T) {
	if _, ok := redistest.Child(); ok {
		busyProcess(t, os.Getenv(busyAddr))
		return
	}
	if !redistest.Long() {
		t.Skip("it takes all of the machine")
	}
	server := redistest.Start(t)
	for _, loops := range []int{1, 2} {
		store, bare := busyProcesses(t, server.Addr(), loops)
		require.GreaterOrEqual(t, store, 0.999*bare)
	}
	proxy := redistest.NewProxy(t, server.Addr())
	proxy.Set(faulttest.Lossy(new(atomic.Int64)))
	store, _ := busyProcesses(t, proxy.Addr(), 1)
	require.GreaterOrEqual(t, store, 0.94)
}

// busyProcesses returns the share of calls that the store decided, and that of a bare
// loop.
func busyProcesses(t *testing.T, addr string, loops int) (store, bare float64) {
	for range loops {
		loop := exec.Command("sh", "-c", "while :; do :; done")
		require.NoError(t, loop.Start())
		defer func() { _ = loop.Wait() }()
		defer func() { _ = loop.Process.Kill() }()
	}
	var decided, undecided, openings, done, failed int
	var causes []string
	for _, line := range redistest.Processes(t, 16, t.Name(), busyAddr+"="+addr) {
		var d, u, o, b, f int
		counts, cause, _ := strings.Cut(line, ";")
		_, err := fmt.Sscan(counts, &d, &u, &o, &b, &f)
		require.NoError(t, err, line)
		decided, undecided, openings, done, failed = decided+d, undecided+u, openings+o, done+b, failed+f
		if cause != "" {
			causes = append(causes, cause)
		}
	}
	store, bare = float64(decided)/float64(decided+undecided), float64(done)/float64(done+failed)
	t.Logf("%d busy loops: %.3f %% of %d calls decided by the store, %d openings; %.3f %% of %d bare ones",
		loops, 100*store, decided+undecided, openings, 100*bare, done+failed)
	require.Zero(t, openings, causes)
	return store, bare
}

// busyProcess is a child of TestBusyProcesses.
func busyProcess(t *testing.T, addr string) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	var seen faulttest.Observed
	l := seen.Limiter(t, standalone.New(client, nil), faulttest.Bucket)
	alone := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	defer alone.Close()
	script := redis.NewScript("return redis.call('incr', KEYS[1])")
	require.NoError(t, script.Load(context.Background(), alone).Err())
	child, _ := redistest.Child()
	const d = 5 * time.Second
	redistest.Ready()
	var done, failed int
	wait := faulttest.Go(1, func(int) {
		faulttest.Loop(1, d, 0, func(ctx context.Context, _, _ int) {
			ctx, cancel := context.WithTimeout(ctx, standalone.DefaultBudget)
			defer cancel()
			if script.EvalSha(ctx, alone, []string{fmt.Sprint("bare", child)}).Err() == nil {
				done++
			} else {
				failed++
			}
		})
	})
	faulttest.Loop(8, d, 0, func(ctx context.Context, c, i int) {
		_, _ = l.Allow(ctx, faulttest.Key(100*child+c, i, 20))
	})
	wait()
	redistest.Result("%d %d %d %d %d;%s", seen.Store.Load(), seen.Undecided.Load(), seen.Openings.Load(), done, failed, seen.Why())
}

// TestBusyGoroutines: if goroutines of the process keep the processors busy, each step of a call
// waits for its turn, and some calls miss their budget. No circuit opens.
func TestBusyGoroutines(t *testing.T) {
	if !redistest.Long() {
		t.Skip("it takes all of the machine")
	}
	server := redistest.Start(t)
	for _, busy := range []int{16, 64} {
		var decided, all []int64
		for range 5 {
			ctx, stop := context.WithCancel(t.Context())
			wait := faulttest.Go(busy, func(int) {
				for ctx.Err() == nil {
				}
			})
			store, err := standalone.Open("redis://"+server.Addr(), nil)
			require.NoError(t, err)
			var seen faulttest.Observed
			l := seen.Limiter(t, store, faulttest.Bucket)
			faulttest.Loop(8, time.Second, 0, func(ctx context.Context, c, i int) {
				_, _ = l.Allow(ctx, faulttest.Key(c, i, 20))
			})
			stop()
			wait()
			decided, all = append(decided, seen.Store.Load()), append(all, seen.Store.Load()+seen.Undecided.Load())
			require.Zero(t, seen.Openings.Load(), seen.Why())
			require.NoError(t, store.Close())
		}
		t.Logf("%d busy goroutines: decided %d of %d", busy, decided, all)
	}
}
