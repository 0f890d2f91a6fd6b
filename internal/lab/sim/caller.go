package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
)

// caller calls a limiter, again and again. Only its own goroutine uses it.
type caller struct {
	process *process
	name    string
	number  int           // among all
	list    int           // of policies
	rest    time.Duration // between its calls, on average
	leaves  bool          // it is one of a crowd, and its contexts are cancelled
	dice    *rand.Rand
	calls   []outcome
}

// outcome is one call and how it ended.
type outcome struct {
	op         backend.Op
	verb       string
	key        string
	and        string  // the second key of an All
	costs      []int64 // nil: 1 of each
	begin, end time.Time
	bounded    bool             // its context had an end of its own
	cancelled  bool             // which was no deadline
	by         *process         // that made it
	held       time.Time        // of a Reserve: until then its slots are held at least
	each       []headgate.State // of a key that is lent: what each policy answered
	d          headgate.Decision
	err        error
}

// pause sleeps for about d, to an instant that no other caller has.
func (c *caller) pause(d time.Duration) {
	row := int64(grid * 1024)
	if (c.process.world.plan.Bursts && c.list < 4 || c.leaves) && d > 0 {
		row <<= 16 // half a second
	}
	now := time.Now().UnixNano()
	at := (now+int64(d))/row*row + row + int64(c.number)*grid
	time.Sleep(time.Duration(at - now))
}

func (c *caller) run(end time.Time) {
	for {
		c.pause(time.Duration(c.dice.ExpFloat64() * float64(c.between())))
		if !time.Now().Before(end) {
			return
		}
		switch c.list {
		case 0:
			if c.leaves {
				c.plain(fmt.Sprint("sc", c.dice.IntN(crowd)))
				continue
			}
			c.plain(fmt.Sprint("s", c.dice.IntN(5)))
		case 1:
			c.reserve(end)
		case 2:
			c.waitOrAll()
		case 3:
			c.plain("hot")
		default:
			c.lent()
		}
	}
}

// between returns for how long the caller rests on average before its next call.
func (c *caller) between() time.Duration {
	switch {
	case c.list < 4 || !c.process.world.plan.Runs:
		return c.rest
	case len(c.calls)%8 > 0:
		return time.Millisecond / 2
	}
	return 8 * c.rest
}

// crowd is how many callers of a crowd there are. They come at once, so most of them wait for
// a place, and some leave meanwhile.
const crowd = 32

// policies returns the caller's list.
func (c *caller) policies() []headgate.Policy {
	return c.process.world.plan.list(c.process.number, c.list)
}

// limiter returns the limiter of the caller's list.
func (c *caller) limiter() *headgate.Limiter { return c.process.limiters[c.list] }

// context returns that of a call: one in four ends soon.
func (c *caller) context() (ctx context.Context, cancel func(), bounded bool) {
	if c.leaves {
		ctx, cancel = context.WithCancel(context.Background())
		time.AfterFunc(time.Duration(20+c.dice.IntN(400))*grid*1024, cancel)
		return ctx, cancel, true
	}
	if c.dice.IntN(4) > 0 {
		return context.Background(), func() {}, false
	}
	ctx, cancel = context.WithTimeout(context.Background(), time.Duration(1+c.dice.IntN(150))*grid*1024*100)
	return ctx, cancel, true
}

// call makes a call and notes how it ended.
func (c *caller) call(o outcome, f func(ctx context.Context) (headgate.Decision, error)) outcome {
	ctx, cancel, bounded := c.context()
	defer cancel()
	return c.callIn(ctx, bounded, o, f)
}

func (c *caller) callIn(ctx context.Context, bounded bool, o outcome, f func(ctx context.Context) (headgate.Decision, error)) outcome {
	o.begin, o.bounded, o.cancelled = time.Now(), bounded, bounded && c.leaves
	if o.by == nil {
		o.by = c.process
	}
	o.d, o.err = f(ctx)
	o.end = time.Now()
	c.calls = append(c.calls, o)
	c.process.world.note(c.name, o.String())
	return o
}

