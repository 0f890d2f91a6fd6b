// Package sim runs a fleet of limiters, its servers and the network between them in one
// process, under the virtual time of testing/synctest. The limiters, the stores and
// go-redis are the real ones. The network and the servers are simulated: a server decides
// with the Go rendering of the algorithms.
//
// # One seed, one trace
//
// A seed fixes every delay, fault and choice. The Go scheduler does not follow a seed, so
// no order may depend on it:
//
//   - Events that matter have an instant each. Callers act at instants that are 0 modulo 8
//     ns, each at a remainder of its own; the network acts at instants that are 4 modulo 8,
//     and never at one twice.
//   - What goroutines send at one instant is collected, and sorted by what it is when all of
//     them have blocked: virtual time passes only then. The draws follow that order.
//   - A delay or a fault is drawn from the seed and the number of its caller, connection or
//     process, never from a generator that all share.
//   - What a trace has is per caller and per connection.
//
// go-redis keeps timers in a global pool, which belong to the bubble that made them. So a
// process runs one seed.
package sim

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// grid is the distance of the instants at which one class of events happens. An event of
// the network is half of it later than one of a caller may be.
const grid = 8

// engine orders what happens in the network. Its lock is held by no caller that blocks.
type engine struct {
	seed   uint64
	events sync.Mutex    // is held while the network acts
	wake   chan struct{} // another event has become the next one
	over   chan struct{} // is closed when run is to end
	mu     struct {
		sync.Mutex
		pending []op    // of this instant
		queue   []event // of the network, the next one last, each at an instant of its own
		trace   []traced
		ended   bool // a pool closes its connections in the order of a map: that is no part of a trace
	}
}

// event is what happens at an instant.
type event struct {
	at  int64 // ns of the Unix epoch
	run func()
}

// op is what a process asks of the network: to dial, to send, or to close.
type op struct {
	proc  int    // the process
	to    string // the address
	what  string // that does not depend on the scheduler; equal operations may change places
	order int    // among equal ones: of the connection
	run   func()
}

// traced is one line of a trace.
type traced struct {
	at   int64 // ns of the Unix epoch
	who  string
	what string
}

func newEngine(seed uint64) *engine {
	return &engine{seed: seed, wake: make(chan struct{}, 1), over: make(chan struct{})}
}

// run runs the events at their instants, until over is closed. It is one goroutine, since one
// for each event would begin with a small stack each time.
func (e *engine) run() {
	timer := time.NewTimer(0)
	for {
		f, wait := e.next()
		if f != nil {
			e.events.Lock()
			f()
			e.events.Unlock()
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-e.wake:
		case <-e.over:
			return
		}
	}
}

// next takes the next event if it is due. Otherwise it returns for how long to wait.
func (e *engine) next() (f func(), wait time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := len(e.mu.queue) - 1
	if last < 0 {
		return nil, time.Hour
	}
	wait = time.Duration(e.mu.queue[last].at - time.Now().UnixNano())
	if wait > 0 {
		return nil, wait
	}
	f, e.mu.queue[last].run = e.mu.queue[last].run, nil
	e.mu.queue = e.mu.queue[:last]
	return f, 0
}

// put adds an event at an instant, or at the first free one of the grid behind it. The lock
// is held.
func (e *engine) put(at int64, f func()) int64 {
	i, taken := e.find(at)
	for ; taken; i, taken = e.find(at) {
		at += grid
	}
	e.mu.queue = slices.Insert(e.mu.queue, i, event{at, f})
	return at
}

// find returns the place of an instant in the queue, and whether it is taken.
func (e *engine) find(at int64) (i int, taken bool) {
	return slices.BinarySearchFunc(e.mu.queue, at, func(a event, at int64) int { return cmp.Compare(at, a.at) })
}

// hashOf returns a number that the seed and the parts fix.
func (e *engine) hashOf(parts ...any) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, e.seed)
	for _, p := range parts {
		_, _ = fmt.Fprint(h, "|", p)
	}
	return mix(h.Sum64())
}

// mix is the finalizer of SplitMix64: neighbouring hashes differ in all bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// dice returns a generator of its own for whoever the parts name.
func (e *engine) dice(parts ...any) *rand.Rand {
	h := e.hashOf(parts...)
	return rand.New(rand.NewPCG(h, mix(h)))
}

// submit adds an operation to those of this instant. They are run when every goroutine of
// the bubble has blocked.
func (e *engine) submit(o op) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.pending = append(e.mu.pending, o)
	if len(e.mu.pending) == 1 {
		e.put(time.Now().UnixNano()+grid/4, e.flush)
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// flush runs the operations of an instant in an order that the scheduler has no part in.
func (e *engine) flush() {
	e.mu.Lock()
	ops := e.mu.pending
	e.mu.pending = nil
	e.mu.Unlock()
	slices.SortStableFunc(ops, func(a, b op) int {
		return cmp.Or(cmp.Compare(a.proc, b.proc), cmp.Compare(a.to, b.to), cmp.Compare(a.what, b.what), cmp.Compare(a.order, b.order))
	})
	for i := range ops {
		ops[i].run()
	}
}

// at calls f after the delay, at an instant of the network's own, and returns that. It is
// called from an event of the network only, so that the order of calls is the seed's.
func (e *engine) at(delay time.Duration, f func()) time.Time {
	at := (time.Now().UnixNano()+int64(max(delay, 0)))/grid*grid + grid + grid/2
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Unix(0, e.put(at, f))
}

// note adds a line to the trace.
func (e *engine) note(who, what string) {
	at := time.Now().UnixNano()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.mu.ended {
		e.mu.trace = append(e.mu.trace, traced{at, who, what})
	}
}

// traces returns the lines in the order of their instants and names.
func (e *engine) traces() []traced {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := slices.Clone(e.mu.trace)
	slices.SortStableFunc(all, func(a, b traced) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.who, b.who), cmp.Compare(a.what, b.what))
	})
	return all
}

// end ends the trace.
func (e *engine) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.ended = true
}
