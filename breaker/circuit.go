package breaker

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/chance"
	"github.com/headgate-go/headgate/internal/invariant"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/sony/gobreaker/v2"
)

// A circuit opens after maxFailures failed round trips in a row, or when half
// of at least minRoundTrips in the window failed. The first rule finds a dead
// node within milliseconds of load. The second one finds a node that still
// answers now and then.
//
// An open circuit waits for an answer of the node: to a probe of the store, or to a
// round trip from before. The next round trip is the trial. A node that answers and
// fails the trial is not asked for a pause, which doubles from shortPause to
// longPause.
const (
	maxFailures   = 5
	minRoundTrips = 20
	window        = 10 * time.Second
	bucket        = time.Second
	maxTrials     = 1 // concurrent round trips while half open
	shortPause    = 100 * time.Millisecond
	longPause     = time.Second
)

// circuits is the guard of one store: one circuit per node, shared by all
// limiters on the store. Lock order: a circuit's own lock, inside gobreaker,
// comes before mu. So nothing may call a circuit under mu.
type circuits struct {
	observed atomic.Int64 // the number of watchers
	answered trips
	mu       struct {
		sync.Mutex
		nodes    map[string]*circuit
		unfit    map[string]bool // those that were logged since they can't run the script
		events   []backend.Event // not delivered yet
		telling  bool            // a goroutine delivers them
		watchers map[weak.Pointer[Store]]struct{}
	}
}

// circuit is the circuit of one node: gobreaker's, which would try an open circuit at
// once, and the wait for the node's answer before it.
type circuit struct {
	state string // as last reported; guarded by the lock of circuits
	mu    struct {
		sync.Mutex // of each call of breaker
		breaker    *gobreaker.TwoStepCircuitBreaker[struct{}]
		said       error         // of the last round trip
		openings   int           // how often the circuit has opened
		open       bool          // since the last of them
		answered   bool          // and the node has answered since
		pause      time.Duration // before the trial, whether it has answered or not
		until      time.Time     // when the pause ends
		closed     time.Time     // when the circuit last closed
	}
}

// excused is called under mu with the result of each round trip, just before a change
// that the result causes.
func (b *circuit) excused(said error) bool {
	b.mu.said = said
	return said == layer.ErrExcused
}

// waits reports whether the circuit is open and not to be tried. It is called under mu.
func (b *circuit) waits() bool {
	//mutant:trial-after-answer
	return b.mu.open && (!b.mu.answered || time.Now().Before(b.mu.until))
}

// enter is Enter for the circuit.
func (b *circuit) enter() (leave func(error), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waits() {
		return nil, gobreaker.ErrOpenState
	}
	opening := b.mu.openings
	done, err := b.mu.breaker.Allow()
	leave = func(said error) { b.leave(opening, done, said) }
	if invariant.Checked {
		leave = once(leave)
	}
	return leave, err
}

// once returns leave for a round trip that leaves once.
func once(leave func(error)) func(error) {
	var left atomic.Bool
	return func(said error) {
		invariant.Holds(!left.Swap(true), "a round trip leaves a circuit once")
		leave(said)
	}
}

// leave notes the result of a round trip that entered after so many openings. That of
// one before the last opening says only whether the node answers by now.
func (b *circuit) leave(opening int, done func(error), said error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if opening == b.mu.openings {
		done(said)
		b.open(opening, said)
	} else if said == nil {
		//mutant:late-answer-noted
		b.mu.answered = true
	}
}

// open opens a closed circuit of a node that answers nothing, as if as many round trips had
// failed as it takes. It is called under mu.
func (b *circuit) open(opening int, said error) {
	for errors.Is(said, layer.ErrSilent) && opening == b.mu.openings {
		done, err := b.mu.breaker.Allow()
		if err != nil {
			return
		}
		done(said)
	}
}

// changed is called under mu when the state has changed. A circuit that opens soon after
// it has closed has met a node that answers and fails all the same.
func (b *circuit) changed(from, to gobreaker.State) {
	switch now := time.Now(); to {
	case gobreaker.StateClosed:
		b.mu.closed = now
	case gobreaker.StateOpen:
		//mutant:pause-doubles
		pause := min(max(2*b.mu.pause, shortPause), longPause)
		if from == gobreaker.StateClosed && now.Sub(b.mu.closed) > longPause {
			pause = 0
		}
		b.mu.pause, b.mu.until = pause, now.Add(pause+chance.Duration(pause/4+1)) // or a whole fleet tries the node at one instant
		b.mu.openings++
		b.mu.answered = false
	}
	b.mu.open = to == gobreaker.StateOpen
}

// now returns the circuit's state.
func (b *circuit) now() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waits() {
		return opened
	}
	return stateName(b.mu.breaker.State())
}

