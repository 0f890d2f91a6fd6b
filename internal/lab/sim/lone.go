package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
)

// lone makes the plan that of one caller of one server, 80 ms away, from nothing. Each packet
// that is sent in one span of 80 ms takes up to 80 ms longer: a round trip is slow once.
func (p *Plan) lone(dice *rand.Rand) {
	p.Workloads, p.Cluster, p.Primaries, p.Procs, p.Callers = nil, false, 1, 1, 1
	p.Far, p.TLS, p.Pause, p.Lasts = true, dice.IntN(2) == 0, pauseOfLone, 2*time.Second
	p.Extras = Extras{Lone: true}
	p.Schedule = []fault{{
		at: time.Duration(dice.Int64N(int64(time.Second))), lasts: 4 * far, kind: slowness, proc: -1, size: dice.Uint64(),
	}}
}

// pauseOfLone is how long a lone caller rests on average before its next call.
const pauseOfLone = 20 * time.Millisecond

// lone makes a call whose context has no end.
func (c *caller) lone() {
	l := c.limiter()
	o := outcome{verb: "do", op: backend.Take, key: c.key()}
	c.askIn(context.Background(), false, o, func(ctx context.Context) (headgate.Decision, error) {
		return l.Do(ctx, headgate.Call{Key: o.key})
	})
}

// firstDecision returns how long after a lone caller's first call the store decided one, 0 if it
// decided none.
func (w *World) firstDecision() time.Duration {
	calls := w.procs[0].callers[0].calls
	i := slices.IndexFunc(calls, func(o outcome) bool { return o.decided() })
	if i < 0 {
		return 0
	}
	return calls[i].end.Sub(calls[0].begin)
}

// loneIsDecided looks for the first decision of a lone caller.
func (w *World) loneIsDecided() error {
	if !w.plan.Lone {
		return nil
	}
	if after := w.firstDecision(); after == 0 || after >= time.Second {
		return fmt.Errorf("first decision after %v (TLS: %v)", after, w.plan.TLS)
	}
	return nil
}
