package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/oracle"
)

// randomPrograms is one random test of all operations, of lists that share counts, shadows
// and several keys. It needs SetNow. HEADGATE_SEED=n runs one program.
var randomPrograms = []sentence{{"Programs", programs, "What holds of each operation alone holds of all together."}}

func programs(p *probe) {
	p.needsClock()
	for op := backend.Take; op <= backend.Return; op++ {
		if op != backend.Borrow {
			p.needsOp(op)
		}
	}
	first, n := uint64(1), steps(50, 3000)
	if s := os.Getenv("HEADGATE_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		p.must(err == nil, "HEADGATE_SEED: %v", err)
		first, n = seed, 1
	}
	for i := range uint64(n) {
		g := newProgram(p, first+i)
		for range 60 {
			if err := g.step(); err != nil {
				p.must(false, "HEADGATE_SEED=%d: %v\n%s", first+i, err, g)
			}
		}
		if err := g.model.Check(); err != nil {
			p.must(false, "HEADGATE_SEED=%d: %v\n%s", first+i, err, g)
		}
	}
}

// program is what is drawn for one seed, and the model beside the store.
type program struct {
	*probe
	dice  *rand.Rand
	seed  uint64
	lists [][]backend.Policy
	keys  []string
	model *oracle.Model
	held  []*holding
	lost  int // steps until an answer may get lost
	said  []string
}

// holding is a lease in the store, and in the model.
type holding struct {
	g     backend.Group
	lease backend.Lease
	model *oracle.Lease
}

func newProgram(p *probe, seed uint64) *program {
	g := &program{probe: p, dice: rand.New(rand.NewPCG(seed, 0)), seed: seed}
	p.set(p.now - p.now%3_600_000_000 + 3_600_000_000 + g.dice.Int64N(3_600_000_000)) // the same for each run but for the hour
	first := g.list()
	g.lists = [][]backend.Policy{first}
	for range g.dice.IntN(3) {
		list := slices.Clone(first)[:1+g.dice.IntN(len(first))]
		for i := range list {
			if g.dice.IntN(3) == 0 {
				list[i].Algorithm = list[i].Algorithm.WithMax(1 + g.dice.Int64N(2*list[i].Algorithm.Max()))
			}
		}
		g.lists = append(g.lists, list)
	}
	for i := range 1 + g.dice.IntN(3) {
		g.keys = append(g.keys, fmt.Sprint("program ", seed, " key ", i))
	}
	g.model = oracle.NewModel(p.now, g.lists, nil)
	return g
}

func (g *program) list() (list []backend.Policy) {
	kinds := append(rule.Kinds(), rule.KindInFlight)
	for i := range 1 + g.dice.IntN(4) {
		l := algo.Per(1+g.dice.Int64N([]int64{5, 12, 200}[g.dice.IntN(3)]), []time.Duration{sec, 7 * sec, time.Minute, time.Hour}[g.dice.IntN(4)])
		q := backend.Policy{Name: fmt.Sprint("p", i), OnFailure: backend.FailClosed, Shadow: g.dice.IntN(10) < 3}
		switch k := kinds[g.dice.IntN(len(kinds))]; k {
		case rule.KindInFlight:
			q.Algorithm = algo.InFlight(1 + l.Events%4)
		case rule.KindTokenBucket:
			q.Algorithm = algo.TokenBucket(l, 1+g.dice.Int64N(200))
		case rule.KindCalendar:
			q.Algorithm = algo.Calendar(l.Events, algo.Day(), time.UTC)
		default:
			q.Algorithm = k.Random(l, func(least, most int64) int64 { return least + g.dice.Int64N(min(most, least+10)-least+1) })
		}
		list = append(list, q)
	}
	return g.carried(list...)
}

func (g *program) String() string {
	var b strings.Builder
	for i, list := range g.lists {
		for _, q := range list {
			fmt.Fprintf(&b, "list %d: %s %v shadow: %v\n", i, q.Name, &q.Algorithm, q.Shadow)
		}
	}
	return b.String() + strings.Join(g.said[max(0, len(g.said)-30):], "\n")
}

func (g *program) say(format string, args ...any) {
	g.said = append(g.said, fmt.Sprintf(format, args...))
}

// step moves the clock or sends a request.
func (g *program) step() error {
	g.lost--
	switch n := g.dice.IntN(20); {
	case n < 5:
		g.tick()
		return nil
	case n < 9:
		return g.ask(backend.Take)
	case n < 10:
		return g.ask(backend.Peek)
	case n < 11:
		return g.ask(backend.AtMost)
	case n < 12:
		return g.ask(backend.Record)
	case n < 15:
		return g.ask(backend.Reserve)
	case n < 18:
		return g.settle()
	case n < 19:
		if g.dice.IntN(2) == 0 {
			return g.ask(backend.Return)
		}
		return g.extend()
	default:
		return g.clear()
	}
}

