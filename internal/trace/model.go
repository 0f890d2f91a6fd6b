package trace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
)

// Model is the Go rendering of the algorithms as plainly as it can be run: maps,
// nothing that expires, one lock. Its answer is what a store ought to answer.
// It is safe for concurrent use.
type Model struct {
	mu struct {
		sync.Mutex
		words  map[state][]int64
		leases map[leaseOf]lease
		ends   map[place]ends
		begun  map[state]int64 // how many times a charge began a log anew
		closed bool
	}
	now func() int64
}

// place is a key or one of its sub-keys.
type place struct{ key, sub string }

// state names the words that one policy keeps of one key, by all that the
// contract counts separately.
type state struct {
	place
	policy   string
	shadow   bool
	identity rule.Identity
}

// NewModel returns an empty model on a clock of microseconds.
func NewModel(now func() int64) *Model {
	m := &Model{now: now}
	m.mu.words, m.mu.leases = map[state][]int64{}, map[leaseOf]lease{}
	m.mu.ends, m.mu.begun = map[place]ends{}, map[state]int64{}
	return m
}

// Clone returns a model of its own that stands where m does.
func (m *Model) Clone() *Model {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &Model{now: m.now}
	c.mu.leases, c.mu.ends, c.mu.closed = maps.Clone(m.mu.leases), maps.Clone(m.mu.ends), m.mu.closed
	c.mu.begun = maps.Clone(m.mu.begun)
	c.mu.words = make(map[state][]int64, len(m.mu.words))
	for id, w := range m.mu.words {
		c.mu.words[id] = slices.Clone(w)
	}
	return c
}

// String is all that the model holds: equal strings are equal models.
func (m *Model) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprint(m.mu.words, m.mu.leases, m.mu.ends)
}

// Check accepts what any store could carry.
func (m *Model) Check(policies []backend.Policy) error { return backend.CheckPolicies(policies) }

// Capabilities returns what the model can do: every operation, on one key.
func (m *Model) Capabilities() backend.Capabilities { return capabilities }

var capabilities = backend.Capabilities{
	Ops: backend.OpsOf(backend.Take, backend.Peek, backend.Settle, backend.Reset,
		backend.Reserve, backend.Extend, backend.Record, backend.Return),
	Keys: 1,
}

// Close makes every later request ErrClosed, so that the model passes for a store
// in tests of the layers over it.
func (m *Model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.closed = true
	return nil
}

// Do decides one request.
func (m *Model) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return backend.ErrClosed
	}
	if err := r.Check(ctx, capabilities); err != nil {
		return err
	}
	c := &call{Model: m, Request: *r, now: m.now(), at: place{r.Key, r.Sub}}
	switch r.Op {
	case backend.Settle, backend.Extend:
		err := c.settle()
		if err == nil && r.Op == backend.Settle && r.Each != nil {
			c.Op, c.Group = backend.Peek, *r.Group.Look()
			c.Decide(c.now, c.decide(), d)
		}
		d.Allowed = err == nil
		return err
	case backend.Reserve:
		if _, found := c.lease(); found {
			return backend.ErrNotHeld
		}
	case backend.Reset:
		c.reset()
	}
	readings := c.decide()
	c.Costs = r.Costs
	c.Decide(c.now, readings, d)
	return nil
}

// call is one request to the model, with its lock held.
type call struct {
	*Model
	backend.Request
	now int64
	at  place
}

// decide looks at all policies before it charges the first, since a take is charged
// to all or to none.
func (c *call) decide() []backend.Reading {
	views, readings := make([]rule.View, len(c.Policies)), make([]backend.Reading, len(c.Policies))
	for i := range views {
		a := &c.Policies[i].Algorithm
		views[i] = a.View(c.words(c.name(i), a), c.now)
	}
	passed := c.run(views)
	fits, lacks := true, make([]bool, len(views))
	for i := range views {
		a, n := &c.Policies[i].Algorithm, c.CostOf(i)
		if passed != nil && (c.UpTo || c.Policies[i].Shadow) {
			n /= max(1, passed[i]) // of one call
		}
		if !a.Fits(&views[i], n) && c.Op != backend.Reset && !c.Op.Records() && !c.Op.Returns() {
			lacks[i], readings[i].RetryAt, readings[i].Level = true, a.RetryAt(c.words(c.name(i), a), &views[i], n), a.Level(&views[i])
			fits = fits && c.Policies[i].Shadow
		}
	}
	fits = fits && c.Op != backend.Peek && c.Op != backend.Reset
	charges := make([]charge, len(views))
	for i := range views {
		a, v := &c.Policies[i].Algorithm, &views[i]
		if fits && !lacks[i] {
			charges[i] = c.charge(i, v)
		}
		charges[i].spared = lacks[i]
		if fits && passed != nil {
			if lacks[i] {
				passed[i] = 0
			}
			c.ran(i, passed[i], &readings[i])
		}
		readings[i].Used, readings[i].ResetAt, readings[i].Delay = a.Shown(v), a.ResetAt(v), c.delay(i, v, fits && !lacks[i])
	}
	if fits && c.Op == backend.Reserve {
		c.keep(charges)
	}
	return readings
}

