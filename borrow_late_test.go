//go:build go1.25

package headgate_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// lateRun is a fleet of TestLateProcessesBurnNothing, which calls one key until its limit is
// spent.
type lateRun struct {
	term      time.Duration
	stopped   time.Duration // of each 100 ms; 0: never
	limit     int64
	processes int
	pause     time.Duration // of a caller between two calls; 0: a closed loop
}

func (r lateRun) String() string {
	if r.stopped == 0 {
		return fmt.Sprintf("%d processes in closed loops, borrowing for %v", r.processes, r.term)
	}
	return fmt.Sprintf("%d processes, borrowing for %v, stopped for %v of each 100 ms", r.processes, r.term, r.stopped)
}

// lateRuns are one of each kind of fleet, or all where tests run at full length. A process
// that is stopped for less than two terms settles its loans in time.
func lateRuns() (all []lateRun) {
	const limit, many = 3_000, 300_000
	if !redistest.Long() {
		return []lateRun{{50 * time.Millisecond, 60 * time.Millisecond, limit, 1, time.Millisecond}}
	}
	for _, term := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond} {
		for _, stopped := range []time.Duration{30, 60, 80} {
			for _, processes := range []int{1, 4} {
				all = append(all, lateRun{term, stopped * time.Millisecond, limit, processes, time.Millisecond})
			}
		}
		all = append(all, lateRun{term, 0, many, 4, 0})
	}
	return all
}

// TestLateProcessesBurnNothing spends a day's limit by processes that are late by
// themselves, as a container above its CPU limit is. At most one unit of a hundred is
// charged and used by no call. Long runs take the median of five.
func TestLateProcessesBurnNothing(t *testing.T) {
	if _, ok := redistest.Child(); ok {
		lateChild(t)
		return
	}
	for _, r := range lateRuns() {
		var burnt []int64
		for tries := 0; len(burnt) < redistest.Steps(1, 5); tries++ {
			passed, late := r.passed(t)
			require.LessOrEqual(t, passed, r.limit, "%v: over", r)
			// A host that stops a process for longer than the test does makes it late by more than
			// a loan stands.
			switch {
			case late < r.stopped+r.term:
				burnt = append(burnt, r.limit-passed)
			case tries >= 3+len(burnt):
				t.Skipf("%v: the host stops the processes in several runs, in the last for %v", r, late)
			}
		}
		slices.Sort(burnt)
		t.Logf("%v: of %d units no call used %d, from %d to %d", r, r.limit, burnt[len(burnt)/2], burnt[0], burnt[len(burnt)-1])
		require.LessOrEqual(t, burnt[len(burnt)/2], r.limit/100, "%v", r)
	}
}

// passed returns how many calls of the fleet have passed when the limit is spent, and the longest
// time for which one of its processes did not run.
func (r lateRun) passed(t *testing.T) (passed int64, late time.Duration) {
	all := redistest.Processes(t, r.processes, "TestLateProcessesBurnNothing", "HEADGATE_LATE="+redistest.Start(t).Addr(),
		"HEADGATE_LATE_T="+r.term.String(), "HEADGATE_LATE_STOP="+r.stopped.String(), "HEADGATE_LATE_PAUSE="+r.pause.String(),
		fmt.Sprint("HEADGATE_LATE_LIMIT=", r.limit))
	for _, s := range all {
		var n, stood int64
		_, err := fmt.Sscan(s, &n, &stood)
		require.NoError(t, err)
		passed, late = passed+n, max(late, time.Duration(stood))
	}
	return passed, late
}

func lateChild(t *testing.T) {
	duration := func(name string) time.Duration {
		d, err := time.ParseDuration(os.Getenv(name))
		require.NoError(t, err)
		return d
	}
	term, stopped, pause := duration("HEADGATE_LATE_T"), duration("HEADGATE_LATE_STOP"), duration("HEADGATE_LATE_PAUSE")
	limit, err := strconv.ParseInt(os.Getenv("HEADGATE_LATE_LIMIT"), 10, 64)
	require.NoError(t, err)
	l := borrowingAt(t, os.Getenv("HEADGATE_LATE"), algo.FixedWindow(algo.PerDay(limit)), term)
	redistest.Ready()
	stood := standing(t)
	if stopped > 0 {
		defer stopOften(t, stopped)()
	}
	var passed atomic.Int64
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for end := time.Now().Add(time.Minute); time.Now().Before(end); {
				d, err := l.Allow(context.Background(), "key")
				if err == nil && d.Allowed {
					passed.Add(1)
				} else if err == nil && d.Used-d.Lent == limit {
					return
				}
				if pause > 0 {
					time.Sleep(pause)
				}
			}
			t.Error("the limit is not spent in a minute")
		})
	}
	wait.Wait()
	redistest.Result("%d %d", passed.Load(), stood())
}

// standing returns a function that ends the measurement and returns the longest time for which this
// process did not run.
func standing(t *testing.T) (longest func() time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan time.Duration)
	go func() {
		most, last := time.Duration(0), time.Now()
		for ctx.Err() == nil {
			time.Sleep(time.Millisecond)
			now := time.Now()
			most, last = max(most, now.Sub(last)), now
		}
		result <- most
	}()
	return func() time.Duration {
		cancel()
		return <-result
	}
}

// stopOften stops this process for so long in each 100 ms, until the function that it returns
// is called. A shell that is not stopped itself does it.
func stopOften(t *testing.T, stopped time.Duration) (end func()) {
	s := strings.NewReplacer("PID", fmt.Sprint(os.Getpid()), "STOPPED", fmt.Sprintf("%.3f", stopped.Seconds()), "RUNS", fmt.Sprintf("%.3f", 0.1-stopped.Seconds()))
	shell := exec.Command("sh", "-c", s.Replace("trap 'kill -CONT PID; exit' TERM; while kill -STOP PID; do sleep STOPPED; kill -CONT PID; sleep RUNS; done"))
	require.NoError(t, shell.Start())
	return func() {
		_ = shell.Process.Signal(syscall.SIGTERM) // so that it does not leave this process stopped
		_ = shell.Wait()
	}
}