func (g *program) tick() {
	list := g.lists[g.dice.IntN(len(g.lists))]
	period := max(1000, list[g.dice.IntN(len(list))].Algorithm.Limit().Period.Microseconds())
	by := []int64{g.dice.Int64N(1000), g.dice.Int64N(20_000), g.dice.Int64N(period), g.dice.Int64N(min(2*period, 7_200_000_000))}[g.dice.IntN(4)]
	if g.dice.IntN(4) == 0 && len(g.held) > 0 {
		h := g.held[len(g.held)-1]
		by = max(0, h.model.End-g.now+g.dice.Int64N(2)*h.model.Length+g.dice.Int64N(3)-1)
	}
	g.set(g.now + by)
	g.model.Now = g.now
	g.say("+%v", time.Duration(by)*tick)
}

// request draws a request, and what the model records of it.
func (g *program) request(op backend.Op) (r backend.Request, parts []oracle.Part) {
	r.Op = op
	groups := 1
	if c := g.Store.Capabilities(); op != backend.AtMost && op != backend.Record && op != backend.Return && c.Keys >= len(g.keys) && g.dice.IntN(4) == 0 {
		groups = len(g.keys)
	}
	same := 1 + g.dice.Int64N(4)
	for i := range groups {
		list := g.lists[g.dice.IntN(len(g.lists))]
		own := backend.Group{Key: g.keys[g.dice.IntN(len(g.keys))], Policies: list, Each: make([]backend.State, len(list))}
		if groups > 1 {
			own.Key = g.keys[i]
		}
		for j := range list {
			own.Costs = append(own.Costs, g.cost(op, &list[j], same, j == 0))
		}
		part := oracle.Part{Key: own.Key, Policies: list, Each: own.Each}
		for j := range list {
			part.Costs = append(part.Costs, own.CostOf(j))
		}
		parts = append(parts, part)
		if i == 0 {
			r.Group = own
		} else {
			r.And = append(r.And, own)
		}
	}
	if op == backend.AtMost {
		r.Op, r.Run, r.UpTo, r.Cost, r.Costs = backend.Take, r.Costs[0], true, 1, nil
	}
	return r, parts
}

func (g *program) cost(op backend.Op, q *backend.Policy, same int64, first bool) int64 {
	most := q.Algorithm.Max()
	switch {
	case op == backend.AtMost:
		return same
	case q.Algorithm.Kind() == rule.KindInFlight:
		return 1
	case op == backend.Record || op == backend.Return:
		return 1 + g.dice.Int64N(2*most)
	case !first && g.dice.IntN(8) == 0:
		return 0
	case g.dice.IntN(2) == 0:
		return min(most, same)
	}
	return 1 + g.dice.Int64N(most)
}

func hasSlots(parts []oracle.Part) bool {
	return slices.ContainsFunc(parts, func(p oracle.Part) bool {
		return slices.ContainsFunc(p.Policies, func(q backend.Policy) bool { return q.Algorithm.Kind() == rule.KindInFlight })
	})
}

// ask sends a request that is decided, and compares the answer.
func (g *program) ask(op backend.Op) error {
	r, parts := g.request(op)
	if op != backend.Reserve && op != backend.Peek && hasSlots(parts) {
		return nil // only a Reserve takes a slot
	}
	if op == backend.Return && !g.returns(&r) {
		return nil
	}
	length := time.Duration(0)
	if op == backend.Reserve {
		length = []time.Duration{sec, 1500 * time.Millisecond, 10 * sec, time.Minute}[g.dice.IntN(4)]
		leases(&r, backend.Lease{ID: g.newID(), Length: length})
	}
	sure, _ := g.model.Sure(op, parts)
	lost := g.LoseReply != nil && g.lost < 0 && op != backend.Peek && sure && g.dice.IntN(8) == 0
	if lost {
		g.lost = 10
		g.LoseReply()
	}
	d, err := g.send(context.Background(), r)
	g.say("%v %v = %v %+v, %v; lost: %v", op, costsOf(parts), d.Allowed, d.State, err, lost)
	got := &d
	switch {
	case lost && errors.Is(err, backend.ErrPerhapsCounted):
		got = nil
	case lost || err != nil:
		return fmt.Errorf("the error is %w, lost: %v", err, lost)
	}
	leases, err := g.model.Do(op, parts, length, got)
	if err != nil {
		return err
	}
	g.hold(&r, leases, lost)
	return g.look(parts)
}

