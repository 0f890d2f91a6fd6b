package standalone_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestFirstTwins: requests of alternatives, and their settlements, have the same answers on Redis and
// in memory. A store that is sent one alternative after the other answers the same. So each that
// passes is charged to one alternative, the first with room, and each other one to none.
func TestFirstTwins(t *testing.T) {
	redistest.Plain(t)
	seed := redistest.Seed(t)
	for i := range uint64(traces) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			f := newFirstSteps(t, seed+i)
			for f.steps < redistest.Steps(6_000, 1_000_000)/traces {
				f.round()
			}
			t.Logf("%d steps; passed by the alternative: %v, denied: %d; settled together: %d, of which %d found nothing",
				f.steps, f.passed, f.denied, f.settled, f.absent)
			require.Greater(t, min(f.passed[0], f.passed[1], f.passed[2], f.denied, f.settled, f.absent), 20)
		})
	}
}

// firstSteps are random requests of alternatives.
type firstSteps struct {
	*civil
	t                                      *testing.T
	ctx                                    context.Context
	rand                                   *rand.Rand
	plain                                  backend.Store // is sent one alternative after the other
	lists                                  [][]backend.Policy
	open                                   []*firstLease
	loans                                  map[string]*backend.Loan
	rounds, steps, denied, settled, absent int
	passed                                 [5]int
	ids                                    uint64
}

// firstLease is a Reserve of alternatives.
type firstLease struct {
	r       backend.Request
	at      int // a group of the alternative that holds the lease; -1: none does
	until   time.Time
	attempt byte
}

func newFirstSteps(t *testing.T, seed uint64) *firstSteps {
	f := &firstSteps{civil: newCivil(t), t: t, ctx: context.Background(), rand: rand.New(rand.NewPCG(seed, 3)), loans: map[string]*backend.Loan{}}
	f.plain = memory.New(&memory.Options{Now: func() time.Time { return f.now }})
	shadowed := calendars(algo.TokenBucket(algo.PerSecond(3), 10), algo.FixedWindow(algo.PerSecond(4)))
	shadowed[1].Shadow = true
	f.lists = [][]backend.Policy{
		calendars(algo.TokenBucket(algo.PerSecond(3), 10)),
		calendars(algo.SlidingWindow(algo.PerSecond(5))),
		calendars(algo.SlidingLog(algo.PerSecond(4)), algo.FixedWindow(algo.PerSecond(6))),
		calendars(algo.BucketedWindow(algo.PerSecond(6), 10), algo.TokenBucket(algo.PerSecond(4), 9)),
		calendars(algo.CompactLog(algo.PerSecond(4))),
		shadowed,
		calendars(algo.Calendar(2000, algo.Day(), time.UTC), algo.FixedWindow(algo.PerSecond(3))),
		calendars(algo.InFlight(2), algo.TokenBucket(algo.PerSecond(4), 7)),
	}
	return f
}

// round moves the clock, and sends some requests at once, each on keys of its own.
func (f *firstSteps) round() {
	f.set(f.now.Add(time.Duration(f.rand.IntN(30)*f.rand.IntN(2)) * time.Millisecond))
	if f.rounds++; f.rounds%50 == 0 { // other keys: memory forgets what an unused key has recalled
		clear(f.loans)
	}
	if len(f.open) > 40 {
		f.open = f.open[10:]
	}
	n := f.rand.IntN(16)
	if len(f.open) > 0 && n < 4 {
		f.settle(f.open[max(0, len(f.open)-1-f.rand.IntN(6))])
		return
	}
	var qs []backend.Request
	for j := range 1 + f.rand.IntN(3) {
		q := f.request(j)
		if q.Op == backend.Reserve && q.First() && f.rand.IntN(10) == 0 { // it comes after its settlement
			f.open = append(f.open, &firstLease{r: q, at: -1})
			continue
		}
		qs = append(qs, q)
	}
	if len(qs) == 0 {
		return
	}
	if n == 4 {
		qs = []backend.Request{f.borrow()}
	}
	if n == 5 && f.rand.IntN(4) == 0 {
		qs[0] = backend.Request{Op: backend.Reset, Group: qs[0].Group}
		qs[0].Lease = nil
	}
	f.steps += len(qs)
	got, want := f.send(f.redis, qs), f.send(f.process, qs)
	require.Equal(f.t, want, got, "step %d: %+v", f.steps, qs)
	for j := range qs {
		plain := f.oneByOne(qs[j])
		require.Equal(f.t, plain, got[j], "step %d: %+v", f.steps, qs[j])
		f.note(&qs[j], &got[j])
	}
}

