package faulttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// Budget is that of the limiters of Batches. It is long, since their subject is
// what a batch contains, not what a busy machine ends in time.
const Budget = 2 * time.Second

// Batches are tests of calls that share a batch.
type Batches struct {
	Through func(...headgate.Policy) *headgate.Limiter // through the network, with a new client
	Direct  func(...headgate.Policy) *headgate.Limiter
	Network Network
	Name    func(i int) string // keys that lie on one server of the network
}

// Run runs them.
func (f *Batches) Run(t *testing.T) {
	t.Run("Merged", f.merged)
	t.Run("Withdrawn", f.withdrawn)
	t.Run("Swallowed", f.swallowed)
	t.Run("Wide", f.wide)
}

// hold sends as many batches as may be in flight and delays their replies: later
// calls are pending until the replies come. After that the network passes
// everything. The caller calls release to wait for the calls of hold.
func (f *Batches) hold(t *testing.T, l *headgate.Limiter) (release func()) {
	call := func() { _, _ = l.Allow(context.Background(), f.Name(0)) }
	call() // a connection and the script are there
	f.Network.Set(redistest.Delay(Budget / 4))
	var held sync.WaitGroup
	// The number of batches in flight is the client's. It is reached when one more
	// call does not reach the network.
	begin := time.Now() // on a busy machine replies may come while the loop runs
	for sent := true; sent && time.Since(begin) < Budget/8; {
		seen := f.Network.Seen()
		held.Add(1)
		go func() {
			defer held.Done()
			call()
		}()
		sent = false
		for end := time.Now().Add(50 * time.Millisecond); !sent && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
			sent = f.Network.Seen() > seen
		}
	}
	f.Network.Set(redistest.Pass)
	return held.Wait
}

// merged: a thousand calls on one key that share batches are decided as if one
// came after the other. The limit passes, and no two get the same remainder.
func (f *Batches) merged(t *testing.T) {
	const limit, calls = 300, 1000
	for _, p := range every(limit) {
		l := f.Through(closed("other"+p.Name, Wide.Algorithm))
		both, err := l.With(p)
		require.NoError(t, err)
		release, before := f.hold(t, l), f.Network.Seen()
		var remainders sync.Map
		var n atomic.Int64
		Go(calls, func(i int) {
			d, err := both.Allow(context.Background(), f.Name(1)+p.Name)
			switch {
			case err != nil || d.Err != nil:
				t.Error(err, d.Err)
			case d.Allowed:
				n.Add(1)
				if _, twice := remainders.LoadOrStore(d.Remaining, i); twice {
					t.Errorf("%s: two calls got %d remaining", p.Name, d.Remaining)
				}
			case d.Remaining != 0 || d.RetryAfter <= 0:
				t.Errorf("%s: %+v", p.Name, d)
			}
		})()
		release()
		require.EqualValues(t, limit, n.Load(), p.Name)
		require.Less(t, f.Network.Seen()-before, calls/4, "the calls share batches")
	}
}

// withdrawn: of pending calls, those whose callers cancel are never charged, and
// the others of their key are. Another try is for a process that was stopped until the
// replies came.
func (f *Batches) withdrawn(t *testing.T) {
	for try := 1; f.withdraw(t, try); try++ {
		require.Less(t, try, 5, "calls are decided whose callers have left")
	}
}

// withdraw reports whether calls were decided before their callers left.
func (f *Batches) withdraw(t *testing.T, try int) (late bool) {
	const each, keys = 50, 5
	p := closed(fmt.Sprint("withdrawn", try), Wide.Algorithm)
	l := f.Through(p)
	release := f.hold(t, l)
	ctx, cancel := context.WithCancel(context.Background())
	var decided, cancelled atomic.Int64
	// Both kinds have the same keys, so that the merged call of a key loses some of
	// its parts.
	stay := Go(each, func(i int) {
		if d, err := l.Allow(context.Background(), f.Name(2+i%keys)); err == nil && d.Err == nil && d.Allowed {
			decided.Add(1)
		}
	})
	gone := Go(each, func(i int) {
		if _, err := l.Allow(ctx, f.Name(2+i%keys)); errors.Is(err, context.Canceled) {
			cancelled.Add(1)
		}
	})
	time.Sleep(10 * time.Millisecond) // most are pending then; a later call begins cancelled
	cancel()
	gone()
	release()
	stay()
	require.EqualValues(t, each, decided.Load())
	if cancelled.Load() < each {
		return true
	}
	require.EqualValues(t, each, f.used(t, 2, keys, p))
	return false
}

