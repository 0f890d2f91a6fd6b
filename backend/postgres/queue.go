package postgres

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/rows"
)

const (
	// maxFlights is the maximum number of transactions under way. More would each carry fewer
	// calls.
	maxFlights = 4
	// maxCalls and maxKeys bound a transaction: others wait for its rows.
	maxCalls = 1024
	maxKeys  = 128
	// maxCallers is the maximum number of calls that wait.
	maxCallers = 1 << 16
)

var (
	errLate    = backend.Wrap(backend.ErrUnavailable, errors.New("the call could not be answered in time, not counted"))
	errCrowded = backend.Wrap(backend.ErrUnavailable, errors.New("too many calls wait for the store, not counted"))
)

// queue has the calls that wait. A flight takes those of keys that no other flight has: two
// transactions of this process never wait for each other.
//
// A call that may be taken is ready. Any other is behind a key: when the key's flight ends, all
// calls behind it are ready. Of several keys there may always be one that is busy. So a call that
// was behind a few of them becomes the elder, whose keys no other call may have.
type queue struct {
	store *Store
	mu    struct {
		sync.Mutex
		waiting int
		ready   []*call
		behind  map[string][]*call
		elder   *call
		busy    map[string]struct{} // keys of flights
		idle    []*flight           // those not under way
		free    int                 // flights that may begin
		taken   []*call             // scratch
	}
}

func newQueue(s *Store, flights int) *queue {
	q := &queue{store: s}
	q.mu.busy, q.mu.behind, q.mu.free = map[string]struct{}{}, map[string][]*call{}, flights
	return q
}

// add lets calls wait, and begins a flight if one may.
func (q *queue) add(calls ...*call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range calls {
		//mutant:postgres-callers-bounded
		if q.mu.waiting >= maxCallers {
			c.answer(errCrowded)
			continue
		}
		q.mu.waiting++
		if id, blocked := q.blocked(c, nil); blocked && q.mu.free > 0 { // else it keeps its place
			q.park(c, id)
		} else {
			q.mu.ready = append(q.mu.ready, c)
		}
	}
	q.begin()
}

// The methods below are called with the lock held, but for run.

// begin begins a flight if one may, and calls are ready.
func (q *queue) begin() {
	if q.mu.free == 0 || len(q.mu.ready) == 0 {
		return
	}
	var f *flight
	if n := len(q.mu.idle); n > 0 {
		f, q.mu.idle = q.mu.idle[n-1], q.mu.idle[:n-1]
		f.reset()
	} else {
		f = &flight{store: q.store, rows: rows.New()}
	}
	for len(f.calls) == 0 && len(q.mu.ready) > 0 { // an elder that has left makes others ready
		q.take(f)
	}
	if len(f.calls) == 0 {
		q.mu.idle = append(q.mu.idle, f)
		return
	}
	q.mu.free--
	go q.run(f)
}

// run runs flights for as long as calls are ready.
func (q *queue) run(f *flight) {
	for more := true; more; { // once it is idle, the flight is another goroutine's
		f.run()
		// Callers that have just been answered may call again at once.
		runtime.Gosched()
		q.mu.Lock()
		for _, id := range f.ids {
			delete(q.mu.busy, id)
			q.unpark(id)
		}
		q.take(f)
		if more = len(f.calls) > 0; !more {
			q.mu.free++
			q.mu.idle = append(q.mu.idle, f)
		}
		q.begin()
		q.mu.Unlock()
	}
}

// take gives a flight the calls that it may have.
func (q *queue) take(f *flight) {
	f.reset()
	ready, now := q.mu.ready, time.Now()
	q.mu.ready = q.mu.taken[:0]
	for i, c := range ready {
		if len(f.calls) >= maxCalls || len(f.ids) >= maxKeys {
			q.mu.ready = append(q.mu.ready, ready[i:]...)
			break
		}
		switch id, blocked := q.blocked(c, f); {
		case c.state.Load() == abandoned:
			q.leave(c)
		case !now.Before(c.deadline):
			q.leave(c)
			c.answer(errLate)
		case blocked:
			q.park(c, id)
		default:
			f.join(c, q.mu.busy)
			q.leave(c)
		}
	}
	clear(ready)
	q.mu.taken = ready[:0]
}

// blocked returns a key of the call that another flight has, or that the elder waits for.
func (q *queue) blocked(c *call, f *flight) (id string, blocked bool) {
	for _, id := range c.ids {
		if _, busy := q.mu.busy[id]; busy && (f == nil || f.keys[id] == nil) {
			return id, true
		}
		//mutant:postgres-elder
		if e := q.mu.elder; e != nil && e != c && slices.Contains(e.ids, id) {
			return id, true
		}
	}
	return "", false
}

// elderAfter is behind how many keys a call was when it becomes the elder.
const elderAfter = 3

func (q *queue) park(c *call, id string) {
	q.mu.behind[id] = append(q.mu.behind[id], c)
	//mutant:postgres-becomes-elder
	if c.parked++; c.parked >= elderAfter && q.mu.elder == nil {
		q.mu.elder = c
	}
}

func (q *queue) unpark(id string) {
	q.mu.ready = append(q.mu.ready, q.mu.behind[id]...)
	delete(q.mu.behind, id)
}

// leave notes that the call waits no more.
func (q *queue) leave(c *call) {
	q.mu.waiting--
	//mutant:postgres-elder-leaves
	if q.mu.elder == c {
		q.mu.elder = nil
		for _, id := range c.ids {
			q.unpark(id)
		}
	}
}
