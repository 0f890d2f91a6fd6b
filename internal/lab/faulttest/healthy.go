package faulttest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// Pool bounds the connections of a client; 0 is go-redis's default. A Budget of
// 0 is that of the test.
type Pool struct {
	Size, MaxActive int
	Budget          time.Duration
	DisableBatching bool
}

// Healthy are tests of healthy servers behind a faulty network, client or
// caller: the store goes on deciding, and no circuit opens.
type Healthy struct {
	Network Network
	Open    func(Pool) backend.Store   // a store with a new client, through the network
	Idle    func(n int)                // makes n idle connections in the client of the last Open; nil: callers do
	Hold    func(n int)                // holds n connections of it until the test ends; nil: it has no other user
	Sent    func() (read, wrote int64) // keys that the servers have read and written; for ImpatientCallers
}

// link is the round-trip time of a distant server: a thousand times that of the
// server under test.
var link = redistest.Draw(func() redistest.Fault { return redistest.Delay(20 * time.Millisecond) })

// allow calls on one of the caller's keys. It drops the result, since the limiter's
// Observed counts it.
func allow(l *headgate.Limiter, keys int) func(context.Context, int, int) {
	return func(ctx context.Context, caller, i int) { _, _ = l.Allow(ctx, Key(caller, i, keys)) }
}

// DeadConnections forgets all connections under 64 callers, with the given
// number of idle ones: the store decides again within 2 s of the first failure.
func (h *Healthy) DeadConnections(t *testing.T, idle int) {
	var seen Observed
	l := seen.Limiter(t, h.Open(Pool{Size: idle}), Bucket)
	if h.Idle != nil {
		h.Idle(idle)
	} else {
		// Only calls that wait for replies make a client open more connections.
		h.Network.Set(link)
		Loop(128, 300*time.Millisecond, 0, allow(l, 20))
		h.Network.Set(redistest.Pass)
	}
	defer time.AfterFunc(200*time.Millisecond, h.Network.Forget).Stop()
	Loop(Callers, 2500*time.Millisecond, 2*time.Millisecond, allow(l, 20))
	require.Positive(t, seen.Undecided.Load())
	outage := time.Duration(seen.last.Load() - seen.first.Load())
	t.Logf("%d idle: undecided for %v, %d openings, %d calls",
		idle, outage, seen.Openings.Load(), seen.Undecided.Load())
	require.LessOrEqual(t, outage, 2*time.Second)
	// Silence looks like an outage until new connections answer, so a circuit may
	// open: once, and once more while a probe meets a dead connection.
	require.LessOrEqual(t, seen.Openings.Load(), int64(2))
}

// Lossy swallows 2 % of n replies, and cuts and resets 0.5 % each.
func Lossy(n *atomic.Int64) redistest.Fault {
	return redistest.Draw(func() redistest.Fault {
		switch n.Add(1) % 200 {
		case 40, 80, 120, 160:
			return redistest.LoseReply
		case 20:
			return redistest.HalfReply
		case 100:
			return redistest.ResetAfterRequest
		}
		return redistest.Pass
	})
}

// LostReplies swallows 2 % of the replies on connections that stay open, and cuts
// and resets 0.5 % each: the store decides all others.
func (h *Healthy) LostReplies(t *testing.T, clients, callers int, d time.Duration) {
	var seen Observed
	var ls []*headgate.Limiter
	budget := time.Duration(redistest.Steps(2, 0)) * time.Second // a lost reply is the subject, not a late one
	for range clients {
		ls = append(ls, seen.Limiter(t, h.Open(Pool{Budget: budget}), Bucket))
	}
	var n atomic.Int64
	h.Network.Set(Lossy(&n))
	defer h.Network.Set(redistest.Pass)
	for turns := 0; turns == 0 || n.Load() < 400 && turns < 20; turns++ { // few replies may all be the lost ones
		Loop(clients*callers, d, 2*time.Millisecond, func(ctx context.Context, c, i int) {
			allow(ls[c%clients], 20)(ctx, c, i)
		})
	}
	t.Logf("%d clients of %d callers: %.2f %% of %d decided by the store, %d openings",
		clients, callers, 100*seen.share(), seen.Store.Load()+seen.Undecided.Load(), seen.Openings.Load())
	// A lost reply is that of all calls of its batch. Yet 3 % of the replies are
	// no more than twice that share of the calls, or thrice on a busy machine.
	require.GreaterOrEqual(t, seen.share(), float64(redistest.Steps(91, 94))/100, seen.Why())
	require.Zero(t, seen.Openings.Load(), seen.Why())
}