// swallowed: the reply to a batch of a hundred calls is lost. Each call is
// charged at most once and reports so, and the circuit stays closed. Another try is for a
// busy machine, which sends the batch too late or in parts.
func (f *Batches) swallowed(t *testing.T) {
	for try := 1; !f.swallow(t, try); try++ {
		require.Less(t, try, 5, "the lost reply was that of a batch of many")
	}
}

// swallow reports whether the lost reply was that of a batch of many.
func (f *Batches) swallow(t *testing.T, try int) bool {
	p := closed("swallowed", Wide.Algorithm)
	l, direct := f.Through(p), f.Direct(p)
	release := f.hold(t, l)
	// The hold outlasts the budget: the calls must end by their own deadline, not
	// by the end of the connection.
	f.Network.Set(redistest.SwallowReply(2 * Budget).Times(1))
	defer f.Network.Set(redistest.Pass)
	var perhaps atomic.Int64
	Go(100, func(i int) {
		key := fmt.Sprint(f.Name(10+i), "/swallowed", try)
		d, err := l.Allow(context.Background(), key)
		if err != nil {
			t.Error(err)
			return
		}
		consistent(t, d, key, Used(t, direct, key))
		if errors.Is(d.Err, headgate.ErrPerhapsCounted) {
			perhaps.Add(1)
		}
	})()
	release()
	// One lost round trip is no outage, however many calls it carried.
	for node, state := range l.Stats().Circuits {
		require.Equal(t, "closed", state, node)
	}
	d, err := l.Allow(context.Background(), f.Name(10))
	require.NoError(t, err)
	require.NoError(t, d.Err)
	return perhaps.Load() > 1
}

// wide: calls of twenty policies and of different costs share batches too.
func (f *Batches) wide(t *testing.T) {
	const calls, keys = 200, 10
	var ps []headgate.Policy
	for i := range 20 {
		ps = append(ps, closed(fmt.Sprint("wide", i), algo.TokenBucket(algo.Per(1, algo.MaxPeriod), 1<<20)))
	}
	l := f.Through(ps...)
	release := f.hold(t, l)
	// Different costs on one key: a merged call must add up what each asks for.
	var want atomic.Int64
	Go(calls, func(i int) {
		cost := int64(1 + i%7)
		want.Add(cost)
		d, err := l.AllowN(context.Background(), f.Name(1000+i%keys), cost)
		if err != nil || d.Err != nil || !d.Allowed {
			t.Error(err, d)
		}
	})()
	release()
	require.Equal(t, want.Load(), f.used(t, 1000, keys, ps...))
}

// used returns the sum of the counts of n keys.
// The direct limiter has no proxy, whose faults would hide what the server has
// counted.
func (f *Batches) used(t *testing.T, from, n int, ps ...headgate.Policy) (sum int64) {
	direct := f.Direct(ps...)
	for i := range n {
		sum += Used(t, direct, f.Name(from+i))
	}
	return sum
}

// pace is the pause between two calls of a caller. The test measures the store,
// not how 64 callers without a pause share two cores.
const pace = 2 * time.Millisecond

// hitEvery lets so many round trips pass per lost one that the circuit must stay
// closed.
const hitEvery = 10

