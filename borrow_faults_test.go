package headgate_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// holders are limiters with a store each, whose callers keep loans of one key.
type holders struct {
	all    []*headgate.Limiter
	passed atomic.Int64
	home   atomic.Int64 // of these: from loans
	stop   chan struct{}
	wait   sync.WaitGroup
}

// hold makes some limiters and begins to call.
func hold(t *testing.T, fresh func() *headgate.Limiter) *holders {
	h := &holders{stop: make(chan struct{})}
	for range 4 {
		l := fresh()
		h.all = append(h.all, l)
		h.wait.Add(1)
		go func() {
			defer h.wait.Done()
			for {
				select {
				case <-h.stop:
					return
				case <-time.After(100 * time.Microsecond):
				}
				for range 10 {
					if d, err := l.Allow(context.Background(), "key"); err == nil && d.Allowed {
						h.passed.Add(1)
						if d.Source == headgate.FromLoan {
							h.home.Add(1)
						}
					}
				}
			}
		}()
	}
	t.Cleanup(h.end)
	require.Eventually(t, func() bool { return h.home.Load() > 1000 && h.lent() > 0 }, 10*time.Second, time.Millisecond)
	return h
}

func (h *holders) end() {
	select {
	case <-h.stop:
	default:
		close(h.stop)
	}
	h.wait.Wait()
}

// lent returns at most how many units may be lent: those that came, less those that
// were given back or are reported as used.
func (h *holders) lent() (n int64) {
	for _, l := range h.all {
		s := l.Stats().Borrow
		n += s.Lent - s.GivenBack - s.Used
	}
	return n
}

// most is the most of lent for a moment, in which answers arrive that were on their way.
func (h *holders) most() (n int64) {
	for range 10 {
		n = max(n, h.lent())
		time.Sleep(time.Millisecond / 2)
	}
	return n
}

// over ends the callers. It requires that they passed the limit by no more than was lent.
func (h *holders) over(t *testing.T, what string, before, limit, lent int64) {
	h.end()
	over := h.passed.Load() - before - limit
	t.Logf("%s: over by %d, and %d were lent", what, max(0, over), lent)
	require.LessOrEqual(t, over, lent)
}

// A failover that loses what is counted, and a Reset by another process, begin a fresh
// count. What was lent before is used beside it, for one term at most.
func TestLentUnitsAfterAReset(t *testing.T) {
	if !redistest.Long() {
		t.Skip("a busy machine lends more between the reading and the loss: run by make test-long")
	}
	const limit, term = 20_000, 50 * time.Millisecond
	a := algo.FixedWindow(algo.PerDay(limit))
	for name, lose := range map[string]func(*testing.T, *redistest.Server){
		"failover": func(t *testing.T, s *redistest.Server) { s.Restart(t) },
		"reset": func(t *testing.T, s *redistest.Server) {
			require.NoError(t, borrowing(t, s, a, term).Reset(context.Background(), "key"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			h := hold(t, func() *headgate.Limiter { return borrowing(t, server, a, term) })
			before := h.passed.Load()
			lent := h.lent()
			lose(t, server)
			lent = max(lent, h.most())
			require.Eventually(t, func() bool { // a fresh limit is spent
				d, err := h.all[0].Peek(context.Background(), headgate.Call{Key: "key"})
				return err == nil && d.Used == limit
			}, 20*time.Second, 10*time.Millisecond)
			time.Sleep(2 * term)
			// What passed between the two looks is of the fresh count.
			h.over(t, name, before, limit, lent)
			require.Greater(t, h.passed.Load(), before+limit*9/10)
		})
	}
}

// A limiter with a lower limit denies, and one that has units uses them up.
func TestLoweredLimit(t *testing.T) {
	t.Parallel()
	const limit, term = 1 << 30, 50 * time.Millisecond
	server := redistest.Start(t)
	h := hold(t, func() *headgate.Limiter {
		return borrowing(t, server, algo.FixedWindow(algo.PerDay(limit)), term)
	})
	var lower []*headgate.Limiter
	for range h.all {
		lower = append(lower, borrowing(t, server, algo.FixedWindow(algo.PerDay(100)), term))
	}
	h.end()
	lent := h.lent()
	for _, l := range lower {
		d, err := l.Allow(context.Background(), "key")
		require.NoError(t, err)
		require.False(t, d.Allowed)
	}
	t.Logf("%d units were lent", lent)
}

// A server whose clock steps frees what a step frees, and what was lent then.
func TestLentUnitsWhileTheClockSteps(t *testing.T) {
	const limit, term = 20_000, 50 * time.Millisecond
	for name, c := range map[string]struct {
		step time.Duration
		free int64 // limits that the step frees
	}{
		"a term ahead":    {term, 0},
		"a term back":     {-term, 0},
		"a day ahead":     {24 * time.Hour, 1},
		"three days back": {-72 * time.Hour, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var step atomic.Int64
			server := redistest.Start(t)
			noon := time.Now().Truncate(24 * time.Hour).Add(12 * time.Hour)
			begin := time.Now()
			now := func() time.Time { return noon.Add(time.Since(begin) + time.Duration(step.Load())) }
			h := hold(t, func() *headgate.Limiter {
				store := standalone.New(clock.Client{Processor: server.Client(t), Now: now}, patient)
				l, err := headgate.New(store, []headgate.Policy{{
					Name: "api", Algorithm: algo.FixedWindow(algo.PerDay(limit)), OnFailure: headgate.FailClosed,
				}}, &headgate.Options{Borrow: term})
				require.NoError(t, err)
				return l
			})
			before, lent := int64(0), h.lent()
			step.Store(int64(c.step))
			if c.free > 0 {
				before = h.passed.Load()
			}
			lent = max(lent, h.most())
			require.Eventually(t, func() bool {
				d, err := h.all[0].Peek(context.Background(), headgate.Call{Key: "key"})
				return err == nil && d.Used == limit
			}, 20*time.Second, 10*time.Millisecond)
			time.Sleep(2 * term)
			h.over(t, name, before, limit, lent)
		})
	}
}

// In an outage what is held is spent, and then the failure mode decides.
func TestLoansInAnOutage(t *testing.T) {
	t.Parallel()
	const term = 50 * time.Millisecond
	server := redistest.Start(t)
	h := hold(t, func() *headgate.Limiter {
		return borrowing(t, server, algo.FixedWindow(algo.PerDay(1<<30)), term)
	})
	server.Kill()
	time.Sleep(time.Millisecond) // for calls that the server has answered
	dead, lent := h.passed.Load(), h.lent()
	time.Sleep(2 * term)
	passed := h.passed.Load()
	t.Logf("%d of %d units that were lent passed after the server died", passed-dead, lent)
	require.LessOrEqual(t, passed-dead, lent)
	time.Sleep(time.Duration(redistest.Steps(300, 5_000)) * time.Millisecond)
	require.Equal(t, passed, h.passed.Load(), "calls passed after the loans ended, by FailClosed")
	server.Restart(t)
	home := h.home.Load()
	require.Eventually(t, func() bool { return h.home.Load() > home+1000 }, 10*time.Second, time.Millisecond)
}
