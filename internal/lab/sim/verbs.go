package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
)

// take makes a call that takes units, or looks what it would be answered.
func (c *caller) take() {
	if key, costs := c.key(), c.costs(); c.dice.IntN(6) == 0 {
		c.peek(key, costs)
	} else {
		c.do(key, costs)
	}
}

// do takes units of a key. Calls of a key that is lent, and not spread, see what each policy
// answered. Of one that is spread that would change which sub-keys are asked.
func (c *caller) do(key string, costs []int64) outcome {
	l, o := c.limiter(), outcome{verb: "do", op: backend.Take, key: key, costs: costs}
	if plan := c.process.world.plan; plan.Borrow > 0 && plan.Shards < 2 {
		o.each = make([]headgate.State, len(c.policies()))
	}
	return c.ask(o, func(ctx context.Context) (headgate.Decision, error) {
		return l.Do(ctx, headgate.Call{Key: key, Costs: costs, Each: o.each})
	})
}

func (c *caller) peek(key string, costs []int64) outcome {
	l := c.limiter()
	return c.ask(outcome{verb: "peek", op: backend.Peek, key: key, costs: costs}, func(ctx context.Context) (headgate.Decision, error) {
		return l.Peek(ctx, headgate.Call{Key: key, Costs: costs})
	})
}

// lowered makes a call by the limits that are lower.
func (c *caller) lowered() {
	c.list = lowered
	c.take()
}

// atMost takes what there is, in half of its calls.
func (c *caller) atMost() {
	if c.dice.IntN(2) == 0 {
		c.take()
		return
	}
	l, key, n := c.limiter(), c.key(), 1+c.costs()[0]
	c.ask(outcome{verb: "at most", op: backend.AtMost, key: key, most: n}, func(ctx context.Context) (headgate.Decision, error) {
		return l.AllowAtMost(ctx, key, n)
	})
}

// record records in a quarter of its calls. Where much is lent, about once in a period it
// records up to half of the limit.
func (c *caller) record() {
	if c.dice.IntN(4) > 0 {
		c.take()
		return
	}
	l, key, costs := c.limiter(), c.key(), c.costs()
	if c.process.world.plan.Borrow > 0 && c.dice.IntN(8) == 0 && c.once() {
		costs = c.alike(most(c.policies()) / 2)
	}
	c.ask(outcome{verb: "record", op: backend.Record, key: key, costs: costs}, func(ctx context.Context) (headgate.Decision, error) {
		return l.Record(ctx, headgate.Call{Key: key, Costs: costs})
	})
}

// reset removes the counts of a key now and then.
func (c *caller) reset() {
	if c.dice.IntN(60) > 0 {
		c.take()
		return
	}
	c.remove(c.key())
}

// remove removes the counts of a key.
func (c *caller) remove(key string) {
	l := c.limiter()
	c.ask(outcome{verb: "reset", op: backend.Reset, key: key}, func(ctx context.Context) (headgate.Decision, error) {
		return headgate.Decision{}, l.Reset(ctx, key)
	})
}

// reserve makes a reservation, uses it for a while, and settles it.
func (c *caller) reserve() {
	if c.process.world.plan.Slots {
		c.list = slots
	}
	l, key, costs := c.limiter(), c.key(), c.costs()
	if c.list == slots {
		costs[len(costs)-1] = 1
	}
	lease := time.Duration(1+c.dice.IntN(5)) * time.Second
	var r *headgate.Reservation
	o := c.ask(outcome{verb: "reserve", op: backend.Reserve, key: key, costs: costs}, func(ctx context.Context) (d headgate.Decision, err error) {
		r, d, err = l.Reserve(ctx, headgate.Call{Key: key, Costs: costs, Lease: lease})
		return d, err
	})
	if o.err != nil || !o.d.Allowed {
		return
	}
	reserved := &c.calls[len(c.calls)-1]
	c.pause(time.Duration(c.dice.ExpFloat64() * float64(200*time.Millisecond)))
	reserved.held = earlier(time.Now(), o.begin.Add(lease))
	c.settle(r, &o, lease)
}

// settle settles a reservation in one of the ways, or leaves it.
func (c *caller) settle(r *headgate.Reservation, o *outcome, lease time.Duration) {
	settle := outcome{verb: "settle", op: backend.Settle, key: o.key}
	if o.d.Source != headgate.FromStore {
		settle.verb = "settle nothing"
	}
	switch n := c.dice.IntN(10); {
	case n < 4:
		c.ask(settle, func(ctx context.Context) (headgate.Decision, error) {
			return headgate.Decision{}, r.Commit(ctx, c.costs()...)
		})
	case n < 7:
		c.ask(settle, func(ctx context.Context) (headgate.Decision, error) { return headgate.Decision{}, r.Cancel(ctx) })
	case n < 8:
		settle.verb = "extend"
		c.ask(settle, func(ctx context.Context) (headgate.Decision, error) { return headgate.Decision{}, r.Extend(ctx) })
		c.pause(lease / 2)
	case n < 9:
		return // the lease ends by itself
	}
	settle.verb = "close" // sends nothing if the reservation is settled
	c.ask(settle, func(context.Context) (headgate.Decision, error) { return headgate.Decision{}, r.Close() })
}

// patience returns a context for a call that waits.
func (c *caller) patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Duration(1+c.dice.IntN(40))*grid*1024*16384)
}

// wait waits for a pass.
func (c *caller) wait() {
	l, key := c.limiter(), c.key()
	c.turn()
	ctx, cancel := c.patience()
	defer cancel()
	c.askIn(ctx, true, outcome{verb: "wait", op: backend.Take, key: key}, func(ctx context.Context) (headgate.Decision, error) {
		return l.Wait(ctx, key)
	})
}

// pair draws two keys, of which the first one is mostly shared.
func (c *caller) pair() (own, shared string) {
	i := 1 + c.dice.IntN(c.process.world.plan.Keys-1)
	own, shared = keyName(i), keyName(0)
	if c.dice.IntN(4) == 0 {
		return shared, own
	}
	return own, shared
}

// parts are two keys of a call, with one unit of each policy.
func (c *caller) parts(own, shared string) []headgate.Part {
	one := slices.Repeat([]int64{1}, len(c.policies()))
	return []headgate.Part{c.limiter().Part(own, one...), c.limiter().Part(shared, one...)}
}

// all takes of two keys at once.
func (c *caller) all() {
	own, shared := c.pair()
	c.ask(outcome{verb: "all", op: backend.Take, key: own, and: shared}, func(ctx context.Context) (headgate.Decision, error) {
		return headgate.All(ctx, c.parts(own, shared)...)
	})
}

// waitAll waits for a pass of two keys.
func (c *caller) waitAll() {
	own, shared := c.pair()
	c.turn()
	ctx, cancel := c.patience()
	defer cancel()
	c.askIn(ctx, true, outcome{verb: "wait all", op: backend.Take, key: own, and: shared}, func(ctx context.Context) (headgate.Decision, error) {
		return headgate.WaitAll(ctx, c.parts(own, shared)...)
	})
}

// leave makes a call of a crowd: of a key of its own, or as the other callers do.
func (c *caller) leave() {
	with := c.process.world.plan.callers()
	if c.dice.IntN(2) == 0 {
		c.do(fmt.Sprint("c", c.dice.IntN(crowd)), c.costs())
		return
	}
	with[c.dice.IntN(len(with))](c)
}
