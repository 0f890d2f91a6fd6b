// Package faulttest holds what every store on Redis must show under real faults
// and real races. The tests are the same on one server and on a cluster.
package faulttest

import (
	"context"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// Callers is the number of concurrent callers: many more than a batch in flight per
// core, so that calls queue.
const Callers = 64

// Network is what lies between a store and its servers: one proxy, or one per
// node. The numbers are those of all proxies together.
type Network interface {
	Set(redistest.Fault)
	Seen() int // EVALSHA since the start
	Hit() int  // EVALSHA with a fault since the start
	Forget()   // see redistest.Proxy
}

// Wide has a limit that no test comes near.
var Wide = closed("wide", algo.FixedWindow(algo.Per(1000, algo.MaxPeriod)))

// Huge is for tests that take as fast as they can.
var Huge = closed("huge", algo.TokenBucket(algo.Per(1, algo.MaxPeriod), algo.MaxLimit))

// closed returns a policy that fails closed: a test must see each call that the
// store did not decide.
func closed(name string, a algo.Algorithm) headgate.Policy {
	return headgate.Policy{Name: name, Algorithm: a, OnFailure: headgate.FailClosed}
}

// Limiter returns a limiter on s.
func Limiter(t testing.TB, s backend.Store, policies ...headgate.Policy) *headgate.Limiter {
	t.Helper()
	l, err := headgate.New(s, policies, nil)
	require.NoError(t, err)
	return l
}

// Used returns the count of a key. It peeks, and so may be called between the calls
// that it checks.
func Used(t testing.TB, l *headgate.Limiter, key string) int64 {
	d, err := l.Peek(context.Background(), headgate.Call{Key: key})
	for try := 0; d.Err != nil && try < 3; try++ { // a busy machine may be late
		d, err = l.Peek(context.Background(), headgate.Call{Key: key})
	}
	if err != nil || d.Err != nil {
		t.Error(err, d.Err)
	}
	return d.Used
}

// Go runs f(0) to f(n-1) concurrently. wait returns when all have returned. A test
// calls it before it ends, since f may report an error to the test.
func Go(n int, f func(i int)) (wait func()) {
	var running sync.WaitGroup
	for i := range n {
		running.Add(1)
		go func() {
			defer running.Done()
			f(i)
		}()
	}
	return running.Wait
}

// Loop lets each caller repeat call with a pause until the time is over. The
// context can end, as that of a request does.
func Loop(callers int, d, pause time.Duration, call func(ctx context.Context, caller, i int)) {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	until := time.Now().Add(d)
	Go(callers, func(c int) {
		for i := 0; time.Now().Before(until); i++ {
			call(ctx, c, i)
			time.Sleep(pause)
		}
	})()
}

// Durations collects the durations of concurrent calls. The zero value is empty.
type Durations struct {
	mu struct {
		sync.Mutex
		all []time.Duration
	}
}

// Since adds the time since begin.
func (d *Durations) Since(begin time.Time) {
	took := time.Since(begin) // before the lock, whose wait is our own
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.all = append(d.mu.all, took)
}

// Median panics if there is no duration.
func (d *Durations) Median() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Median(d.mu.all)
}

// Median sorts all and returns the middle.
func Median[T time.Duration | float64](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}

// Strict is a Store for tests of its callers, who must pass a zero Decision: a
// store need not write each field.
type Strict struct {
	backend.Store
	T *testing.T
}

// Do fails the test if d is not zero.
func (s Strict) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	require.Zero(s.T, *d)
	return s.Store.Do(ctx, r, d)
}

// Attempts is a breaker without failure modes, for the suite: it returns the
// errors that they would answer. The suite's cases are about what a store
// returns, which a failure mode hides.
type Attempts struct{ layer.Fallback }

// Fail returns err.
func (Attempts) Fail(_ context.Context, _ *backend.Request, _ *backend.Decision, err error, _ iter.Seq[*backend.Request]) error {
	return err
}
