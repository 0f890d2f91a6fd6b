package linearize

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/trace"
)

// start is where the clocks of all stores stand.
const start = trace.Start

// model is what a store of one key does, one request after the other. A call whose
// answer was lost has no output. It returned never: what was not decided at all stands
// behind everything that was seen, so both are legal.
var model = porcupine.Model{
	Init: func() any { return at(trace.NewModel(func() int64 { return start })) },
	Step: func(before, input, output any) (bool, any) {
		m := before.(moment).Clone()
		want := trace.Ask(context.Background(), m, input.(backend.Request))
		return output == nil || same(want, output.(trace.Answer)), at(m)
	},
	Equal: func(a, b any) bool { return a.(moment).all == b.(moment).all },
	DescribeOperation: func(input, output any) string {
		r := input.(backend.Request)
		return fmt.Sprintf("%v %d %+v: %v", r.Op, r.Cost, r.Lease, output)
	},
	DescribeState: func(s any) string { return s.(moment).all },
}

// moment is a model that nobody changes any more.
type moment struct {
	*trace.Model
	all string
}

func at(m *trace.Model) moment { return moment{m, m.String()} }

// same compares answers, and of errors which one it is.
func same(want, got trace.Answer) bool {
	if want.Err == nil || got.Err == nil {
		return trace.Same(want, got) == nil
	}
	return errors.Is(want.Err, backend.ErrNotHeld) == errors.Is(got.Err, backend.ErrNotHeld)
}

// history is what callers of one key saw.
type history struct {
	store  backend.Store
	key    string
	list   []backend.Policy
	resend bool // the control: a call without an answer is sent again, under another ID
	begun  time.Time
	mu     struct {
		sync.Mutex
		operations []porcupine.Operation
		lost       int
	}
}

// ask sends a request and notes what was seen.
func (h *history) ask(client int, op backend.Op, cost int64, lease *backend.Lease) error {
	r := backend.Request{Op: op, Group: backend.Group{Key: h.key, Policies: h.list, Cost: cost, Lease: lease}}
	if op == backend.AtMost {
		r.Op, r.Run, r.UpTo, r.Cost = backend.Take, cost, true, 1
	}
	o := porcupine.Operation{ClientId: client, Input: r, Call: time.Since(h.begun).Nanoseconds()}
	a := trace.Ask(context.Background(), h.store, r)
	for h.resend && backend.Undecided(a.Err) {
		if r.Lease != nil {
			renamed := *r.Lease
			renamed.ID = newID(op == backend.Reserve, renamed.ID)
			r.Lease, *lease = &renamed, renamed
			o.Input = r
		}
		a = trace.Ask(context.Background(), h.store, r)
	}
	o.Output, o.Return = a, time.Since(h.begun).Nanoseconds()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(a.Err, backend.ErrPerhapsCounted):
		o.Output, o.Return = nil, math.MaxInt64
		h.mu.lost++
	case errors.Is(a.Err, backend.ErrUnavailable): // nothing was counted
		return a.Err
	}
	h.mu.operations = append(h.mu.operations, o)
	return a.Err
}