// FewConnections has more callers than the client may have connections, while
// the application uses most of them. No call may fail for want of a connection:
// the store waits for one within the budget.
func (h *Healthy) FewConnections(t *testing.T) {
	for _, p := range []Pool{{MaxActive: 4}, {MaxActive: 2}, {Size: 4, MaxActive: 4}, {Size: 4}} {
		for _, held := range []int{0, 3} {
			if held > 0 && h.Hold == nil || held >= max(p.MaxActive, p.Size) {
				continue
			}
			for _, callers := range []int{64, 8, 24, 4}[:redistest.Steps(2, 4)] {
				var seen Observed
				p.Budget = time.Duration(redistest.Steps(2, 0)) * time.Second // a late call is not the subject
				l := seen.Limiter(t, h.Open(p), Bucket)
				if held > 0 { // after the first decisions, or they could lack a connection
					h.Hold(held)
				}
				Loop(callers, 150*time.Millisecond, 0, allow(l, 20))
				require.Zero(t, seen.Undecided.Load(), "%+v, %d held, %d callers, of %d: %s",
					p, held, callers, seen.Store.Load(), seen.Why())
				require.Positive(t, seen.Store.Load())
			}
		}
	}
}

// ImpatientCallers alternates loads with deadlines of 10 s and of 2 ms. It returns
// medians of three ratios, each within one turn. goodput is the decisions by the store
// to those of patient callers. median is the duration of other callers' calls to that
// beside patient ones. left is the keys sent for callers that had left to all keys sent.
func (h *Healthy) ImpatientCallers(t *testing.T, callers, turns int, d time.Duration) (goodput, median, left float64) {
	// Ratios within one turn: the speed of a busy machine differs between turns.
	var goodputs, medians, lefts []float64
	for range turns {
		patient, besidePatient := h.impatient(t, callers, d, 10*time.Second)
		read, wrote := h.Sent()
		decided, beside := h.impatient(t, callers, d, 2*time.Millisecond)
		nowRead, nowWrote := h.Sent()
		goodputs = append(goodputs, float64(decided)/float64(patient))
		medians = append(medians, float64(beside)/float64(besidePatient))
		lefts = append(lefts, 1-float64(nowWrote-wrote)/float64(nowRead-read))
		t.Logf("%d callers: %d decisions, %d with deadlines of 10 s; p50 beside them %v and %v; sent in vain %.2f %%",
			callers, decided, patient, beside, besidePatient, 100*lefts[len(lefts)-1])
	}
	return Median(goodputs), Median(medians), Median(lefts)
}

// impatient runs one load and returns what the store decided of it, and the
// median of eight callers beside it whose deadline is the budget's.
func (h *Healthy) impatient(t *testing.T, callers int, d, deadline time.Duration) (n int64, beside time.Duration) {
	var seen Observed
	// Where no figures are asked for the machine may be busy, and the budget is long.
	l := seen.Limiter(t, h.Open(Pool{Budget: time.Duration(redistest.Steps(5, 0)) * time.Second}), Bucket)
	// On the same store, and so in the same batches: whether impatient callers delay
	// patient ones is the question.
	others, err := l.With(Bucket)
	require.NoError(t, err)
	var took Durations
	wait := Go(1, func(int) {
		Loop(8, d, time.Millisecond, func(ctx context.Context, c, i int) {
			begin := time.Now()
			allow(others, 20)(ctx, callers+c, i)
			took.Since(begin)
		})
	})
	Loop(callers, d, time.Millisecond, func(ctx context.Context, c, i int) {
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		allow(l, 20)(ctx, c, i)
	})
	wait()
	require.Zero(t, seen.Openings.Load(), seen.Why())
	return seen.Store.Load(), took.Median()
}

// LongLink has many callers over a link of 20 ms and returns their decisions
// per second. A store that sends one batch at a time would be bound by the
// link. A circuit that takes a slow reply for a failure would open, each time. Beside
// other tests a machine that does not run the callers for long may open one by chance, so
// it gets a second try there.
func (h *Healthy) LongLink(t *testing.T, callers int, d time.Duration) (perSecond float64) {
	tries := redistest.Steps(2, 1)
	for try := 1; ; try++ {
		seen := &Observed{}
		perSecond = h.longLink(t, seen, callers, d)
		if seen.Openings.Load() == 0 || try == tries {
			require.Zero(t, seen.Openings.Load(), seen.Why())
			return perSecond
		}
	}
}

