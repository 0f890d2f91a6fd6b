package flight

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/script"
)

// rider is a call and what it asks. It keeps nothing of its caller's, who may
// leave before it does.
type rider struct {
	script.Take
	op       backend.Op
	slot     int
	tag, key string
	policies []backend.Policy
	came     time.Duration // as script.Now
	next     *rider        // in the inbox
}

// riders are those that no caller has.
var riders = sync.Pool{New: func() any { return &rider{Take: script.Take{Answered: make(chan struct{}, 1)}} }}

// enter returns a rider that asks what r does.
func enter(tag string, slot int, r *backend.Request) *rider {
	c := riders.Get().(*rider)
	c.Ask(&r.Group)
	c.op, c.slot, c.tag, c.key, c.policies = r.Op, slot, tag, r.Key, r.Policies
	return c
}

// answer words what c met, which is nobody's then. Where there is an error the
// round trip may still hold it.
func (c *rider) answer(r *backend.Request, d *backend.Decision, err error) error {
	if err == nil {
		err = c.Decide(r.Op, &r.Group, d)
		riders.Put(c)
	}
	if err != nil {
		r.Unknown(err)
	}
	return err
}

// most is how many calls may wait; more are refused at once. A variable for
// the tests alone.
var most int64 = 1 << 16

// inbox holds the calls that came since somebody last looked for those that
// wait, the last first. One cache line, and one swap on it, is all that callers
// on different cores fight for: under the queue's lock they fought for five.
type inbox struct {
	_     [64]byte
	last  atomic.Pointer[rider]
	waits atomic.Int64 // calls that wait, here and on flights
	_     [64]byte
}

// push adds c, unless too many wait, and returns how many do with it.
func (i *inbox) push(c *rider) int64 {
	n := i.waits.Add(1)
	if n > most {
		i.waits.Add(-1)
		return n
	}
	for {
		c.next = i.last.Load()
		if i.last.CompareAndSwap(c.next, c) {
			return n
		}
	}
}

// take empties the inbox and returns what was in it, the first first.
func (i *inbox) take() (first *rider) {
	if i.last.Load() == nil {
		return nil
	}
	for c := i.last.Swap(nil); c != nil; {
		c, c.next, first = c.next, first, c
	}
	return first
}
