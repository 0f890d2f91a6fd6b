//go:build go1.25

package headgate_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// flight is one process's way to a store under virtual time. A round trip takes a time, and
// calls that arrive while two of them are under way are sent together.
type flight struct {
	*fake
	process int
	begin   time.Time
	trip    time.Duration
	trips   atomic.Int64
	mu      struct {
		sync.Mutex
		flying  int
		pending []*sending
		decided []fleetCall // by the store, at its instant
	}
}

// sending is a request on its way.
type sending struct {
	r    *backend.Request
	d    *backend.Decision
	err  error
	done chan struct{}
}

// flightTo returns a process's way to the store.
func flightTo(s backend.Store, process int, begin time.Time, trip time.Duration) *flight {
	l := &flight{fake: remote(s), process: process, begin: begin, trip: trip}
	l.do = l.decide
	return l
}

func (l *flight) decide(_ context.Context, _ backend.Store, r *backend.Request, d *backend.Decision) error {
	s := &sending{r: r, d: d, done: make(chan struct{})}
	l.send(s)
	<-s.done
	return s.err
}

func (l *flight) DoAll(_ context.Context, rs []backend.Request, answers []backend.Answer) {
	var all []*sending
	for i := range rs {
		all = append(all, &sending{r: &rs[i], d: &answers[i].Decision, done: make(chan struct{})})
	}
	l.send(all...)
	for i, s := range all {
		<-s.done
		answers[i].Err = s.err
	}
}

func (l *flight) send(all ...*sending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.pending = append(l.mu.pending, all...)
	if l.mu.flying < 2 {
		l.mu.flying++
		go l.fly()
	}
}

// fly sends what is pending until nothing is.
func (l *flight) fly() {
	for {
		l.mu.Lock()
		all := l.mu.pending
		l.mu.pending = nil
		if len(all) == 0 {
			l.mu.flying--
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		l.trips.Add(1)
		trip := time.Duration(float64(l.trip) * (0.75 + rand.Float64()/2)) // no two processes keep step
		time.Sleep(trip / 2)
		for _, s := range all {
			s.err = l.Store.Do(context.Background(), s.r, s.d)
			l.note(s)
		}
		time.Sleep(trip / 2)
		for _, s := range all {
			close(s.done)
		}
	}
}

// note keeps when the store decided a call.
func (l *flight) note(s *sending) {
	if s.r.Op != backend.Take && s.r.Op != backend.Borrow || s.r.CostOf(0) == 0 || s.err != nil {
		return
	}
	at := time.Since(l.begin)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.decided = append(l.mu.decided, fleetCall{process: l.process, begin: at, answer: at, allowed: s.d.Allowed, lent: s.d.Lent > 0})
}

// fleet is processes that call one key under virtual time. Calls arrive at random, and
// none waits for an earlier one.
type fleet struct {
	algo.Algorithm
	borrow, trip time.Duration
	shards       int
	lasts        time.Duration
	callers      []caller
}

// caller is one process: its calls per second, and when the first one arrives.
type caller struct {
	rate float64
	from time.Duration
}

// callers returns n processes which make so many calls per second together.
func callers(n int, rate float64) (all []caller) {
	for range n {
		all = append(all, caller{rate: rate / float64(n)})
	}
	return all
}

// fleetCall is one call, with instants since the begin.
type fleetCall struct {
	process       int
	begin, answer time.Duration
	allowed, here bool // here: decided without the store
	lent          bool // lent units were counted
}

// fleetRun is what a fleet did. Both lists are in the order of the answers.
type fleetRun struct {
	calls    []fleetCall
	instants []fleetCall // the calls at the instants at which they were decided
	trips    int64
}

func (f *fleet) run(t *testing.T) (run fleetRun) {
	each := make([][]fleetCall, len(f.callers))
	synctest.Test(t, func(t *testing.T) {
		store, begin := memory.New(nil), time.Now()
		var links []*flight
		var wait sync.WaitGroup
		for i := range f.callers {
			l := flightTo(store, i, begin, f.trip)
			links = append(links, l)
			limiter, err := headgate.New(l, []headgate.Policy{{
				Name: "api", Algorithm: f.Algorithm, OnFailure: headgate.FailClosed,
			}}, &headgate.Options{Borrow: f.borrow, Shards: f.shards})
			require.NoError(t, err)
			wait.Go(func() { each[i] = f.calls(t, i, limiter, begin) })
		}
		wait.Wait()
		for _, l := range links {
			run.trips += l.trips.Load()
			run.instants = append(run.instants, l.mu.decided...)
			l.shared.Close() // of the process: the others still use the store
		}
		time.Sleep(time.Minute) // until no timer is left
	})
	run.calls = slices.Concat(each...)
	for _, c := range run.calls {
		if c.here {
			run.instants = append(run.instants, c)
		}
	}
	for _, list := range [][]fleetCall{run.calls, run.instants} {
		slices.SortStableFunc(list, func(a, b fleetCall) int { return int(a.answer - b.answer) })
	}
	return run
}

// calls makes the calls of one process.
func (f *fleet) calls(t *testing.T, i int, limiter *headgate.Limiter, begin time.Time) []fleetCall {
	var mu sync.Mutex
	var calls []fleetCall
	var wait sync.WaitGroup
	r, c := rand.New(rand.NewPCG(uint64(i), 1)), f.callers[i]
	for at := c.from; ; {
		if at += time.Duration(r.ExpFloat64() / c.rate * float64(time.Second)); at >= f.lasts {
			break
		}
		time.Sleep(at - time.Since(begin))
		wait.Go(func() {
			call := fleetCall{process: i, begin: time.Since(begin)}
			d, err := limiter.Allow(context.Background(), "key")
			call.answer, call.allowed, call.here, call.lent = time.Since(begin), d.Allowed, d.Source != headgate.FromStore, d.Lent > 0
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, call)
		})
	}
	wait.Wait()
	return calls
}