// AtMostOnce loses replies in each way. No call may be charged twice, and each must report
// whether it was perhaps counted. Each must end within the budget and the lateness of a bare wait
// in the same run. A process that is late by itself has two budgets. Each of the limiters has a
// client of its own and goes through the network, direct past it. A client whose connections are
// all lost at once rightly opens its circuit.
func AtMostOnce(t *testing.T, ls []*headgate.Limiter, direct *headgate.Limiter, network Network, budget time.Duration) {
	for i := range 100 { // connections and script are there before the first fault
		_, err := ls[i%len(ls)].Allow(context.Background(), fmt.Sprint("warm", i))
		require.NoError(t, err)
	}
	for _, fault := range []redistest.Fault{
		// The reply that is swallowed ends a call by its budget, the others at once.
		redistest.SwallowReply(budget * 3 / 2), redistest.ResetAfterRequest, redistest.HalfReply,
	} {
		t.Run(fault.String(), func(t *testing.T) {
			// Counts must hold in every run. The longest of thousands of calls on a busy
			// machine must hold in the first runs or in three of five.
			for timely, late := 0, 0; timely < redistest.Steps(1, 2) || late > 0 && timely < 3; {
				o := &once{ls: ls, direct: direct, network: network, fault: fault, run: timely + late}
				inTime := false
				if !t.Run(fmt.Sprint("run", o.run), func(t *testing.T) { inTime = o.lose(t, budget) }) {
					return
				}
				if inTime {
					timely++
				} else {
					late++
				}
				require.Less(t, late, redistest.Steps(8, 3), "calls outlived the budget and the lateness of a bare wait")
			}
		})
	}
}

// once is one run with one way of losing replies. Its keys contain the run, so that
// each call finds a count of zero.
type once struct {
	ls                       []*headgate.Limiter
	direct                   *headgate.Limiter
	network                  Network
	fault                    redistest.Fault
	run                      int
	perhaps, unsent, decided atomic.Int64
	took                     Durations
}

// lose loses the replies and reports whether every call ended in time. It leaves
// the verdict on time to AtMostOnce, and fails the test for a wrong count.
func (o *once) lose(t *testing.T, budget time.Duration) (timely bool) {
	before, replies := o.network.Hit(), redistest.Steps(60, 1000)
	o.network.Set(o.fault.Every(hitEvery))
	defer o.network.Set(redistest.Pass)
	late := redistest.Lateness(t, budget)
	Go(Callers, func(c int) {
		for i := 0; o.network.Hit()-before < replies; i++ {
			o.call(t, o.ls[c%len(o.ls)], fmt.Sprintf("%v/%d/%d/%d", o.fault, o.run, c, i))
			time.Sleep(pace)
		}
	})()
	hit := o.network.Hit() - before
	took, allowed := slices.Max(o.took.mu.all), late.Within()
	t.Logf("%d replies lost of %d: %d calls perhaps counted, %d not sent; longest call %v, budget and lateness %v",
		hit, o.perhaps.Load()+o.decided.Load(), o.perhaps.Load(), o.unsent.Load(), took, allowed)
	// More calls than hits may report it: on a busy machine a reply that was not
	// lost can come after the budget. call compares each report with the count.
	require.GreaterOrEqual(t, o.perhaps.Load(), int64(hit), "every call whose reply was lost reports it")
	return took <= allowed
}

// call makes one call on a key of its own.
func (o *once) call(t *testing.T, l *headgate.Limiter, key string) {
	begin := time.Now()
	d, err := l.Allow(context.Background(), key)
	o.took.Since(begin) // before the look at the count, which is no part of the call
	if err != nil {
		t.Error(err)
		return
	}
	consistent(t, d, key, Used(t, o.direct, key))
	switch {
	case errors.Is(d.Err, headgate.ErrPerhapsCounted):
		o.perhaps.Add(1)
	case d.Err != nil:
		o.unsent.Add(1)
	default:
		o.decided.Add(1)
	}
}

// consistent compares the decision of the only call on a key with the count. A
// decided call is counted once, one that was perhaps counted at most once, and
// one that was not sent never.
func consistent(t *testing.T, d headgate.Decision, key string, used int64) {
	switch {
	case d.Source == headgate.FromStore && d.Allowed && used == 1:
	case errors.Is(d.Err, headgate.ErrPerhapsCounted) && used <= 1:
	case errors.Is(d.Err, headgate.ErrUnavailable) && used == 0:
	default:
		t.Errorf("%s: charged %d, reported %v by %v", key, used, d.Err, d.Source)
	}
}
