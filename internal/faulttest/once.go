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
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/stretchr/testify/require"
)

// lost is how many replies are lost, in each way and run.
var lost = redistest.Steps(150, 1000)

// pace is between two calls of a caller: what is measured is the store, not
// how 64 callers that never pause share two cores.
const pace = 2 * time.Millisecond

// one in so many round trips is hit: the circuit must stay closed meanwhile.
const hitEvery = 10

// AtMostOnce loses replies in each way: no call may be charged
// twice, each must be told what is known of it, and within budget plus what
// who merely waits for it is late by in the same run. Each of the limiters has
// a client of its own and goes through the faults, direct past them: a client
// whose connections are all lost at once opens its circuit, rightly, and the
// others go on.
func AtMostOnce(t *testing.T, ls []*headgate.Limiter, direct *headgate.Limiter, faults Faults, budget time.Duration) {
	for i := range 100 { // connections and script are there before the first fault
		_, err := ls[i%len(ls)].Allow(context.Background(), fmt.Sprint("warm", i))
		require.NoError(t, err)
	}
	for _, fault := range []redistest.Fault{
		redistest.SwallowReply(budget * 3 / 2), redistest.ResetAfterRequest, redistest.HalfReply,
	} {
		t.Run(fault.String(), func(t *testing.T) {
			// What is counted must hold in every run; the longest of thousands of
			// calls on a busy machine, in the first runs or in three of five.
			for timely, late := 0, 0; timely < redistest.Steps(1, 2) || late > 0 && timely < 3; {
				o := &once{ls: ls, direct: direct, faults: faults, fault: fault, run: timely + late}
				inTime := false
				if !t.Run(fmt.Sprint("run", o.run), func(t *testing.T) { inTime = o.lose(t, budget) }) {
					return
				}
				if inTime {
					timely++
				} else {
					late++
				}
				require.Less(t, late, 3, "calls outlived the budget and what who merely waits is late by")
			}
		})
	}
}

// once is one way of losing replies.
type once struct {
	ls                       []*headgate.Limiter
	direct                   *headgate.Limiter
	faults                   Faults
	fault                    redistest.Fault
	run                      int
	perhaps, unsent, decided atomic.Int64
	worst                    atomic.Int64
}

// lose loses the replies and reports whether every call ended in time.
func (o *once) lose(t *testing.T, budget time.Duration) (timely bool) {
	before := o.faults.Hit()
	defer o.faults.Set(redistest.Pass)
	o.faults.Set(o.fault)
	o.faults.Every(hitEvery)
	late := lateness(t, budget)
	var running sync.WaitGroup
	for c := range Callers {
		running.Add(1)
		go func() {
			defer running.Done()
			for i := 0; o.faults.Hit()-before < lost; i++ {
				o.call(t, o.ls[c%len(o.ls)], fmt.Sprintf("%v/%d/%d/%d", o.fault, o.run, c, i))
				time.Sleep(pace)
			}
		}()
	}
	running.Wait()
	hit := o.faults.Hit() - before
	took, allowed := time.Duration(o.worst.Load()), budget+late()
	t.Logf("%d replies lost of %d; told: %d perhaps counted, %d nothing sent; longest call %v, budget and what who merely waits is late by %v",
		hit, o.perhaps.Load()+o.decided.Load(), o.perhaps.Load(), o.unsent.Load(), took, allowed)
	// More may be told so than were hit: on a busy machine a reply that was not
	// lost can come after the budget. What each was told is held against what
	// was counted in call.
	require.GreaterOrEqual(t, o.perhaps.Load(), int64(hit), "every call whose reply was lost is told so")
	return took <= allowed
}

// lateness is the worst of four a millisecond that merely wait: about as many as
// there are calls, without being a load of their own. They end with the test.
func lateness(t *testing.T, budget time.Duration) func() time.Duration {
	var lates [4]*redistest.Late
	for i := range lates {
		lates[i] = redistest.Lateness(t, budget)
	}
	return func() (worst time.Duration) {
		for _, l := range lates {
			worst = max(worst, l.Max())
		}
		return worst
	}
}

// call makes one call on a key of its own and holds what it was told against
// what was counted.
func (o *once) call(t *testing.T, l *headgate.Limiter, key string) {
	begin := time.Now()
	d, err := l.Allow(context.Background(), key)
	highest(&o.worst, time.Since(begin))
	if err != nil {
		t.Error(err)
		return
	}
	told(t, d, key, Used(t, o.direct, key))
	switch {
	case errors.Is(d.Err, headgate.ErrPerhapsCounted):
		o.perhaps.Add(1)
	case d.Err != nil:
		o.unsent.Add(1)
	default:
		o.decided.Add(1)
	}
}

// told holds what a call on a key of its own was told against what was
// counted.
func told(t *testing.T, d headgate.Decision, key string, used int64) {
	switch {
	case d.Source == headgate.FromStore && d.Allowed && used == 1:
	case errors.Is(d.Err, headgate.ErrPerhapsCounted) && used <= 1:
	case errors.Is(d.Err, headgate.ErrUnavailable) && used == 0:
	default:
		t.Errorf("%s: charged %d, told %v by %v", key, used, d.Err, d.Source)
	}
}

func highest(m *atomic.Int64, d time.Duration) {
	for old := m.Load(); int64(d) > old && !m.CompareAndSwap(old, int64(d)); old = m.Load() {
	}
}
