package faulttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/stretchr/testify/require"
)

// Budget is that of the limiters through the gate: what rides together is
// their subject, not what is in time on a busy machine.
const Budget = 2 * time.Second

// Gate is what lies between a store and one server: it holds replies back, so
// that calls gather.
type Gate interface {
	Faults
	Limit(n int) // only the first n round trips from the last Set on are hit
	Seen() int   // round trips since the start
}

// Flights are tests of calls that ride together. Name gives keys that lie on
// the gate's server.
type Flights struct {
	Through func(...headgate.Policy) *headgate.Limiter // past the gate, made anew
	Direct  func(...headgate.Policy) *headgate.Limiter
	Gate    Gate
	Name    func(i int) string
}

// Run runs them.
func (f *Flights) Run(t *testing.T) {
	t.Run("Merged", f.merged)
	t.Run("Withdrawn", f.withdrawn)
	t.Run("Swallowed", f.swallowed)
	t.Run("Wide", f.wide)
}

// hold sends as many calls as may be in flight, and holds their replies: later
// calls are pending until the replies come. The gate passes everything after
// that.
func (f *Flights) hold(t *testing.T, l *headgate.Limiter) (release func()) {
	_, err := l.Allow(context.Background(), f.Name(0))
	require.NoError(t, err)
	f.Gate.Set(redistest.Delay(Budget / 4))
	var held sync.WaitGroup
	begin := time.Now() // on a busy machine replies may come while the loop fills
	for leaves := true; leaves && time.Since(begin) < Budget/8; {
		seen := f.Gate.Seen()
		held.Add(1)
		go func() {
			defer held.Done()
			_, _ = l.Allow(context.Background(), f.Name(0))
		}()
		leaves = f.goes(seen)
	}
	f.Gate.Set(redistest.Pass)
	return held.Wait
}

// goes reports whether the gate sees one more soon.
func (f *Flights) goes(seen int) bool {
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if f.Gate.Seen() > seen {
			return true
		}
	}
	return false
}

// merged: a thousand calls that ride together on one key are decided as one
// after the other. The limit passes, and no two of them are told the same.
func (f *Flights) merged(t *testing.T) {
	const limit, calls = 300, 1000
	for _, p := range every(limit) {
		wide := Wide
		wide.Name = "other" + p.Name
		l := f.Through(wide)
		both, err := l.With(p)
		require.NoError(t, err)
		release, before := f.hold(t, l), f.Gate.Seen()
		var told sync.Map
		var running sync.WaitGroup
		var n atomic.Int64
		for i := range calls {
			running.Add(1)
			go func() {
				defer running.Done()
				d, err := both.Allow(context.Background(), f.Name(1)+p.Name)
				switch {
				case err != nil || d.Err != nil:
					t.Error(err, d.Err)
				case d.Allowed:
					n.Add(1)
					if _, twice := told.LoadOrStore(d.Remaining, i); twice {
						t.Errorf("%s: two calls were told %d remain", p.Name, d.Remaining)
					}
				case d.Remaining != 0 || d.RetryAfter <= 0:
					t.Errorf("%s: %+v", p.Name, d)
				}
			}()
		}
		running.Wait()
		release()
		require.EqualValues(t, limit, n.Load(), p.Name)
		require.Less(t, f.Gate.Seen()-before, calls/4, "they rode together")
	}
}

// withdrawn: of calls that wait for a flight, those whose callers leave are
// never charged, and leave the others of their key alone.
func (f *Flights) withdrawn(t *testing.T) {
	const each = 50
	wide := Wide
	wide.Name = "withdrawn"
	l := f.Through(wide)
	release := f.hold(t, l)
	ctx, leave := context.WithCancel(context.Background())
	var stay, gone sync.WaitGroup
	var decided, left atomic.Int64
	for i := range each {
		stay.Add(1)
		gone.Add(1)
		key := f.Name(2 + i%5)
		go func() {
			defer stay.Done()
			if d, err := l.Allow(context.Background(), key); err == nil && d.Err == nil && d.Allowed {
				decided.Add(1)
			}
		}()
		go func() {
			defer gone.Done()
			if _, err := l.Allow(ctx, key); errors.Is(err, context.Canceled) {
				left.Add(1)
			}
		}()
	}
	time.Sleep(10 * time.Millisecond) // they wait; where some did not yet, they leave before they have come
	leave()
	gone.Wait()
	release()
	stay.Wait()
	require.EqualValues(t, each, left.Load())
	require.EqualValues(t, each, decided.Load())
	direct, used := f.Direct(wide), int64(0)
	for i := range 5 {
		used += Used(t, direct, f.Name(2+i))
	}
	require.EqualValues(t, each, used)
}

// swallowed: of a flight of a hundred calls whose reply is lost, each is
// charged at most once and told so, and the circuit stays closed.
func (f *Flights) swallowed(t *testing.T) {
	const calls = 100
	wide := Wide
	wide.Name = "swallowed"
	l := f.Through(wide)
	direct := f.Direct(wide)
	release := f.hold(t, l)
	f.Gate.Set(redistest.SwallowReply(2 * Budget))
	f.Gate.Limit(1)
	var running sync.WaitGroup
	var perhaps atomic.Int64
	for i := range calls {
		running.Add(1)
		go func() {
			defer running.Done()
			key := fmt.Sprint(f.Name(10+i), "/swallowed")
			if d, err := l.Allow(context.Background(), key); err != nil {
				t.Error(err)
			} else if told(t, d, key, Used(t, direct, key)); errors.Is(d.Err, headgate.ErrPerhapsCounted) {
				perhaps.Add(1)
			}
		}()
	}
	running.Wait()
	release()
	f.Gate.Set(redistest.Pass)
	require.Greater(t, perhaps.Load(), int64(1), "the lost reply was that of a flight of many")
	for node, state := range l.Circuits() {
		require.Equal(t, "closed", state, node)
	}
	d, err := l.Allow(context.Background(), f.Name(10))
	require.NoError(t, err)
	require.NoError(t, d.Err)
}

// wide: lists of many policies and calls of many costs ride together too.
func (f *Flights) wide(t *testing.T) {
	var ps []headgate.Policy
	for i := range 20 {
		ps = append(ps, headgate.Policy{Name: fmt.Sprint("wide", i), Algorithm: algo.TokenBucket(algo.Per(1, algo.MaxPeriod), 1<<20), OnFailure: headgate.FailClosed})
	}
	l := f.Through(ps...)
	release := f.hold(t, l)
	var running sync.WaitGroup
	for i := range 200 {
		running.Add(1)
		go func() {
			defer running.Done()
			d, err := l.AllowN(context.Background(), f.Name(1000+i%10), int64(1+i%7))
			if err != nil || d.Err != nil || !d.Allowed {
				t.Error(err, d)
			}
		}()
	}
	running.Wait()
	release()
	used, want := int64(0), int64(0)
	for i := range 200 {
		want += int64(1 + i%7)
	}
	direct := f.Direct(ps...)
	for i := range 10 {
		used += Used(t, direct, f.Name(1000+i))
	}
	require.Equal(t, want, used)
}