func newCircuits() *circuits {
	c := &circuits{}
	c.mu.nodes, c.mu.unfit, c.mu.watchers = map[string]*circuit{}, map[string]bool{}, map[weak.Pointer[Store]]struct{}{}
	return c
}

// of returns the circuits of the store s, one set for all limiters on it, and
// makes them its guard. The store keeps them under a key of a type that no
// other package can name. That of a store in this process has no circuit, since nothing lies
// between. It returns nil for a store of another author.
func of(s backend.Store) *circuits {
	shared := layer.Of(s)
	if shared == nil {
		return nil
	}
	type key struct{}
	c := shared.Value(key{}, func() any { return newCircuits() }).(*circuits)
	shared.SetGuard(c)
	return c
}

// settings are those of one node's circuit. Excused round trips count for
// neither rule, and in a half-open circuit they leave it so, for the next
// trial. The circuit's own wait stands in for gobreaker's timeout.
func settings(node string, excused func(error) bool, changed func(from, to gobreaker.State)) gobreaker.Settings {
	return gobreaker.Settings{
		Name:         node,
		MaxRequests:  maxTrials,
		Interval:     window,
		BucketPeriod: bucket,
		Timeout:      1,
		ReadyToTrip: func(n gobreaker.Counts) bool {
			visits := n.Requests - n.TotalExclusions
			//mutant:failures-in-a-row
			return n.ConsecutiveFailures >= maxFailures || visits >= minRoundTrips && 2*n.TotalFailures >= visits
		},
		OnStateChange: func(_ string, from, to gobreaker.State) { changed(from, to) },
		IsExcluded:    excused,
	}
}

// circuit returns the circuit of a node, which it makes at the first round
// trip.
func (c *circuits) circuit(node string) *circuit {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.mu.nodes[node]
	if b == nil {
		b = &circuit{state: stateName(gobreaker.StateClosed)}
		b.mu.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](settings(node, b.excused, func(from, to gobreaker.State) {
			b.changed(from, to)
			c.changed(b, node, stateName(from), stateName(to))
		}))
		c.mu.nodes[node] = b
	}
	return b
}

// Enter reports whether the node's circuit lets a round trip through. The
// caller calls leave exactly once with the result: a trial that never ends
// would keep the circuit half open.
func (c *circuits) Enter(node string) (leave func(error), err error) {
	leave, err = c.circuit(node).enter()
	if errors.Is(err, gobreaker.ErrTooManyRequests) {
		err = layer.ErrTrial
	}
	if err != nil {
		return nil, backend.Wrap(backend.ErrUnavailable, fmt.Errorf("circuit of %s: %w", node, err))
	}
	return leave, nil
}

// Awaits reports whether the node's circuit is open and the node has not answered.
func (c *circuits) Awaits(node string) bool {
	b := c.known(node)
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.open && !b.mu.answered
}

// Answered lets the node's next round trip be the trial, once the pause is over.
func (c *circuits) Answered(node string) {
	if b := c.known(node); b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		//mutant:probe-noted
		b.mu.answered = true
	}
}

// known returns the circuit of a node, nil if it has none.
func (c *circuits) known(node string) *circuit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.nodes[node]
}

// Gone removes the circuit of a node that has left, and reports the change. A
// round trip to the node that is still in flight changes nothing any more.
func (c *circuits) Gone(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.mu.nodes[node]; b != nil {
		delete(c.mu.nodes, node)
		delete(c.mu.unfit, node)
		c.note(backend.Event{Type: backend.EventCircuit, Circuit: backend.Change{Node: node, From: b.state, To: backend.Gone}})
	}
}

// changed is called under the circuit's own lock. It ignores a circuit that
// Gone has removed: another one may have taken its name. Only what opens a circuit
// is an error.
func (c *circuits) changed(b *circuit, node, from, to string) {
	var cause error
	if to == opened {
		cause = b.mu.said
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.nodes[node] == b {
		b.state = to
		c.note(backend.Event{Type: backend.EventCircuit, Circuit: backend.Change{Node: node, From: from, To: to}, Err: cause})
	}
}

var opened = stateName(gobreaker.StateOpen)

// stateName returns a state as events and metrics name it: "closed", "open" or "half_open".
func stateName(s gobreaker.State) string { return strings.ReplaceAll(s.String(), "-", "_") }

// states returns each node's circuit state. It asks the circuits outside of mu,
// by the lock order above.
func (c *circuits) states() map[string]string {
	c.mu.Lock()
	nodes := maps.Clone(c.mu.nodes)
	c.mu.Unlock()
	states := make(map[string]string, len(nodes))
	for node, b := range nodes {
		states[node] = b.now()
	}
	return states
}
