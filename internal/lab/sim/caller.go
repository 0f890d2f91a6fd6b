package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
)

// caller calls a limiter, again and again. Only its own goroutine uses it.
type caller struct {
	process *process
	name    string
	number  int             // among all
	list    int             // of policies, of its next call
	rest    time.Duration   // between its calls, on average
	call    func(c *caller) // makes one
	steady  bool            // it calls at instants of its own, also where the others do not
	runs    bool            // it calls eight times in a moment, and then rests
	leaves  bool            // it is one of a crowd, and its contexts are cancelled
	hurries bool            // it calls again at once while processes are late
	refused bool            // its last call was, by an open circuit
	dice    *rand.Rand
	calls   []outcome
}

// outcome is one call and how it ended.
type outcome struct {
	op         backend.Op
	verb       string
	list       int // of policies
	key        string
	and        string        // the second key of an All
	parts      []alternative // of a First; then key, and and costs are those of the part that decided
	costs      []int64       // nil: 1 of each
	most       int64         // of an AllowAtMost
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
	if (c.process.world.plan.Bursts && !c.steady || c.leaves) && d > 0 {
		row <<= 16 // half a second
	}
	now := time.Now().UnixNano()
	at := (now+int64(max(d, 0)))/row*row + row + int64(c.number)*grid
	time.Sleep(time.Duration(at - now))
}

func (c *caller) run(end time.Time) {
	for {
		c.pause(time.Duration(c.dice.ExpFloat64() * float64(c.between())))
		if !time.Now().Before(end) {
			return
		}
		c.list = plain
		c.call(c)
	}
}

// between returns for how long the caller rests on average before its next call.
func (c *caller) between() time.Duration {
	switch {
	case !c.runs:
		return c.rest
	case len(c.calls)%8 > 0:
		return time.Millisecond / 2
	}
	return 8 * c.rest
}

// crowd is how many callers of a crowd there are. They come at once, so most of them wait for
// a place, and some leave meanwhile.
const crowd = 32

// key draws a key: half of the calls are of the first one.
func (c *caller) key() string { return c.keyOf(2) }

// keyOf draws a key, which is another one than the first for one of so many calls.
func (c *caller) keyOf(others int) string {
	if c.dice.IntN(others) > 0 {
		return keyName(0)
	}
	return keyName(1 + c.dice.IntN(c.process.world.plan.Keys-1))
}

// keyName is the name of a key.
func keyName(i int) string { return fmt.Sprint("k", i) }

// policies returns the caller's list.
func (c *caller) policies() []headgate.Policy {
	return c.process.world.plan.list(c.process.number, c.list)
}

// policies returns the list of a call.
func (o *outcome) policies() []headgate.Policy { return o.by.world.plan.list(o.by.number, o.list) }

// keys returns those of a call.
func (o *outcome) keys() []string {
	if o.and != "" {
		return []string{o.key, o.and}
	}
	return []string{o.key}
}

// waits reports whether a call waits until it passes.
func (o *outcome) waits() bool { return o.verb == "wait" || o.verb == "wait all" }

// limiter returns the limiter of the caller's list.
func (c *caller) limiter() *headgate.Limiter { return c.process.limiters[c.list] }

// context returns that of a call: one in four ends soon.
func (c *caller) context() (ctx context.Context, cancel func(), bounded bool) {
	switch {
	case c.leaves:
		ctx, cancel = context.WithCancel(context.Background())
		time.AfterFunc(time.Duration(20+c.dice.IntN(400))*grid*1024, cancel)
		return ctx, cancel, true
	case c.hurries || c.dice.IntN(4) > 0:
		return context.Background(), func() {}, false
	}
	ctx, cancel = context.WithTimeout(context.Background(), time.Duration(1+c.dice.IntN(150))*grid*1024*100)
	return ctx, cancel, true
}

// ask makes a call and notes how it ended.
func (c *caller) ask(o outcome, f func(ctx context.Context) (headgate.Decision, error)) outcome {
	c.turn()
	ctx, cancel, bounded := c.context()
	defer cancel()
	return c.askIn(ctx, bounded, o, f)
}

func (c *caller) askIn(ctx context.Context, bounded bool, o outcome, f func(ctx context.Context) (headgate.Decision, error)) outcome {
	o.begin, o.list, o.by, o.bounded, o.cancelled = time.Now(), c.list, c.process, bounded, bounded && c.leaves
	o.d, o.err = f(ctx)
	o.end = time.Now()
	o.chose()
	c.calls = append(c.calls, o)
	c.process.world.note(c.name, o.String())
	return o
}

func (o *outcome) String() string {
	took := o.end.Sub(o.begin)
	s := fmt.Sprintf("%s %v %v after %v: ", o.verb, o.keys(), o.costs, took)
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

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
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
