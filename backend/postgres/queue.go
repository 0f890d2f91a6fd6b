package postgres

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
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
// transactions of this process never wait for each other. A call stays behind an earlier one
// that waits for the same key.
type queue struct {
	store *Store
	mu    struct {
		sync.Mutex
		pending []*call
		busy    map[string]struct{} // keys of flights
		idle    []*flight           // those not under way
		free    int                 // flights that may begin
	}
}

func newQueue(s *Store, flights int) *queue {
	q := &queue{store: s}
	q.mu.busy, q.mu.free = map[string]struct{}{}, flights
	return q
}

// add lets calls wait, and begins a flight if one may.
func (q *queue) add(calls ...*call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range calls {
		//mutant:postgres-callers-bounded
		if len(q.mu.pending) >= maxCallers {
			c.answer(errCrowded)
			continue
		}
		q.mu.pending = append(q.mu.pending, c)
	}
	q.begin()
}

// begin begins a flight if one may, and calls wait. It is called with the lock held.
func (q *queue) begin() {
	if q.mu.free == 0 || len(q.mu.pending) == 0 {
		return
	}
	f := &flight{store: q.store, rows: memory.NewRows()}
	if n := len(q.mu.idle); n > 0 {
		f, q.mu.idle = q.mu.idle[n-1], q.mu.idle[:n-1]
	}
	if q.take(f); len(f.calls) == 0 {
		q.mu.idle = append(q.mu.idle, f)
		return
	}
	q.mu.free--
	go q.run(f)
}

// run runs flights for as long as calls wait that one may take.
func (q *queue) run(f *flight) {
	for len(f.calls) > 0 {
		f.run()
		// Callers that have just been answered may call again at once.
		runtime.Gosched()
		q.mu.Lock()
		for _, id := range f.ids {
			delete(q.mu.busy, id)
		}
		q.take(f)
		if len(f.calls) == 0 {
			q.mu.free++
			q.mu.idle = append(q.mu.idle, f)
		} else {
			q.begin()
		}
		q.mu.Unlock()
	}
}

// take gives a flight the calls that it may have. It is called with the lock held.
func (q *queue) take(f *flight) {
	f.reset()
	now, waits := time.Now(), map[string]struct{}{} // keys of calls that stay
	rest := q.mu.pending[:0]
	for i, c := range q.mu.pending {
		switch {
		case c.state.Load() == abandoned:
		case !now.Before(c.deadline):
			c.answer(errLate)
		case len(f.calls) >= maxCalls || len(f.ids) >= maxKeys:
			rest = append(rest, q.mu.pending[i:]...)
			clear(q.mu.pending[len(rest):])
			q.mu.pending = rest
			return
		case q.blocked(c, f, waits):
			rest = append(rest, c)
			for _, id := range c.ids {
				waits[id] = struct{}{}
			}
		default:
			f.join(c, q.mu.busy)
		}
	}
	clear(q.mu.pending[len(rest):])
	q.mu.pending = rest
}

// blocked reports whether a key of the call is another flight's, or an earlier call waits for
// it.
func (q *queue) blocked(c *call, f *flight, waits map[string]struct{}) bool {
	for _, id := range c.ids {
		_, waits := waits[id]
		_, busy := q.mu.busy[id]
		if _, own := f.keys[id]; waits || busy && !own {
			return true
		}
	}
	return false
}
