package breaker

import (
	"errors"
	"log/slog"
	"math/bits"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"weak"

	"github.com/headgate-go/headgate/backend"
)

// maxEvents is the maximum number of events that wait for slow observers.
// Batches beyond it are not reported. Changes of circuits are: they are rare,
// and each one matters.
const maxEvents = 4096

// note is called under mu, and may be under a circuit's lock, so another
// goroutine calls the observers. One goroutine at a time does, which keeps the
// order of events.
func (c *circuits) note(e backend.Event) {
	c.mu.events = append(c.mu.events, e)
	if !c.mu.telling {
		c.mu.telling = true
		go c.tell()
	}
}

// tell delivers the noted events in their order, outside of every lock.
func (c *circuits) tell() {
	done := false
	defer func() {
		if !done { // an observer has ended this goroutine
			go c.tell()
		}
	}()
	for {
		events, observers, loggers := c.pending()
		if done = len(events) == 0; done {
			return
		}
		for _, e := range events {
			for _, o := range observers {
				guarded(func() { o(e) })
			}
			if e.Type == backend.EventBatch {
				continue
			}
			for _, l := range loggers {
				guarded(func() { log(l, &e) })
			}
		}
	}
}

// log writes the line of a change, or of a full store. Only a circuit that opens is a warning: every
// other change is a step back to normal, or of a node that has left.
func log(l *slog.Logger, e *backend.Event) {
	if e.Type == backend.EventFull {
		l.Warn("headgate: the memory store has no free count, new keys share one", "class", e.Full.Class, "counts", e.Full.Counts, "max", e.Full.MaxCounts)
		return
	}
	change := []any{"node", e.Circuit.Node, "from", e.Circuit.From, "to", e.Circuit.To}
	if e.Circuit.To == opened {
		l.Warn("headgate: circuit", append(change, "err", e.Err)...)
		return
	}
	l.Info("headgate: circuit", change...)
}

// corrupt logs a stored value that is not Headgate's, one per second at most. No circuit opens
// for such values, and a build of another format may write many.
func (s *Store) corrupt(err error) {
	if s.opts.Logger == nil || !errors.As(err, new(*backend.CorruptError)) {
		return
	}
	//mutant:corrupt-once-a-second
	if now, last := time.Now().Unix(), s.warned.Load(); now > last && s.warned.CompareAndSwap(last, now) {
		guarded(func() { s.opts.Logger.Warn("headgate: calls are decided by their failure modes", "err", err) })
	}
}

// unfit logs a server that can't run the script, once per node. No circuit opens for it.
func (s *Store) unfit(err error) {
	if s.opts.Logger == nil || s.circuits == nil {
		return
	}
	var e *backend.ScriptError
	//mutant:unfit-logged-once
	if errors.As(err, &e) && s.circuits.first(e.Node) {
		guarded(func() { s.opts.Logger.Error("headgate: the store decides no call", "err", err) })
	}
}

// first reports whether it is the first time that a node can't run the script.
func (c *circuits) first(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.mu.unfit[node]
	c.mu.unfit[node] = true
	return first
}

// guarded drops a panic of an observer, which concerns no call.
func guarded(f func()) {
	defer func() { _ = recover() }()
	f()
}

// pending returns the events to deliver now, and to whom. When there are none,
// telling ends under the same lock, so no event falls between the last look and
// the end. A watcher whose Store is gone is passed over; its cleanup removes
// it.
func (c *circuits) pending() (events []backend.Event, observers []func(backend.Event), loggers []*slog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	events = c.mu.events
	c.mu.events, c.mu.telling = nil, len(events) > 0
	for w := range c.mu.watchers {
		s := w.Value()
		if s == nil {
			continue
		}
		if o := s.opts.Observer; o != nil {
			observers = append(observers, o)
		}
		if l := s.opts.Logger; l != nil && !slices.Contains(loggers, l) { // limiters may share a logger
			loggers = append(loggers, l)
		}
	}
	return events, observers, loggers
}

// trips are counters of round trips.
type trips struct {
	calls, nanoseconds atomic.Int64
	sizes              [10]atomic.Int64
}

func (t *trips) add(calls int, took time.Duration) {
	t.calls.Add(int64(calls))
	t.nanoseconds.Add(int64(took))
	//mutant:sizes-by-powers-of-two
	t.sizes[min(bits.Len(uint(calls)), len(t.sizes))-1].Add(1)
}

// batches returns the counts up to now; for a store of another author they are zero.
func (c *circuits) batches() (b Batches) {
	if c == nil {
		return b
	}
	b.Calls, b.Time = c.answered.calls.Load(), time.Duration(c.answered.nanoseconds.Load())
	for i := range b.Sizes {
		b.Sizes[i] = c.answered.sizes[i].Load()
		b.RoundTrips += b.Sizes[i]
	}
	return b
}

// Batch counts a round trip that was answered, and notes it for the observers.
func (c *circuits) Batch(b backend.Batch, took time.Duration) {
	c.answered.add(b.Calls, took)
	if c.observed.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.events) < maxEvents {
		c.note(backend.Event{Type: backend.EventBatch, Batch: b, Duration: took})
	}
}

// Full notes that a store in this process has no free count for a class of keys.
func (c *circuits) Full(f backend.Full) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.watchers) > 0 {
		c.note(backend.Event{Type: backend.EventFull, Full: f})
	}
}

// watch has the observer and the logger of s receive events for as long as s is
// in use. The circuits outlive s, so they hold it by a weak pointer: limiters
// that are made per request would otherwise add up.
func (c *circuits) watch(s *Store) {
	if s.opts.Observer == nil && s.opts.Logger == nil {
		return
	}
	w := weak.Make(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.watchers[w] = struct{}{}
	c.observed.Store(int64(len(c.mu.watchers)))
	runtime.AddCleanup(s, c.unwatch, w)
}

// unwatch runs as the cleanup of a Store without references.
func (c *circuits) unwatch(w weak.Pointer[Store]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.watchers, w)
	c.observed.Store(int64(len(c.mu.watchers)))
}