func (h *Healthy) longLink(t *testing.T, seen *Observed, callers int, d time.Duration) (perSecond float64) {
	h.Network.Set(link) // before the first call: a link that grows shows after ten seconds
	defer h.Network.Set(redistest.Pass)
	l := seen.Limiter(t, h.Open(Pool{Size: 200}), Bucket)
	run := func(d time.Duration) {
		Loop(callers, d, 10*time.Millisecond, func(ctx context.Context, c, i int) {
			if i == 0 { // callers join over half a second, not in one burst
				time.Sleep(time.Duration(c) * 500 * time.Millisecond / time.Duration(callers))
			}
			allow(l, 10)(ctx, c, i)
		})
	}
	run(time.Second) // opens the connections
	before, undecided := seen.Store.Load(), seen.Undecided.Load()
	begin := time.Now()
	run(d)
	decided := seen.Store.Load() - before
	perSecond = float64(decided) / time.Since(begin).Seconds()
	t.Logf("%d callers: %.0f decisions per second, %d of %d undecided, %d openings",
		callers, perSecond, seen.Undecided.Load()-undecided, decided, seen.Openings.Load())
	return perSecond
}

// Unbatched has more callers than connections over a link of 20 ms, and each call makes
// a round trip of its own. It returns the share of the decisions that the connections
// have time for. A call that waits for a connection and then has no time left for the
// link would close that connection for nothing.
func (h *Healthy) Unbatched(t *testing.T, callers, connections int, d time.Duration) (share float64) {
	h.Network.Set(link)
	defer h.Network.Set(redistest.Pass)
	var seen Observed
	l := seen.Limiter(t, h.Open(Pool{Size: connections, DisableBatching: true}), Bucket)
	var decided, perhaps atomic.Int64
	begin := time.Now()
	Loop(callers, d, 0, func(ctx context.Context, c, i int) {
		switch d, err := l.Allow(ctx, Key(c, i, 20)); {
		case err == nil && d.Err == nil:
			decided.Add(1)
		case errors.Is(d.Err, headgate.ErrPerhapsCounted):
			perhaps.Add(1)
			fallthrough
		default:
			time.Sleep(time.Millisecond)
		}
	})
	share = float64(decided.Load()) * 0.020 / time.Since(begin).Seconds() / float64(connections)
	t.Logf("%d callers, %d connections: %.2f of what these have time for, %d decided, %d undecided, %d perhaps counted, %d openings",
		callers, connections, share, decided.Load(), seen.Undecided.Load(), perhaps.Load(), seen.Openings.Load())
	require.Zero(t, seen.Openings.Load(), seen.Why())
	require.LessOrEqual(t, perhaps.Load(), decided.Load(), "calls are sent that can't be answered in time")
	return share
}

// Observed counts what the callers of its limiters got. The zero value is ready.
// It is safe for concurrent use.
type Observed struct {
	Store, Undecided, Openings atomic.Int64 // decisions by the store, other decisions, circuits that opened
	first, last                atomic.Int64 // instants of undecided calls, in Unix nanoseconds
	cause                      atomic.Value // a string, of the first undecided call
}

// Bucket allows every call of a test.
var Bucket = closed("bucket", algo.TokenBucket(algo.PerSecond(1<<20), 1<<20))

// Key is one of n keys of a caller. Callers share no key, so that they don't merge
// into one call.
func Key(caller, i, n int) string { return fmt.Sprintf("c%d/%d", caller, i%n) }

// Limiter returns a limiter on s after its first decisions, with all counts at
// zero. Connections, scripts and slots are there, and are not the subject.
func (o *Observed) Limiter(t testing.TB, s backend.Store, ps ...headgate.Policy) *headgate.Limiter {
	l, err := headgate.New(s, ps, &headgate.Options{Observer: o.Observe})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		for i := range 20 { // keys of all nodes
			if d, err := l.Allow(context.Background(), Key(0, i, 20)); err != nil || d.Err != nil {
				return false
			}
		}
		return true
	}, 20*time.Second, time.Millisecond)
	for _, n := range []*atomic.Int64{&o.Store, &o.Undecided, &o.Openings, &o.first} {
		n.Store(0)
	}
	return l
}

// Observe is the headgate.Options.Observer.
func (o *Observed) Observe(e headgate.Event) {
	switch d := &e.Decision; {
	case e.Type == headgate.EventCircuit && e.Circuit.To == "open":
		o.Openings.Add(1)
		o.cause.Store(fmt.Sprint("opened by ", e.Err))
	case e.Type != headgate.EventDecision || e.Err != nil:
	case d.Source == headgate.FromStore || d.Source == headgate.FromDenyCache: // which has it from the store
		o.Store.Add(1)
	default:
		o.Undecided.Add(1)
		at := time.Now().UnixNano()
		o.last.Store(at)
		if o.first.CompareAndSwap(0, at) {
			o.cause.Store(fmt.Sprint(d.Err))
		}
	}
}

// Why is the error of the first undecided call, empty if there is none.
func (o *Observed) Why() string {
	s, _ := o.cause.Load().(string)
	return s
}

// share is the share of calls that the store decided. Without a call it is zero,
// so that a load that never ran fails its test.
func (o *Observed) share() float64 {
	s, u := float64(o.Store.Load()), float64(o.Undecided.Load())
	return s / max(s+u, 1)
}