// explain logs the longest order of the operations that the model allows, and then those that are
// left. What the model answers to each of these after that order stands beside what was seen.
func (h *history) explain(t *testing.T) {
	_, info := porcupine.CheckOperationsVerbose(model, h.mu.operations, time.Minute)
	var longest []int
	for _, order := range info.PartialLinearizations()[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	m := model.Init().(moment)
	for _, i := range longest {
		o := h.mu.operations[i]
		t.Log(o.ClientId, o.Call, o.Return, model.DescribeOperation(o.Input, o.Output))
		m = m.then(o)
	}
	for i, o := range h.mu.operations {
		if !slices.Contains(longest, i) {
			want := trace.Ask(context.Background(), m.Clone(), o.Input.(backend.Request))
			t.Log("left:", o.ClientId, o.Call, o.Return, model.DescribeOperation(o.Input, o.Output), "after these it is", want)
		}
	}
}

func (m moment) then(o porcupine.Operation) moment {
	_, after := model.Step(m, o.Input, o.Output)
	return after.(moment)
}

// newID draws an ID where that of a Reserve is to be another.
func newID(draw bool, id backend.LeaseID) backend.LeaseID {
	if draw {
		for i := range id {
			id[i] = byte(rand.Uint32())
		}
	}
	return id
}

// run lets clients ask, and peeks once they have all returned.
func (h *history) run(clients, steps int, seed uint64) {
	h.begun = time.Now()
	var running sync.WaitGroup
	for c := range clients {
		running.Add(1)
		go func() {
			defer running.Done()
			client{h, c, rand.New(rand.NewPCG(seed, uint64(c)))}.run(steps)
		}()
	}
	running.Wait()
	for h.ask(clients, backend.Peek, 1, nil) != nil {
	}
}

// leased reports whether only a Reserve charges the list.
func (h *history) leased() bool {
	return slices.ContainsFunc(h.list, func(p backend.Policy) bool { return p.Algorithm.Kind().Leased() })
}

// client is one caller.
type client struct {
	*history
	n    int
	rand *rand.Rand
}

func (c client) run(steps int) {
	var open []*backend.Lease
	for range steps {
		n := c.rand.IntN(12)
		if c.leased() {
			n = 4 + c.rand.IntN(8)
		}
		cost := 1 + c.rand.Int64N(30)
		if c.leased() {
			cost = 1
		}
		switch {
		case n < 2:
			_ = c.ask(c.n, backend.Take, cost, nil)
		case n == 2:
			_ = c.ask(c.n, backend.Record, 3*cost, nil)
		case n == 3:
			_ = c.ask(c.n, backend.AtMost, 2*cost, nil)
		case n == 4 && c.rand.IntN(3) == 0:
			_ = c.ask(c.n, backend.Reset, 0, nil)
		case n == 5:
			_ = c.ask(c.n, backend.Peek, cost, nil)
		case n < 9 || len(open) == 0:
			l := &backend.Lease{ID: newID(true, backend.LeaseID{}), Length: time.Minute}
			err := c.ask(c.n, backend.Reserve, cost, l)
			l.Unresolved = errors.Is(err, backend.ErrPerhapsCounted)
			open = append(open, l)
		default:
			l := *open[c.rand.IntN(len(open))] // also of one that was denied, or is settled
			c.settle(&l)
		}
	}
}

// settle settles a lease, by the same attempt where its answer is lost, or extends it.
func (c client) settle(l *backend.Lease) {
	if c.rand.IntN(4) == 0 {
		_ = c.ask(c.n, backend.Extend, 0, l)
		return
	}
	l.Attempt = newID(true, l.ID)
	for range c.list {
		if c.rand.IntN(3) > 0 {
			l.Actual = append(l.Actual, c.rand.Int64N(40))
		}
	}
	if len(l.Actual) < len(c.list) {
		l.Actual = nil // which cancels
	}
	for range 3 {
		if err := c.ask(c.n, backend.Settle, 0, l); !backend.Undecided(err) {
			return
		}
	}
}

// lists are what the histories count by: each algorithm, three of them, and slots.
func lists() (all [][]backend.Policy) {
	var each []backend.Policy
	for i, k := range rule.Kinds() {
		a := k.Random(algo.PerHour(100), func(least, most int64) int64 { return min(max(least, 100), most) })
		each = append(each, backend.Policy{Name: fmt.Sprint("p", i), Algorithm: a})
		all = append(all, each[i:])
	}
	for i := range all {
		all[i] = all[i][:1:1]
	}
	slots := backend.Policy{Name: "slots", Algorithm: algo.InFlight(3)}
	return append(all, each[:3:3], each[3:6:6], []backend.Policy{slots}, append(each[:2:2], slots))
}
