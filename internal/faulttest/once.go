package faulttest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/stretchr/testify/require"
)

// pace is the pause between two calls of a caller. The test measures the store,
// not how 64 callers without a pause share two cores.
const pace = 2 * time.Millisecond

// hitEvery lets so many round trips pass per lost one that the circuit must stay
// closed.
const hitEvery = 10

// AtMostOnce loses replies in each way. No call may be charged twice, and each
// must report whether it was perhaps counted. Each must end within the budget
// and the lateness of a bare wait in the same run. Each of the limiters has a
// client of its own and goes through the network, direct past it. A client
// whose connections are all lost at once rightly opens its circuit.
func AtMostOnce(
	t *testing.T, ls []*headgate.Limiter, direct *headgate.Limiter, network Network, budget time.Duration,
) {
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
				require.Less(t, late, 3, "calls outlived the budget and the lateness of a bare wait")
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
	worst                    atomic.Int64
}

// lose loses the replies and reports whether every call ended in time. It leaves
// the verdict on time to AtMostOnce, and fails the test for a wrong count.
func (o *once) lose(t *testing.T, budget time.Duration) (timely bool) {
	before, replies := o.network.Hit(), redistest.Steps(150, 1000)
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
	took, allowed := time.Duration(o.worst.Load()), budget+late.Max()
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
	took := int64(time.Since(begin)) // before the look at the count, which is no part of the call
	for old := o.worst.Load(); took > old && !o.worst.CompareAndSwap(old, took); old = o.worst.Load() {
	}
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