// send sends requests with loans of their own.
func (f *firstSteps) send(s backend.Store, qs []backend.Request) []keysAnswer {
	if l := qs[0].Loan; l != nil {
		own := *l
		qs = []backend.Request{qs[0]}
		qs[0].Loan = &own
	}
	all := answersOf(s, qs)
	for i := range all {
		if all[i].Err != nil { // of which the text may differ
			for _, known := range []error{backend.ErrNotHeld, backend.ErrLeaseEnded, backend.ErrUnavailable} {
				if errors.Is(all[i].Err, known) {
					all[i].Err = known
				}
			}
		}
	}
	return all
}

// oneByOne sends the alternatives by themselves, until one passes.
func (f *firstSteps) oneByOne(r backend.Request) keysAnswer {
	if !r.First() {
		return f.send(f.plain, []backend.Request{r})[0]
	}
	var best keysAnswer
	var states [][]backend.State
	for from, to := range r.Alternatives() {
		one := backend.Request{Op: r.Op, Group: *r.GroupAt(from), And: r.And[from : to-1]}
		a := f.send(f.plain, []backend.Request{one})[0]
		if a.Err != nil {
			return keysAnswer{Answer: a.Answer, states: states}
		}
		a.Decision.At += from
		a.Decision.Key = r.GroupAt(a.Decision.At).Key
		states = append(states, a.states...)
		if from == 0 || a.Decision.Allowed || a.Decision.RetryAfter < best.Decision.RetryAfter {
			best.Answer = a.Answer
		}
		if a.Decision.Allowed {
			break
		}
	}
	for i := len(states); i <= len(r.And); i++ { // were not looked at
		states = append(states, make([]backend.State, len(r.GroupAt(i).Policies)))
	}
	best.states = states
	return best
}

// note counts an answer, and keeps a Reserve to settle.
func (f *firstSteps) note(q *backend.Request, a *keysAnswer) {
	d, held := &a.Decision, -1
	if q.First() && a.Err == nil {
		if d.Allowed {
			n := 0
			for from := range q.Alternatives() {
				if from <= d.At {
					n++
				}
			}
			f.passed[n-1]++
			held = d.At
		} else {
			f.denied++
		}
	}
	if q.Op == backend.Reserve && q.First() && a.Err == nil {
		f.open = append(f.open, &firstLease{r: *q, at: held, until: f.now.Add(backend.Stays(q.Lease.Length, q.Lease.Late))})
	}
}

func (f *firstSteps) id() (id backend.LeaseID) {
	f.ids++
	binary.LittleEndian.PutUint64(id[:], f.ids)
	binary.LittleEndian.PutUint64(id[8:], f.rand.Uint64())
	return id
}

// request draws the j-th request of a round.
func (f *firstSteps) request(j int) backend.Request {
	q := backend.Request{Op: backend.Take}
	lists := f.lists[:len(f.lists)-1]
	switch at := f.rand.IntN(8); {
	case at < 3:
		q.Op, lists = backend.Reserve, f.lists
	case at == 3:
		q.Op = backend.Peek
	}
	alternatives := 1 + f.rand.IntN(5)
	length, late := time.Duration(1+f.rand.IntN(3))*time.Second, f.rand.IntN(8) == 0
	for a := range alternatives {
		groups := 1
		if f.rand.IntN(3) == 0 {
			groups = 2
		}
		for i := range groups {
			l := f.rand.IntN(len(lists))
			g := backend.Group{Key: fmt.Sprint(f.rounds/50, "of", i, "in", j), Policies: lists[l], Cost: 1 + f.rand.Int64N(2), Else: a > 0 && i == 0}
			if f.rand.IntN(4) == 0 && len(g.Policies) == 2 {
				g.Costs = []int64{f.rand.Int64N(2), 1}
			}
			if q.Op == backend.Reserve {
				g.Lease = &backend.Lease{ID: f.id(), Length: length, Late: late}
			}
			if l == len(f.lists)-1 {
				g.Cost, g.Costs = 1, nil
			}
			if a+i == 0 {
				q.Group = g
			} else {
				q.And = append(q.And, g)
			}
		}
	}
	return q
}