// fleetStart is where virtual time begins, in µs: at the begin of a window of any length.
const fleetStart = 946_684_800_000_000

// words are what a limiter without a way to its store counts.
type words struct {
	algo.Algorithm
	w []int64
}

func (w *words) fits(at time.Duration) bool { return w.free(at) > 0 }

func (w *words) free(at time.Duration) int64 {
	if w.w == nil {
		w.w = make([]int64, w.Words())
	}
	v := w.View(w.w, fleetStart+at.Microseconds())
	return w.Max() - v.Used
}

func (w *words) take(at time.Duration) {
	if w.w == nil {
		w.w = make([]int64, w.Words())
	}
	v := w.View(w.w, fleetStart+at.Microseconds())
	w.w = w.Take(w.w, &v, 1)
}

// strict returns how many of the calls a limiter admits that decides each at its arrival.
func (f *fleet) strict(calls []fleetCall) (n int) {
	f.strictly(calls, func(int64) { n++ })
	return n
}

// strictly passes to admitted how many units are free for each call that such a limiter admits.
func (f *fleet) strictly(calls []fleetCall, admitted func(free int64)) {
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, func(a, b fleetCall) int { return int(a.begin - b.begin) })
	w := words{Algorithm: f.Algorithm}
	for _, c := range calls {
		if free := w.free(c.begin); free > 0 {
			admitted(free)
			w.take(c.begin)
		}
	}
}

// fewest returns the round trips per 1,000 calls that a rule needs which denies no call that
// a strict limiter admits. waiting is how many admitted calls share a round trip without
// borrowing: they use their units at once. Of the other units of a loan, the i-th is used
// i calls later. All processes hold at most the units that are free for a strict limiter.
// So a loan that lends d units beside has (d² + d) / 2 (waiting + d) <= free / processes.
// And no loan has more units than its term uses.
func (f *fleet) fewest(calls []fleetCall, waiting float64) (trips float64) {
	processes := float64(len(f.callers))
	most := float64(f.strict(calls)) * float64(f.borrow) / float64(f.lasts) / processes
	f.strictly(calls, func(free int64) {
		b := 2*float64(free)/processes - 1
		d := (b + math.Sqrt(b*b+4*(b+1)*waiting)) / 2
		trips += 1 / min(waiting+d, most)
	})
	return trips * 1000 / float64(len(calls))
}

// figures are what a run shows.
type figures struct {
	calls, admitted, wrong int
	trips                  float64       // per 1,000 calls
	ofStrict               float64       // admitted, of what a strict limiter admits
	longest                time.Duration // in which a process met wrong denials only
}

// figures counts a denial as wrong if the calls that were admitted before leave a unit, and
// lent units were counted.
func (f *fleet) figures(run fleetRun) (g figures) {
	w := words{Algorithm: f.Algorithm}
	since := map[int]time.Duration{}
	for _, c := range run.instants {
		wrong := !c.allowed && c.lent && w.fits(c.answer)
		if c.allowed {
			g.admitted++
			w.take(c.answer)
		}
		if !wrong {
			delete(since, c.process)
			continue
		}
		g.wrong++
		if _, ok := since[c.process]; !ok {
			since[c.process] = c.begin
		}
		g.longest = max(g.longest, c.answer-since[c.process])
	}
	g.calls = len(run.calls)
	g.trips = float64(run.trips) * 1000 / float64(g.calls)
	g.ofStrict = float64(g.admitted) / float64(f.strict(run.calls))
	return g
}

// spansOf returns the spans of the calls that passed.
func spansOf(calls []fleetCall) (spans []span) {
	for _, c := range calls {
		if c.allowed {
			spans = append(spans, span{int64(c.begin), int64(c.answer)})
		}
	}
	return spans
}