func (o *outcome) String() string {
	took := o.end.Sub(o.begin)
	s := fmt.Sprintf("%s %s %v after %v: ", o.verb, o.key, o.costs, took)
	if o.err != nil {
		return s + o.err.Error()
	}
	s += fmt.Sprintf("%v by %v, %s %d of %d, again after %v", o.d.Allowed, o.d.Source, o.d.Policy, o.d.Used, o.d.Limit, o.d.RetryAfter)
	if o.d.Err != nil {
		s += ": " + o.d.Err.Error()
	}
	return s
}

// costs draws the units of a call: mostly 1 of each policy.
func (c *caller) costs() (costs []int64) {
	for range c.policies() {
		n := int64(1)
		if c.dice.IntN(4) == 0 {
			n += int64(c.dice.IntN(3))
		}
		costs = append(costs, n)
	}
	return costs
}

// plain makes a call that is over when it returns.
func (c *caller) plain(key string) {
	l, costs := c.limiter(), c.costs()
	o := outcome{op: backend.Take, key: key, costs: costs}
	switch n := c.dice.IntN(20); {
	case n < 12:
		o.verb = "do"
		c.call(o, func(ctx context.Context) (headgate.Decision, error) {
			return l.Do(ctx, headgate.Call{Key: key, Costs: costs})
		})
	case n < 15:
		o.verb, o.op = "peek", backend.Peek
		c.call(o, func(ctx context.Context) (headgate.Decision, error) {
			return l.Peek(ctx, headgate.Call{Key: key, Costs: costs})
		})
	case n < 17:
		o.verb, o.op, o.costs = "at most", backend.AtMost, nil
		c.call(o, func(ctx context.Context) (headgate.Decision, error) { return l.AllowAtMost(ctx, key, 1+costs[0]) })
	case n < 19 && c.policies()[0].Shards < 2: // a spread key has no Record
		o.verb, o.op = "record", backend.Record
		c.call(o, func(ctx context.Context) (headgate.Decision, error) {
			return l.Record(ctx, headgate.Call{Key: key, Costs: costs})
		})
	case n == 19:
		o.verb, o.op, o.key = "reset", backend.Reset, "r"+key
		c.call(o, func(ctx context.Context) (headgate.Decision, error) { return headgate.Decision{}, l.Reset(ctx, o.key) })
	}
}

// reserve makes a reservation and settles it in one of the ways, or leaves it.
func (c *caller) reserve(end time.Time) {
	l, key := c.limiter(), fmt.Sprint("j", c.dice.IntN(3))
	costs := c.costs()
	costs[len(costs)-1] = 1 // a slot
	lease := time.Duration(1+c.dice.IntN(5)) * time.Second
	var r *headgate.Reservation
	o := c.call(outcome{verb: "reserve", op: backend.Reserve, key: key, costs: costs}, func(ctx context.Context) (d headgate.Decision, err error) {
		r, d, err = l.Reserve(ctx, headgate.Call{Key: key, Costs: costs, Lease: lease})
		return d, err
	})
	if o.err != nil || !o.d.Allowed {
		return
	}
	reserved := &c.calls[len(c.calls)-1]
	c.pause(time.Duration(c.dice.ExpFloat64() * float64(200*time.Millisecond)))
	reserved.held = earlier(time.Now(), o.begin.Add(lease))
	settle := outcome{verb: "settle", op: backend.Settle, key: key}
	if o.d.Source != headgate.FromStore {
		settle.verb = "settle nothing"
	}
	switch n := c.dice.IntN(10); {
	case n < 4:
		c.call(settle, func(ctx context.Context) (headgate.Decision, error) {
			return headgate.Decision{}, r.Commit(ctx, c.costs()...)
		})
	case n < 7:
		c.call(settle, func(ctx context.Context) (headgate.Decision, error) { return headgate.Decision{}, r.Cancel(ctx) })
	case n < 8:
		settle.verb = "extend"
		c.call(settle, func(ctx context.Context) (headgate.Decision, error) { return headgate.Decision{}, r.Extend(ctx) })
		c.pause(lease / 2)
	case n < 9:
		return // the lease ends by itself
	}
	settle.verb = "close" // sends nothing if the reservation is settled
	c.call(settle, func(context.Context) (headgate.Decision, error) { return headgate.Decision{}, r.Close() })
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// waitOrAll waits for a pass, or asks for several keys at once.
func (c *caller) waitOrAll() {
	l := c.limiter()
	if c.dice.IntN(2) == 0 {
		key := fmt.Sprint("w", c.dice.IntN(2))
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+c.dice.IntN(40))*grid*1024*16384)
		defer cancel()
		c.callIn(ctx, true, outcome{verb: "wait", op: backend.Take, key: key}, func(ctx context.Context) (headgate.Decision, error) {
			return l.Wait(ctx, headgate.Call{Key: key})
		})
		return
	}
	user, group := fmt.Sprint("u", c.dice.IntN(20)), fmt.Sprint("g", c.dice.IntN(2))
	c.call(outcome{verb: "all", op: backend.Take, key: user, and: group}, func(ctx context.Context) (headgate.Decision, error) {
		one := make([]int64, len(c.policies()))
		for i := range one {
			one[i] = 1
		}
		return headgate.All(ctx, l.Call(user, one...), l.Call(group, one...))
	})
}