// returns reports whether units of all policies can be returned. A store may merge charges of
// one instant of a SlidingLog. So what a Return leaves of its lease is open.
func (g *program) returns(r *backend.Request) bool {
	return !slices.ContainsFunc(r.Policies, func(q backend.Policy) bool {
		k := q.Algorithm.Kind()
		return !k.Returns() || k == rule.KindSlidingLog && len(g.held) > 0
	})
}

// hold keeps the leases of a Reserve, to settle them later.
func (g *program) hold(r *backend.Request, leases []*oracle.Lease, lost bool) {
	for i, l := range leases {
		l.Unresolved = lost
		g.held = append(g.held, &holding{
			g:     backend.Group{Key: r.GroupAt(i).Key, Policies: r.GroupAt(i).Policies},
			lease: backend.Lease{ID: r.GroupAt(i).Lease.ID, Length: r.Lease.Length, Unresolved: lost}, model: l,
		})
	}
}

func costsOf(parts []oracle.Part) (all []string) {
	for i := range parts {
		all = append(all, fmt.Sprint(parts[i].Key, " ", len(parts[i].Policies), " policies ", parts[i].Costs))
	}
	return all
}

// look peeks at each state.
func (g *program) look(parts []oracle.Part) error {
	for i := range parts {
		part := parts[i]
		part.Costs, part.Each = make([]int64, len(part.Policies)), make([]backend.State, len(part.Policies))
		d, err := g.send(context.Background(), backend.Request{Op: backend.Peek, Group: backend.Group{Key: part.Key, Policies: part.Policies, Costs: part.Costs, Each: part.Each}})
		if err != nil {
			return err
		}
		if _, err := g.model.Do(backend.Peek, []oracle.Part{part}, 0, &d); err != nil {
			return fmt.Errorf("afterwards: %w", err)
		}
	}
	return nil
}

// settle settles a lease by less or more than its estimate, perhaps for a second time.
// It may be by another attempt or by the one that settled it.
func (g *program) settle() error {
	if len(g.held) == 0 {
		return nil
	}
	h := g.held[max(0, len(g.held)-1-g.dice.IntN(4))]
	if h.model.Forgotten(g.now) {
		return nil
	}
	l := h.lease
	l.Attempt, l.Actual = g.newID(), make([]int64, len(h.g.Policies))
	for i, q := range h.g.Policies {
		if q.Algorithm.Kind() != rule.KindInFlight && g.dice.IntN(3) > 0 {
			l.Actual[i] = g.dice.Int64N([]int64{4, q.Algorithm.Max() + 1}[g.dice.IntN(2)])
		}
	}
	want := g.model.Settle(h.model, l.Actual, h.g.Policies)
	for again := range 1 + g.dice.IntN(2) {
		_, err := g.send(context.Background(), requestOn(backend.Settle, h.g, &l))
		g.say("settle of %q by %v = %v, attempt %d", h.g.Key, l.Actual, err, again)
		if !errors.Is(err, want) || err != nil && want == nil {
			return fmt.Errorf("the settle is %v, want %v", err, want)
		}
	}
	return g.look([]oracle.Part{{Key: h.g.Key, Policies: h.g.Policies}})
}

func (g *program) extend() error {
	if len(g.held) == 0 {
		return nil
	}
	h := g.held[max(0, len(g.held)-1-g.dice.IntN(4))]
	if h.lease.Unresolved {
		return nil
	}
	l := h.lease
	_, err := g.send(context.Background(), requestOn(backend.Extend, h.g, &l))
	g.say("extend of %q = %v", h.g.Key, err)
	if want := g.model.Extend(h.model); !errors.Is(err, want) || err != nil && want == nil {
		return fmt.Errorf("the extend is %v, want %v", err, want)
	}
	return g.look([]oracle.Part{{Key: h.g.Key, Policies: h.g.Policies}})
}

func (g *program) clear() error {
	key, list := g.keys[g.dice.IntN(len(g.keys))], g.lists[g.dice.IntN(len(g.lists))]
	_, err := g.send(context.Background(), request(backend.Reset, key, list, 0))
	g.say("reset of %q = %v", key, err)
	if err != nil {
		return err
	}
	if err := g.model.Reset(key, list, 0); err != nil {
		return err
	}
	return g.look([]oracle.Part{{Key: key, Policies: list}})
}
