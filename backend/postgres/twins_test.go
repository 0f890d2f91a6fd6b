package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/stretchr/testify/require"
)

// TestTwins holds the store equal to memory over random steps of all operations, by every field
// of each answer: nothing of a key, a lease or a borrower is lost on its way through rows.
// Up to eight steps share a transaction.
func TestTwins(t *testing.T) {
	seed := redistest.Seed(t)
	steps := redistest.Steps(6_000, 500_000)
	if redistest.Raced {
		steps = 1_000
	}
	w := &walk{Rand: rand.New(rand.NewPCG(seed, 7)), now: trace.Start, ops: map[backend.Op]int{}, seqs: map[backend.LeaseID]uint32{}}
	twin := memory.New(&memory.Options{Now: func() time.Time { return time.UnixMicro(w.now) }})
	// Two connections are one flight, so that steps of several keys stay in their order.
	o := postgres.Options{Schema: schema(), Budget: 10 * time.Second}
	s := postgres.New(pool(t, postgrestest.Shared(t).Addr(), "pool_max_conns=2"), &o)
	require.NoError(t, s.Migrate(context.Background()))
	s.SetClock(func() int64 { return w.now })
	for i := 0; i < steps; {
		if i%500 < 8 {
			w.era()
		}
		w.now += w.Int64N([]int64{2, 1_000, 1_000_000, 20_000_000}[w.IntN(4)])
		rs := make([]backend.Request, 1+w.IntN(8))
		for j := range rs {
			rs[j] = w.next()
		}
		ours := make([]backend.Request, len(rs))
		for j := range rs {
			ours[j] = copied(rs[j])
		}
		answers := make([]backend.Answer, len(rs))
		s.DoAll(context.Background(), ours, answers)
		for j := range rs {
			var want backend.Answer
			want.Err = twin.Do(context.Background(), &rs[j], &want.Decision)
			require.Equal(t, shown(&rs[j], want), shown(&ours[j], answers[j]), "step %d at %d: %v %+v %+v", i, w.now, rs[j].Op, rs[j].Group, rs[j].Loan)
			i++
		}
	}
	t.Log(steps, "steps:", w.ops)
	require.Len(t, w.ops, 8)
}

// shown is all of an answer.
func shown(r *backend.Request, a backend.Answer) string {
	text := fmt.Sprintf("%+v %v", a.Decision, a.Err)
	if a.Err == nil {
		for i := range 1 + len(r.And) {
			text += fmt.Sprintf(" %+v", r.GroupAt(i).Each)
		}
		if r.Loan != nil {
			text += fmt.Sprintf(" %+v %v", r.Loan.Lent, r.Loan.Each)
		}
	}
	return text
}

// copied is a request that shares nothing that an answer is written to.
func copied(r backend.Request) backend.Request {
	r.And = slices.Clone(r.And)
	for i := range 1 + len(r.And) {
		g := r.GroupAt(i)
		g.Each = slices.Clone(g.Each)
	}
	if r.Loan != nil {
		l := *r.Loan
		l.Each = slices.Clone(l.Each)
		r.Loan = &l
	}
	return r
}

// walk makes random requests of few keys.
type walk struct {
	*rand.Rand
	now   int64
	eras  int
	lists [][]backend.Policy
	seqs  map[backend.LeaseID]uint32
	ops   map[backend.Op]int
}

// era draws new lists, each with a twin of other limits, and new keys.
func (w *walk) era() {
	w.eras++
	w.lists = nil
	for n := range 5 {
		var list, other []backend.Policy
		for i := range 1 + w.IntN(3) {
			a := w.algorithm()
			p := backend.Policy{Name: fmt.Sprintf("p%d%d", n, i), Algorithm: a, OnFailure: backend.FailClosed, Shadow: w.IntN(5) == 0}
			list = append(list, p)
			p.Algorithm = a.WithMax(1 + w.Int64N(30))
			other = append(other, p)
		}
		w.lists = append(w.lists, list, other)
	}
}