// delay returns how long the call waits that a policy was charged for, or that a Peek asks for.
func (c *call) delay(i int, v *rule.View, charged bool) int64 {
	switch a, n := &c.Policies[i].Algorithm, c.CostOf(i); {
	case n > 0 && c.Op == backend.Peek && a.Fits(v, n):
		return a.Delay(v, n)
	case n > 0 && c.Op.Decides() && charged:
		return a.Delay(v, 0)
	}
	return 0
}

// run makes the costs those of the calls of a run that every policy is charged, and of at least
// one. It returns how many these are; nil: the request is no run.
func (c *call) run(views []rule.View) (passed []int64) {
	if c.Run == 0 {
		return nil
	}
	costs, all := make([]int64, len(views)), c.Run
	passed = make([]int64, len(views))
	for i := range views {
		costs[i], passed[i] = c.CostOf(i), c.Run
		p, one := &c.Policies[i], costs[i]
		if !c.UpTo {
			one /= c.Run
		}
		if one > 0 && (c.UpTo || p.Shadow) {
			if passed[i] = min(c.Run, max(0, p.Algorithm.Max()-views[i].Used)/one); !p.Algorithm.Fits(&views[i], one) {
				passed[i] = 0
			}
		}
		if costs[i] = one; !p.Shadow {
			all = min(all, passed[i])
		}
	}
	for i := range views {
		if passed[i] = min(passed[i], all); !c.Policies[i].Shadow {
			passed[i] = all
		}
		costs[i] *= max(1, passed[i])
	}
	c.Costs = costs
	return passed
}

// ran reads of a policy that so many calls of a run were charged when it has room for the next
// one.
func (c *call) ran(i int, passed int64, r *backend.Reading) {
	a, words := &c.Policies[i].Algorithm, c.words(c.name(i), &c.Policies[i].Algorithm)
	v, one := a.View(words, c.now), c.CostOf(i)/max(1, passed)
	if r.Passed = passed; passed < c.Run && !a.Fits(&v, one) {
		r.RetryAt, r.Level = a.RetryAt(words, &v, one), a.Level(&v)
	}
}

// charge charges one policy, and returns what a lease keeps of it.
func (c *call) charge(i int, v *rule.View) charge {
	a, n, id := &c.Policies[i].Algorithm, c.CostOf(i), c.name(i)
	w := c.words(id, a)
	if n > 0 && !c.Op.Returns() {
		c.begin(id, a, v)
	}
	switch {
	case n == 0:
	case c.Op.Returns():
		w = a.Return(w, v, n)
		*v = a.View(w, c.now)
	case a.Kind().Leased():
		w = a.Hold(w, v, c.now+c.Lease.Length.Microseconds(), slotOf(c.Lease.ID))
	case c.Op == backend.Record:
		w = a.Take(w, v, a.Recorded(v, n))
	case c.Op == backend.Reserve:
		w = a.Reserve(w, v, n)
	default:
		w = a.Take(w, v, n)
	}
	c.mu.words[id] = w
	return charge{id: id, algorithm: *a, units: n, begun: c.mu.begun[id], Charge: a.Charged(w, v)}
}

// begin notes a charge that finds nothing in a log: the log begins anew. The script
// tells its entries from earlier ones of the same instant by their sums. package algo
// does not, as the clock in this process never goes back.
func (c *call) begin(id state, a *algo.Algorithm, v *rule.View) {
	if v.Used == 0 && a.Kind() == rule.KindSlidingLog {
		c.mu.begun[id]++
	}
}

// words are those of a state. An unused key has words of zero, as in the
// script.
func (c *call) words(id state, a *algo.Algorithm) []int64 {
	if c.mu.words[id] == nil {
		return make([]int64, a.Words())
	}
	return c.mu.words[id]
}

func (c *call) name(i int) state {
	p := &c.Policies[i]
	return state{c.at, p.Name, p.Shadow, p.Algorithm.Identity()}
}

func (c *call) reset() {
	for i := range c.Policies {
		delete(c.mu.words, c.name(i))
	}
	if e := c.mu.ends[c.at]; e.horizon*1_000_000 > c.now {
		e.generation++
		c.mu.ends[c.at] = e
	}
}
