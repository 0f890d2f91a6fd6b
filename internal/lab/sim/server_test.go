package sim

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// wired sends the library's commands to a simulated node, without a network.
type wired struct{ node *node }

func (w wired) Process(_ context.Context, cmd redis.Cmder) error {
	var args []string
	for _, a := range cmd.Args() {
		switch a := a.(type) {
		case encoding.BinaryMarshaler:
			b, err := a.MarshalBinary()
			if err != nil {
				return err
			}
			args = append(args, string(b))
		case *int:
			args = append(args, fmt.Sprint(*a))
		default:
			args = append(args, fmt.Sprint(a))
		}
	}
	w.node.world.events.Lock()
	out := string(w.node.run(&conn{}, args))
	w.node.world.events.Unlock()
	head, body, _ := strings.Cut(out, "\r\n")
	if head[0] == '-' {
		err := reply(head[1:])
		cmd.SetErr(err)
		return err
	}
	cmd.(interface{ SetVal(string) }).SetVal(strings.TrimSuffix(body, "\r\n"))
	return nil
}

type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// TestNodeAnswersAsAServer: a simulated node and a real server answer the library's
// requests alike, in every field.
func TestNodeAnswersAsAServer(t *testing.T) {
	redistest.Plain(t)
	s := trace.Steady(14)
	now := func() time.Time { return time.UnixMicro(s.Now()) }
	w := newWorld(&Plan{Primaries: 1})
	w.nodes[1].down = true                         // no replica
	at := &standalone.Options{Budget: time.Minute} // a machine that stops for ten seconds is not the subject
	node := standalone.New(clock.Client{Processor: wired{w.nodes[0]}, Now: now}, at)
	real := standalone.New(clock.Client{Processor: redistest.Start(t).Client(t), Now: now}, at)
	steps := leased{Steps: s, world: w, dice: rand.New(rand.NewPCG(14, 14)), holders: map[holder]*backend.Loan{}}
	joint := 0
	n, ops := redistest.Steps(4_000, 100_000), map[backend.Op]int{}
	for i := range n {
		r := steps.next()
		if r.Op == backend.Return && slices.ContainsFunc(r.Policies, apart) { // of whose ended loans the script returns nothing before they are stored
			r.Op = backend.Peek
		}
		if ops[r.Op]++; r.UpTo {
			ops[backend.AtMost]++
		}
		again := r
		again.And = fresh(r.And)
		if r.Loan != nil {
			loan := *r.Loan
			again.Loan = &loan
		}
		want, got := trace.Ask(t.Context(), real, r), trace.Ask(t.Context(), node, again)
		if want.Err != nil && got.Err != nil {
			for _, err := range []error{backend.ErrNotHeld, backend.ErrLeaseEnded, backend.ErrUnavailable} {
				require.Equal(t, errors.Is(want.Err, err), errors.Is(got.Err, err), "step %d: %v, %v", i, want.Err, got.Err)
			}
			continue
		}
		require.NoError(t, trace.Same(want, got), "step %d at %d: %v %+v %+v %+v", i, s.Now(), r.Op, r.Group, r.Lease, r.Loan)
		require.Equal(t, r.And, again.And, "step %d at %d: %v", i, s.Now(), r.Op)
		joint += len(r.And)
		if r.Loan != nil {
			require.Equal(t, r.Loan.Lent, again.Loan.Lent, "step %d at %d: %+v %+v", i, s.Now(), r.Group, r.Loan)
		}
	}
	require.Empty(t, w.failures)
	t.Log(n, "requests:", ops, "of two keys:", joint)
	require.Greater(t, joint, n/50)
	require.Len(t, ops, 10)
}

// leased are steps of which some reserve, and some settle what was reserved.
type leased struct {
	*trace.Steps
	world *World
	dice  *rand.Rand
	held  []backend.Request
	era   int

	holders map[holder]*backend.Loan // and what each asked for last
}

// holder is a borrower: one of three for each key and list.
type holder struct {
	key    string
	list   *backend.Policy
	number int
}