func (w *walk) algorithm() algo.Algorithm {
	if w.IntN(6) == 0 {
		return algo.InFlight(1 + w.Int64N(5))
	}
	kinds := rule.Kinds()
	k := kinds[w.IntN(len(kinds))]
	period := time.Duration(1+w.IntN(30)) * []time.Duration{time.Millisecond, time.Second, time.Minute}[w.IntN(3)]
	return k.Random(algo.Per(1+w.Int64N(20), period), func(least, most int64) int64 { return least + w.Int64N(min(most-least+1, 20)) })
}

func (w *walk) group() backend.Group {
	list := w.lists[w.IntN(len(w.lists))]
	g := backend.Group{Key: fmt.Sprintf("key %d %d", w.eras, w.IntN(3)), Policies: list, Each: make([]backend.State, len(list)), Cost: 1 + w.Int64N(3)}
	if w.IntN(8) == 0 {
		g.Key += fmt.Sprint(make([]byte, 300))
	}
	if w.IntN(3) == 0 {
		g.Costs = make([]int64, len(list))
		for i := range g.Costs {
			g.Costs[i] = w.Int64N(3)
		}
	}
	return g
}

func (w *walk) id() backend.LeaseID {
	return backend.LeaseID{1, byte(w.eras), byte(w.eras >> 8), 15: byte(w.IntN(6))}
}

func (w *walk) lease() *backend.Lease {
	return &backend.Lease{ID: w.id(), Length: time.Duration(1+w.IntN(20)) * time.Second, Late: w.IntN(4) == 0, Free: w.IntN(4) == 0}
}

func (w *walk) next() backend.Request {
	ops := []backend.Op{backend.Take, backend.Take, backend.Peek, backend.Reserve, backend.Reserve, backend.Settle, backend.Settle, backend.Extend, backend.Record, backend.Borrow, backend.Borrow}
	r := backend.Request{Op: ops[w.IntN(len(ops))], Group: w.group()}
	if w.IntN(25) == 0 {
		r.Op = backend.Reset
	}
	w.ops[r.Op]++
	switch {
	case r.Op == backend.Borrow:
		r.Costs, r.Loan = nil, w.loan(r.Policies)
	case r.Op == backend.Take && w.IntN(4) == 0:
		r.Run, r.UpTo = 1+w.Int64N(4), w.IntN(2) == 0
		if r.Costs = nil; !r.UpTo {
			r.Cost *= r.Run
		}
	case r.Op.Leases():
		r.Lease = w.settled(r.Op, len(r.Policies))
		if r.Op != backend.Reserve && w.IntN(3) > 0 {
			r.Each = nil
		}
	}
	for n := w.IntN(4); n > 0 && (r.Op == backend.Take || r.Op == backend.Peek || r.Op == backend.Reserve) && r.Run == 0; n-- {
		g := w.group()
		if g.Else = w.IntN(3) == 0; r.Op.Opens() {
			g.Lease = w.lease()
		}
		r.And = append(r.And, g)
	}
	return r
}

func (w *walk) settled(op backend.Op, policies int) *backend.Lease {
	l := w.lease()
	if op.Ends() {
		l.Attempt, l.Unresolved = backend.LeaseID{byte(1 + w.IntN(2))}, w.IntN(4) == 0
		if w.IntN(3) > 0 {
			l.Actual = make([]int64, policies)
			for i := range l.Actual {
				l.Actual[i] = w.Int64N(5)
			}
		}
	}
	return l
}

func (w *walk) loan(list []backend.Policy) *backend.Loan {
	id := w.id()
	w.seqs[id]++
	seq := w.seqs[id]
	if w.IntN(10) == 0 {
		seq--
	}
	l := &backend.Loan{ID: id, Seq: max(seq, 1), Epoch: [8]byte{list[0].Name[1], byte(w.IntN(4))}, Term: time.Duration(10+w.IntN(900)) * time.Millisecond,
		Want: w.Int64N(10), Keep: w.Int64N(3), Each: make([]int64, len(list))}
	for i := range l.Held[:1+w.IntN(3)] {
		l.Held[i] = backend.Held{Seq: uint32(max(int64(seq)-1-int64(i), 0)), Used: w.Int64N(4)}
	}
	return l
}