// borrow draws a Borrow of a key that requests may have.
func (f *firstSteps) borrow() backend.Request {
	l := f.rand.IntN(5)
	key := fmt.Sprint(f.rounds/50, "of", f.rand.IntN(2), "in", f.rand.IntN(2))
	name := fmt.Sprint(key, l)
	loan := f.loans[name]
	if loan == nil {
		loan = &backend.Loan{ID: f.id(), Epoch: [8]byte{1}, Term: time.Duration(100*(1+f.rand.IntN(5))) * time.Millisecond}
		f.loans[name] = loan
	}
	loan.Held = [backend.MaxHeld]backend.Held{{Seq: loan.Seq}}
	loan.Seq++
	loan.Want = f.rand.Int64N(6)
	return backend.Request{Op: backend.Borrow, Loan: loan, Group: backend.Group{Key: key, Policies: f.lists[l]}}
}

// settlement returns the request that settles all alternatives of a Reserve, as if its answer had
// been lost.
func (f *firstSteps) settlement(l *firstLease) backend.Request {
	attempt := max(1, l.attempt)
	if l.attempt > 0 && f.rand.IntN(2) == 0 {
		attempt++
	}
	s := backend.Request{Op: backend.Settle}
	for i := range 1 + len(l.r.And) {
		g := *l.r.GroupAt(i)
		lease := *g.Lease
		lease.Unresolved, lease.Attempt, lease.Late = true, backend.LeaseID{attempt, 1}, false
		for p := range g.Policies {
			lease.Actual = append(lease.Actual, min(f.rand.Int64N(4), g.Policies[p].Algorithm.Kind().MaxLimit()))
		}
		if l.attempt > 0 {
			lease.Actual = make([]int64, len(g.Policies))
		}
		g.Lease = &lease
		if i == 0 {
			s.Group = g
		} else {
			s.And = append(s.And, g)
		}
	}
	l.attempt = attempt
	return s
}

// settle settles a Reserve, and perhaps sends it once more after that.
func (f *firstSteps) settle(l *firstLease) {
	held, first := -1, l.attempt == 0
	if l.at >= 0 && f.now.Before(l.until) {
		held, _ = l.r.Alternative(l.at)
	}
	s := f.settlement(l)
	f.steps++
	if f.settled++; held < 0 && first {
		f.absent++
	}
	got, want := f.send(f.redis, []backend.Request{s}), f.send(f.process, []backend.Request{s})
	require.Equal(f.t, want, got, "step %d: settle of %+v", f.steps, s)
	var err error
	for i := len(s.And); i >= 0; i-- {
		one := backend.Request{Op: backend.Settle, Group: *s.GroupAt(i)}
		lease := *one.Lease
		if from, _ := l.r.Alternative(i); from != held && (held >= 0 || from > 0) {
			lease.Actual = nil // only a tombstone
		}
		one.Lease = &lease
		err = cmp.Or(err, f.send(f.plain, []backend.Request{one})[0].Err)
	}
	require.Equal(f.t, err, got[0].Err, "step %d: settle of %+v", f.steps, s)
	f.look(&s)
	if f.rand.IntN(3) == 0 { // the Reserve comes too late
		got, want := f.send(f.redis, []backend.Request{l.r}), f.send(f.process, []backend.Request{l.r})
		require.Equal(f.t, want, got)
		require.ErrorIs(f.t, got[0].Err, backend.ErrNotHeld)
	}
	if f.rand.IntN(2) == 0 {
		f.open = slices.DeleteFunc(f.open, func(o *firstLease) bool { return o == l })
	}
}

// look peeks at each count of a request.
func (f *firstSteps) look(r *backend.Request) {
	for i := range 1 + len(r.And) {
		g := r.GroupAt(i)
		peek := []backend.Request{{Op: backend.Peek, Group: backend.Group{Key: g.Key, Policies: g.Policies, Cost: 1}}}
		want := f.send(f.plain, peek)
		require.Equal(f.t, want, f.send(f.process, peek), "step %d: after %+v", f.steps, r)
		require.Equal(f.t, want, f.send(f.redis, peek), "step %d: after %+v", f.steps, r)
	}
}
