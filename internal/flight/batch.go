package flight

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/headgate-go/headgate/internal/script"
)

// The bounds of a batch: what one round trip may cost the server, whom
// everybody else waits for meanwhile.
const (
	keys     = 128  // groups
	policies = 256  // of all groups
	calls    = 1024 // of all groups
)

// batch is a flight before and while it is out.
type batch struct {
	q     *Queue
	trip  *script.Trip
	first time.Duration // as script.Now: when its first call came, whose budget is the batch's

	// The group of a tag that came last, by one more than its place, and for each
	// group the one of its tag before it: to look for tag and policies at once
	// took a call a twentieth of the client's time.
	named map[string]int
	twins []int

	calls, groups int
	width         int // policies of its groups

	run     func() // goes out; made once
	expired func()
}

// batches are those that are on the ground.
var batches sync.Pool

func (q *Queue) batch(first time.Duration) *batch {
	b, _ := batches.Get().(*batch)
	if b == nil {
		b = &batch{trip: &script.Trip{}, named: map[string]int{}}
		b.run, b.expired = b.fly, b.missed
	}
	b.q, b.first, b.calls, b.groups, b.width = q, first, 0, 0, 0
	return b
}

// add puts a call of its own key aboard; open, where others may join it.
func (b *batch) add(c *rider, open bool) {
	g := b.trip.Add()
	g.Op, g.Key, g.Tag, g.Slot, g.Policies = c.op, c.key, c.tag, c.slot, c.policies
	g.Takes = append(g.Takes, &c.Take)
	if open {
		b.twins = append(b.twins[:b.groups], b.named[c.tag])
		b.named[c.tag] = b.groups + 1
	}
	b.calls++
	b.groups++
	b.width += len(c.policies)
}

// group returns the group that c may join: its key's calls for one thing by one
// list of policies.
func (b *batch) group(c *rider) *script.Group {
	for i := b.named[c.tag]; i > 0; i = b.twins[i-1] {
		g := b.trip.Groups()[i-1]
		if g.Op == c.op && len(g.Policies) == len(c.policies) && &g.Policies[0] == &c.policies[0] {
			return g
		}
	}
	return nil
}

// join puts a call aboard, if there is room in so many groups: with the calls
// of its key, where there are any. A call does not join one that has waited for
// long: the budget of the first is that of all.
func (b *batch) join(c *rider, share int) bool {
	if b.calls >= calls || c.came-b.first > b.q.budget/8 {
		return false
	}
	if g := b.group(c); g != nil {
		g.Takes = append(g.Takes, &c.Take)
		b.calls++
		return true
	}
	if b.groups >= share || b.width+len(c.policies) > policies {
		return false
	}
	b.add(c, true)
	return true
}

// fly makes round trips for as long as calls wait.
func (b *batch) fly() {
	for b != nil {
		b = b.once(script.Now())
	}
}

// inline makes one round trip on the goroutine of its call. What waits when it
// lands leaves on another: the call has its answer.
func (b *batch) inline() {
	b.trip.Inline = true
	if next := b.once(b.first); next != nil {
		go next.run()
	}
}

// once makes one round trip and returns what leaves in its place.
func (b *batch) once(now time.Duration) (next *batch) {
	q, calls, groups := b.q, b.calls, b.groups
	inTime, again := b.goOut(now)
	if !inTime {
		return nil // missed has let the next one go, or will
	}
	made := b.trip.Heard() // what stayed, was not let in or broke off tells nothing of the server
	if again {
		clear(b.named)
		b.trip.Inline = false
		batches.Put(b)
	}
	if made {
		back := script.Now()
		if full := q.note(back, calls, groups, back-now); !full {
			q.turn(calls, back)
		}
	}
	return q.landed()
}

// A turn of the run queue is long from half of the scheduler's time slice on:
// somebody computes, or the host had the core. Then flights leave at once,
// briefly at first and for twice as long each time, up to awhile: a core that
// was stolen once costs no second of small flights, and beside goroutines that
// compute all the time there is one turn a second.
const (
	longTurn = 5 * time.Millisecond
	briefly  = 30 * time.Millisecond
	awhile   = time.Second
)

// turn lets those run to whom a flight of so many calls has just brought answers.
// They may call again at once, and ride on what leaves next, where there would
// else be a flight for each few of them: with 8 processes of 16 callers on one
// key half as many decisions, with 512 callers on one key a sixth less. It
// costs 0.1 us where nobody is there to run. Where goroutines compute all the
// time it would cost a turn of theirs a flight: beside 8 of them on two cores
// half the decisions.
func (q *Queue) turn(calls int, begin time.Duration) {
	until := q.hurry.Load()
	if calls < 2 || begin < time.Duration(until) {
		return
	}
	runtime.Gosched()
	q.turned(until, begin, script.Now())
}

// turned notes how long a turn took before which flights hurried until then. A
// long time without a long one forgets those before; a short one halves, so
// that a few do. Beside goroutines that compute some turns are short all the
// same: where one forgot all, seven long ones followed. Of several that one
// stall has made long one counts.
func (q *Queue) turned(until int64, begin, end time.Duration) {
	last := time.Duration(q.hurried.Load())
	switch {
	case end-begin > longTurn:
		if begin-time.Duration(until) > awhile {
			last = 0
		}
		stay := min(max(2*last, briefly), awhile)
		if q.hurry.CompareAndSwap(until, int64(end+stay)) {
			q.hurried.Store(int64(stay))
		}
	case last > 0:
		q.hurried.Store(int64(last / 2))
	}
}

// late is the part of a budget after which a batch that still waits is not
// sent any more: an answer that comes too late leaves open what was counted.
const late = 10

func (b *batch) goOut(now time.Duration) (inTime, again bool) {
	q, deadline := b.q, script.Deadline(b.first, b.q.budget)
	switch {
	case deadline-now < q.budget/late:
		b.trip.Stay(errWaited)
		return true, true
	case q.ways == nil:
		return b.trip.Fly(q.server, now, deadline, b.expired)
	}
	return b.trip.FlyApart(q.server, q.ways, now, deadline, b.expired)
}

var errWaited = errors.New("waited for a flight until the budget was spent")

// missed is called when the flight's deadline has passed: it may hang in the
// client for longer, but its place is free.
func (b *batch) missed() {
	b.q.note(script.Now(), b.calls, b.groups, b.q.budget)
	if next := b.q.landed(); next != nil {
		next.fly()
	}
}