func (l *leased) next() backend.Request {
	r := l.Next()
	if l.era != l.Era() {
		l.era, l.held = l.Era(), nil
		clear(l.holders)
	}
	switch n := l.dice.IntN(10); {
	case r.Op == backend.Take && n < 4:
		r.Op = backend.Reserve
		r.Lease = &backend.Lease{Length: time.Duration(1+l.dice.IntN(60)) * time.Second, Late: l.dice.IntN(4) == 0}
		for i := range r.Lease.ID {
			r.Lease.ID[i] = byte(l.dice.Uint64())
		}
		if l.dice.IntN(2) == 0 {
			r.Policies = append(append([]backend.Policy(nil), r.Policies...), backend.Policy{Name: "slots", Algorithm: algo.InFlight(3)})
			if r.Costs != nil {
				r.Costs = append(append([]int64(nil), r.Costs...), 1)
			}
			r.Cost = 1
		}
		l.held = append(l.held, r)
	case n == 4 && len(l.held) > 0:
		r = l.held[l.dice.IntN(len(l.held))]
		lease := *r.Lease
		lease.Attempt[0], lease.Unresolved = byte(1+l.dice.IntN(3)), l.dice.IntN(8) == 0
		r.Op, r.Lease = backend.Settle, &lease
		if l.dice.IntN(2) == 0 {
			for range r.Policies {
				lease.Actual = append(lease.Actual, int64(l.dice.IntN(3)))
			}
		}
	case r.Op == backend.Take && n == 6:
		r.Op = backend.Record
	case r.Op == backend.Take && n == 8 && r.Costs == nil:
		r.Run, r.UpTo, r.Cost = r.Cost, true, 1
	case r.Op == backend.Take && n == 9 && r.Costs == nil && lends(r.Policies):
		l.borrow(&r)
	case n == 5 && len(l.held) > 0:
		r = l.held[l.dice.IntN(len(l.held))]
		r.Op = backend.Extend
	}
	if single := r.Op != backend.Take && r.Op != backend.Reserve; !single && l.dice.IntN(5) == 0 {
		if also := l.Next().Group; also.Key != r.Key && also.Run == 0 {
			if r.Lease != nil {
				lease := *r.Lease
				lease.ID[0]++
				also.Lease = &lease
			}
			r.And = fresh([]backend.Group{also})
		}
	}
	if r.Op != backend.Take || len(r.And) > 0 {
		r.Run, r.UpTo = 0, false
	}
	for _, p := range slices.Concat(r.Policies, policiesOf(r.And)) {
		l.world.learn(p)
	}
	return r
}

func policiesOf(and []backend.Group) (all []backend.Policy) {
	for i := range and {
		all = append(all, and[i].Policies...)
	}
	return all
}

// fresh returns groups with room for answers of their own.
func fresh(and []backend.Group) (all []backend.Group) {
	for _, g := range and {
		g.Each = make([]backend.State, len(g.Policies))
		all = append(all, g)
	}
	return all
}

// lends reports whether units of a list can be lent.
func lends(list []backend.Policy) bool {
	return !slices.ContainsFunc(list, func(p backend.Policy) bool { return !p.Algorithm.Kind().Lends() })
}

// borrow makes a request a Borrow: of some units, of none, one that names what is held or
// not, and now and then one that was sent before.
func (l *leased) borrow(r *backend.Request) {
	r.Op = backend.Borrow
	who := holder{r.Key, &r.Policies[0], l.dice.IntN(3)}
	was := l.holders[who]
	if was == nil {
		was = &backend.Loan{Term: time.Duration(10+l.dice.IntN(990)) * time.Millisecond}
		was.ID[0], was.ID[1] = 1, byte(who.number)
	}
	loan := *was
	if loan.Seq == 0 || l.dice.IntN(20) > 0 {
		loan.Seq++
	}
	loan.Epoch[0] = byte(l.dice.Uint64())
	least := r.Policies[0].Algorithm.Max()
	for i := range r.Policies {
		least = min(least, r.Policies[i].Algorithm.Max())
	}
	loan.Want, loan.Keep, loan.Held = 0, 0, [backend.MaxHeld]backend.Held{}
	if l.dice.IntN(4) > 0 {
		loan.Want = l.dice.Int64N(1 + least)
	}
	if units := was.Lent.Units; units > 0 && l.dice.IntN(8) > 0 {
		loan.Held[l.dice.IntN(2)] = backend.Held{Seq: was.Seq, Used: l.dice.Int64N(1 + units)}
		loan.Keep = l.dice.Int64N(1 + units)
	}
	loan.Lent = backend.Lent{}
	l.holders[who], r.Loan = &loan, &loan
	if l.dice.IntN(3) == 0 {
		r.Cost = 0
	} else {
		r.Cost = 1 + l.dice.Int64N(1+least/8)%least
	}
}