// lent makes a call of a key of which processes borrow units.
func (c *caller) lent() {
	l, key, costs, plan := c.limiter(), fmt.Sprint("b", c.dice.IntN(8)/7), []int64(nil), c.process.world.plan
	o := outcome{op: backend.Take, verb: "do", key: key}
	switch n := c.dice.IntN(40); {
	case n < 2:
		o.verb, o.op = "peek", backend.Peek
		c.call(o, func(ctx context.Context) (headgate.Decision, error) { return l.Peek(ctx, headgate.Call{Key: key}) })
		return
	case n < 3 && c.policies()[0].Shards < 2:
		o.verb, o.op = "record", backend.Record
		if plan.Records && c.once() {
			o.costs = c.alike(most(c.policies()) / 2)
		}
		c.call(o, func(ctx context.Context) (headgate.Decision, error) {
			return l.Record(ctx, headgate.Call{Key: key, Costs: o.costs})
		})
		return
	case n < 6:
		costs = c.costs()
	case n < 10:
		costs = slices.Repeat([]int64{2}, len(c.policies()))
	case n < 11 && plan.Large > 0 && c.once():
		costs = c.alike(min(plan.Large, most(c.policies())))
	}
	o.costs = costs
	spread := c.policies()[0].Shards > 1
	for range 12 { // a large call is asked again while it is denied for units that are lent only
		if !spread { // where it changes which sub-keys are asked
			o.each = make([]headgate.State, len(c.policies()))
		}
		last := c.call(o, func(ctx context.Context) (headgate.Decision, error) {
			return l.Do(ctx, headgate.Call{Key: key, Costs: costs, Each: o.each})
		})
		if plan.Large == 0 || c.withheld(&last) == nil {
			return
		}
		c.pause(plan.Borrow / 5)
	}
}

// once reports about once in a period whether one call in 40 is to be that one.
func (c *caller) once() bool {
	period := c.policies()[0].Algorithm.Limit().Period
	return c.dice.IntN(1+int(period*lendings/c.process.world.plan.Lasts/40)) == 0
}

// alike draws 2 units or more of each policy, the same number.
func (c *caller) alike(most int64) []int64 {
	return slices.Repeat([]int64{2 + c.dice.Int64N(max(most-1, 1))}, len(c.policies()))
}

// perhaps reports whether a call may have been counted without an answer to its caller.
func (o *outcome) perhaps() bool {
	return errors.Is(o.err, headgate.ErrPerhapsCounted) || errors.Is(o.d.Err, headgate.ErrPerhapsCounted)
}

// stood reports whether a denial that is known to stand answered a call that was sent. Its
// reply was lost, and its node may have lost its counts since that denial.
func (o *outcome) stood() bool {
	return o.d.Source == headgate.FromDenyCache && o.end.After(o.begin)
}
