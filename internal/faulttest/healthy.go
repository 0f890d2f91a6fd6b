package faulttest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/stretchr/testify/require"
)

// Pool bounds the connections of a client; 0 is go-redis's default. A Budget of
// 0 is that of the test.
type Pool struct {
	Size, MaxActive int
	Budget          time.Duration
}

// Healthy are tests of healthy servers behind a faulty network, client or
// caller: the store goes on deciding, and no circuit opens.
type Healthy struct {
	Network Network
	Open    func(Pool) backend.Store // a store with a new client, through the network
	Idle    func(n int)              // makes n idle connections in the client of the last Open; nil: callers do
	Hold    func(n int)              // holds n connections of that client until the test ends; nil: it has no other user
}

// link is the round-trip time of a distant server.
var link = redistest.Delay(20 * time.Millisecond)

// allow calls on a key of the caller. What it gets is in Observed.
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
	} else { // slow replies make callers open more connections
		h.Network.Set(link)
		Loop(128, 300*time.Millisecond, 0, allow(l, 20))
		h.Network.Set(redistest.Pass)
	}
	defer time.AfterFunc(200*time.Millisecond, h.Network.Forget).Stop()
	Loop(Callers, 2500*time.Millisecond, 2*time.Millisecond, allow(l, 20))
	require.Positive(t, seen.Undecided.Load())
	t.Logf("%d idle: undecided for %v, %d openings, %d calls", idle, seen.outage(), seen.Openings.Load(), seen.Undecided.Load())
	require.LessOrEqual(t, seen.outage(), 2*time.Second)
	require.LessOrEqual(t, seen.Openings.Load(), int64(2))
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
	h.Network.Set(redistest.Draw(func() redistest.Fault {
		switch n.Add(1) % 200 {
		case 40, 80, 120, 160:
			return redistest.LoseReply
		case 20:
			return redistest.HalfReply
		case 100:
			return redistest.ResetAfterRequest
		}
		return redistest.Pass
	}))
	defer h.Network.Set(redistest.Pass)
	Loop(clients*callers, d, 2*time.Millisecond, func(ctx context.Context, c, i int) { allow(ls[c%clients], 20)(ctx, c, i) })
	t.Logf("%d clients of %d callers: %.2f %% of %d decided by the store, %d openings",
		clients, callers, 100*seen.share(), seen.Store.Load()+seen.Undecided.Load(), seen.Openings.Load())
	require.GreaterOrEqual(t, seen.share(), 0.94, seen.Why())
	require.Zero(t, seen.Openings.Load(), seen.Why())
}

// FewConnections has more callers than the client may have connections, while
// the application uses most of them.
func (h *Healthy) FewConnections(t *testing.T) {
	for _, p := range []Pool{{MaxActive: 4}, {MaxActive: 2}, {Size: 4, MaxActive: 4}, {Size: 4}} {
		for _, held := range []int{0, 3} {
			if held > 0 && h.Hold == nil || held >= max(p.MaxActive, p.Size) {
				continue
			}
			for _, callers := range []int{64, 8, 24, 4}[:redistest.Steps(2, 4)] {
				var seen Observed
				l := seen.Limiter(t, h.Open(p), Bucket)
				if held > 0 {
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

// Impatient is the result of ImpatientCallers: medians of ratios.
type Impatient struct {
	Goodput float64 // decisions by the store, to those of patient callers in the same run
	Median  float64 // duration of other callers' calls, to that beside patient callers
	Left    float64 // keys sent for callers that had left, of all
}

// ImpatientCallers alternates loads with deadlines of 10 s and of 2 ms. sent
// returns how many keys the server has read and written.
func (h *Healthy) ImpatientCallers(
	t *testing.T, callers, turns int, d time.Duration, sent func() (read, wrote int64),
) Impatient {
	var goodput, median, left []float64
	for range turns {
		patient, besidePatient := h.impatient(t, callers, d, 10*time.Second)
		read, wrote := sent()
		decided, beside := h.impatient(t, callers, d, 2*time.Millisecond)
		nowRead, nowWrote := sent()
		goodput = append(goodput, float64(decided)/float64(patient))
		median = append(median, float64(beside)/float64(besidePatient))
		left = append(left, 1-float64(nowWrote-wrote)/float64(nowRead-read))
		t.Logf("%d callers: %d decisions, %d with deadlines of 10 s; beside them p50 %v and %v; for callers that had left %.2f %%",
			callers, decided, patient, beside, besidePatient, 100*left[len(left)-1])
	}
	return Impatient{Median(goodput), Median(median), Median(left)}
}

// impatient runs one load and returns what the store decided of it, and the
// median of eight callers beside it whose deadline is the budget's.
func (h *Healthy) impatient(t *testing.T, callers int, d, deadline time.Duration) (decided int64, beside time.Duration) {
	var seen Observed
	var pool Pool
	if !redistest.Long() { // figures are not asked for, and the machine may be busy
		pool.Budget = 5 * time.Second
	}
	l := seen.Limiter(t, h.Open(pool), Bucket)
	others, err := l.With(Bucket) // on the same store, and so in the same batches
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

// LongLink has many callers over a link of 20 ms.
func (h *Healthy) LongLink(t *testing.T, callers int, d time.Duration) (perSecond float64) {
	var seen Observed
	l := seen.Limiter(t, h.Open(Pool{Size: 200}), Bucket)
	h.Network.Set(link)
	defer h.Network.Set(redistest.Pass)
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
	require.Zero(t, seen.Openings.Load(), seen.Why())
	return perSecond
}
