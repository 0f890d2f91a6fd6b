package faulttest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/stretchr/testify/require"
)

// Network is what lies between a store and its servers.
type Network interface {
	Faults
	Draw(func() redistest.Fault)
	Forget()
}

// Pool bounds the connections of a client; 0 is go-redis' default, and for the
// budget that of the test.
type Pool struct {
	Size, MaxActive int
	Budget          time.Duration
}

// Healthy are tests of servers that are well, while the network, the client or
// the callers are not: the servers go on deciding, and no circuit opens.
type Healthy struct {
	Network Network
	Open    func(Pool) backend.Store // through the network, made anew, with go-redis' defaults else
	Idle    func(n int)              // makes n idle connections in the client of the last Open; nil: callers do
	Hold    func(n int)              // holds n connections of that client until the test ends; nil: it has no other user
}

// counts is what callers got.
type counts struct {
	store, undecided, openings atomic.Int64
	first, last                atomic.Int64           // instants of undecided calls, in nanoseconds since begin
	cause                      atomic.Pointer[string] // of one of them
	begin                      time.Time
}

// observe is the observer.
func (c *counts) observe(e headgate.Event) {
	switch {
	case e.Type == headgate.EventCircuit && e.Circuit.To == "open":
		c.openings.Add(1)
	case e.Type == headgate.EventDecision && e.Err == nil:
		c.decided(&e.Decision)
	}
}

func (c *counts) decided(d *headgate.Decision) {
	if d.Source == headgate.FromStore || d.Source == headgate.FromDenyCache {
		c.store.Add(1)
		return
	}
	c.undecided.Add(1)
	at := int64(time.Since(c.begin))
	c.last.Store(at)
	if c.first.CompareAndSwap(0, at) {
		cause := fmt.Sprint(d.Err)
		c.cause.Store(&cause)
	}
}

// why is the cause of the first undecided call.
func (c *counts) why() string {
	if s := c.cause.Load(); s != nil {
		return *s
	}
	return "none"
}

// share is the part of the calls that the store decided.
func (c *counts) share() float64 {
	s, u := float64(c.store.Load()), float64(c.undecided.Load())
	return s / max(s+u, 1)
}

// bucket is a policy that passes every call of a test.
var bucket = headgate.Policy{Name: "bucket", Algorithm: algo.TokenBucket(algo.PerSecond(1<<20), 1<<20), OnFailure: headgate.FailClosed}

// limiter returns a limiter on s that is observed.
func (c *counts) limiter(t testing.TB, s backend.Store, ps ...headgate.Policy) *headgate.Limiter {
	l, err := headgate.New(s, ps, &headgate.Options{Observer: c.observe})
	require.NoError(t, err)
	return l
}

// loop calls from so many callers until the time is over, with contexts that can
// end.
func loop(callers int, d, pause time.Duration, call func(ctx context.Context, caller, i int)) {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	until := time.Now().Add(d)
	var running sync.WaitGroup
	for c := range callers {
		running.Add(1)
		go func() {
			defer running.Done()
			for i := 0; time.Now().Before(until); i++ {
				call(ctx, c, i)
				time.Sleep(pause)
			}
		}()
	}
	running.Wait()
}

// key is one of n keys of a caller.
func key(caller, i, n int) string { return fmt.Sprintf("c%d/%d", caller, i%n) }

// warm calls until all limiters decide: connections, scripts and slots are there
// then. It forgets what was counted.
func warm(t *testing.T, seen *counts, ls ...*headgate.Limiter) {
	for _, l := range ls {
		require.Eventually(t, func() bool {
			for i := range 20 { // keys of all nodes
				if d, err := l.Allow(context.Background(), key(0, i, 20)); err != nil || d.Err != nil {
					return false
				}
			}
			return true
		}, 20*time.Second, time.Millisecond)
	}
	seen.store.Store(0)
	seen.undecided.Store(0)
	seen.openings.Store(0)
	seen.first.Store(0)
}

// DeadConnections forgets all connections under 64 callers, with so many idle
// ones: the store decides again within 2 s of the first failure.
func (h *Healthy) DeadConnections(t *testing.T, idle int) {
	seen := &counts{begin: time.Now()}
	l := seen.limiter(t, h.Open(Pool{Size: idle}), bucket)
	warm(t, seen, l)
	if h.Idle != nil {
		h.Idle(idle)
	} else {
		h.Network.Draw(func() redistest.Fault { return redistest.Delay(20 * time.Millisecond) })
		loop(128, 300*time.Millisecond, 0, func(ctx context.Context, c, i int) { _, _ = l.Allow(ctx, key(c, i, 20)) })
		h.Network.Set(redistest.Pass)
	}
	defer time.AfterFunc(200*time.Millisecond, h.Network.Forget).Stop()
	loop(Callers, 2500*time.Millisecond, 2*time.Millisecond, func(ctx context.Context, c, i int) { _, _ = l.Allow(ctx, key(c, i, 20)) })
	require.Positive(t, seen.undecided.Load())
	took := time.Duration(seen.last.Load() - seen.first.Load())
	t.Logf("%d idle: undecided for %v, %d openings, %d calls", idle, took, seen.openings.Load(), seen.undecided.Load())
	require.LessOrEqual(t, took, 2*time.Second)
	require.LessOrEqual(t, seen.openings.Load(), int64(2))
}

// LostReplies swallows 2 % of the replies on connections that stay open, and cuts
// and resets 0.5 % each: the store decides all others.
func (h *Healthy) LostReplies(t *testing.T, clients, callers int, d time.Duration) {
	seen := &counts{begin: time.Now()}
	var ls []*headgate.Limiter
	budget := time.Duration(redistest.Steps(2, 0)) * time.Second // a lost reply is the subject, not a late one
	for range clients {
		ls = append(ls, seen.limiter(t, h.Open(Pool{Budget: budget}), bucket))
	}
	warm(t, seen, ls...)
	var n atomic.Int64
	h.Network.Draw(func() redistest.Fault {
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
	defer h.Network.Set(redistest.Pass)
	loop(clients*callers, d, 2*time.Millisecond, func(ctx context.Context, c, i int) { _, _ = ls[c%clients].Allow(ctx, key(c, i, 20)) })
	t.Logf("%d clients of %d callers: %.2f %% of %d decided by the store, %d openings",
		clients, callers, 100*seen.share(), seen.store.Load()+seen.undecided.Load(), seen.openings.Load())
	require.GreaterOrEqual(t, seen.share(), 0.94, seen.why())
	require.Zero(t, seen.openings.Load(), seen.why())
}

// FewConnections calls from more callers than the client may have connections,
// while the application uses most of them.
func (h *Healthy) FewConnections(t *testing.T) {
	for _, p := range []Pool{{MaxActive: 4}, {MaxActive: 2}, {Size: 4, MaxActive: 4}, {Size: 4}} {
		for _, held := range []int{0, 3} {
			most := max(p.MaxActive, p.Size)
			if held > 0 && h.Hold == nil || held >= most {
				continue
			}
			for _, callers := range []int{64, 8, 24, 4}[:redistest.Steps(2, 4)] {
				seen := &counts{begin: time.Now()}
				l := seen.limiter(t, h.Open(p), bucket)
				warm(t, seen, l)
				if held > 0 {
					h.Hold(held)
				}
				loop(callers, 150*time.Millisecond, 0, func(ctx context.Context, c, i int) { _, _ = l.Allow(ctx, key(c, i, 20)) })
				require.Zero(t, seen.undecided.Load(), "%+v, %d held, %d callers, of %d: %s", p, held, callers, seen.store.Load(), seen.why())
				require.Positive(t, seen.store.Load())
			}
		}
	}
}

// Impatient is what impatient callers got, and others beside them.
type Impatient struct {
	Goodput float64 // decisions by the store, of those that patient callers got in the same run
	Median  float64 // of others' calls, of those beside patient callers
	Left    float64 // keys sent for callers that had left, of all
}

// ImpatientCallers calls with deadlines of 2 ms, by turns with the same load of
// deadlines of 10 s. sent returns how many keys the server read and wrote.
func (h *Healthy) ImpatientCallers(t *testing.T, callers, turns int, d time.Duration, sent func() (read, wrote int64)) (got Impatient) {
	var goodput, median, left []float64
	for range turns {
		patient, besidePatient := h.impatient(t, callers, d, 10*time.Second)
		read, wrote := sent()
		decided, beside := h.impatient(t, callers, d, 2*time.Millisecond)
		nowRead, nowWrote := sent()
		goodput = append(goodput, float64(decided)/float64(patient))
		median = append(median, float64(beside)/float64(besidePatient))
		left = append(left, 1-float64(nowWrote-wrote)/float64(nowRead-read))
		t.Logf("%d callers: %d decisions, %d with deadlines of 10 s; beside them p50 %v and %v; keys sent for callers that had left %.2f %%",
			callers, decided, patient, beside, besidePatient, 100*left[len(left)-1])
	}
	return Impatient{middle(goodput), middle(median), middle(left)}
}

func middle(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// impatient runs one load and returns what the store decided of it, and the
// median of eight callers beside it whose deadline is the budget's.
func (h *Healthy) impatient(t *testing.T, callers int, d, deadline time.Duration) (decided int64, beside time.Duration) {
	seen := &counts{begin: time.Now()}
	l := seen.limiter(t, h.Open(Pool{}), bucket)
	warm(t, seen, l)
	others, err := l.With(bucket) // on the same store, and so the same queue
	require.NoError(t, err)
	var mu sync.Mutex
	var waits []time.Duration
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		loop(8, d, time.Millisecond, func(ctx context.Context, c, i int) {
			begin := time.Now()
			_, _ = others.Allow(ctx, key(callers+c, i, 20))
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, time.Since(begin))
		})
	}()
	loop(callers, d, time.Millisecond, func(ctx context.Context, c, i int) {
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		_, _ = l.Allow(ctx, key(c, i, 20))
	})
	running.Wait()
	slices.Sort(waits)
	require.Zero(t, seen.openings.Load(), seen.why())
	return seen.store.Load(), waits[len(waits)/2]
}

// LongLink calls from many callers over a link of 20 ms.
func (h *Healthy) LongLink(t *testing.T, callers int, d time.Duration) (perSecond float64) {
	seen := &counts{begin: time.Now()}
	l := seen.limiter(t, h.Open(Pool{Size: 200}), bucket)
	warm(t, seen, l)
	h.Network.Draw(func() redistest.Fault { return redistest.Delay(20 * time.Millisecond) })
	defer h.Network.Set(redistest.Pass)
	run := func(d time.Duration) {
		loop(callers, d, 10*time.Millisecond, func(ctx context.Context, c, i int) {
			if i == 0 {
				time.Sleep(time.Duration(c) * 500 * time.Millisecond / time.Duration(callers)) // callers join over half a second
			}
			_, _ = l.Allow(ctx, key(c, i, 10))
		})
	}
	run(time.Second) // connections, and the script
	before, undecided := seen.store.Load(), seen.undecided.Load()
	begin := time.Now()
	run(d)
	perSecond = float64(seen.store.Load()-before) / time.Since(begin).Seconds()
	t.Logf("%d callers: %.0f decisions per second, %d of %d undecided, %d openings",
		callers, perSecond, seen.undecided.Load()-undecided, seen.store.Load()-before, seen.openings.Load())
	require.Zero(t, seen.openings.Load(), seen.why())
	return perSecond
}

// CheapBesideDear calls a policy that costs the server little beside callers of
// one that costs it as much as a policy can. It returns the cheap one's median.
func (h *Healthy) CheapBesideDear(t *testing.T, dear int, d time.Duration) time.Duration {
	seen := &counts{begin: time.Now()}
	s := h.Open(Pool{})
	cheap := seen.limiter(t, s, bucket)
	warm(t, seen, cheap)
	costly := seen.limiter(t, s, headgate.Policy{Name: "costly",
		Algorithm: algo.BucketedWindow(algo.PerHour(1<<30), algo.MaxBuckets), OnFailure: headgate.FailClosed})
	var mu sync.Mutex
	var waits []time.Duration
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		loop(dear, d, 0, func(ctx context.Context, c, i int) { _, _ = costly.Allow(ctx, key(1000+c, i, 5)) })
	}()
	loop(4, d, time.Millisecond, func(ctx context.Context, c, i int) {
		begin := time.Now()
		_, _ = cheap.Allow(ctx, key(c, i, 50))
		mu.Lock()
		defer mu.Unlock()
		waits = append(waits, time.Since(begin))
	})
	running.Wait()
	slices.Sort(waits)
	t.Logf("beside %d costly callers: p50 %v, %d openings, %d undecided", dear, waits[len(waits)/2], seen.openings.Load(), seen.undecided.Load())
	require.Zero(t, seen.openings.Load(), seen.why())
	return waits[len(waits)/2]
}

// CancellingCallers cancels calls on spread keys after up to 2 ms: callers that
// left free their place at once.
func (h *Healthy) CancellingCallers(t *testing.T, callers int, d time.Duration) {
	seen := &counts{begin: time.Now()}
	spread := bucket
	spread.Shards = 64
	l := seen.limiter(t, h.Open(Pool{}), spread)
	warm(t, seen, l)
	loop(callers, d, time.Millisecond, func(ctx context.Context, c, i int) {
		ctx, cancel := context.WithCancel(ctx)
		timer := time.AfterFunc(time.Duration((c+i)%2000)*time.Microsecond, cancel)
		defer timer.Stop()
		defer cancel()
		_, _ = l.Allow(ctx, fmt.Sprint("k", i%10))
	})
	require.Eventually(t, func() bool {
		d, err := l.Allow(context.Background(), "after")
		return err == nil && d.Source == headgate.FromStore
	}, 2*time.Second, 10*time.Millisecond)
}

// DenyCacheOverLink calls a bucket at twice its rate over a link, by turns with the
// deny cache and without. It returns the median of the calls that pass with the
// cache, as a ratio to that without.
func (h *Healthy) DenyCacheOverLink(t *testing.T, link time.Duration, turns int, d time.Duration) float64 {
	h.Network.Draw(func() redistest.Fault { return redistest.Delay(link) })
	defer h.Network.Set(redistest.Pass)
	drip := headgate.Policy{Name: "drip", Algorithm: algo.TokenBucket(algo.PerSecond(200), 10), OnFailure: headgate.FailClosed}
	var ratios []float64
	for turn := range turns {
		var medians [2]time.Duration
		for i, denyCacheTTL := range []time.Duration{0, -1} {
			seen := &counts{begin: time.Now()}
			l, err := headgate.New(h.Open(Pool{}), []headgate.Policy{drip}, &headgate.Options{Observer: seen.observe, DenyCacheTTL: denyCacheTTL})
			require.NoError(t, err)
			medians[i] = passing(l, fmt.Sprint("k", turn, i), d)
			require.Zero(t, seen.undecided.Load(), "%v, DenyCacheTTL %v: %s", link, denyCacheTTL, seen.why())
		}
		ratios = append(ratios, float64(medians[0])/float64(medians[1]))
		t.Logf("link %v: passing calls' p50 %v with the cache, %v without", link, medians[0], medians[1])
	}
	return middle(ratios)
}

// passing returns the median of the calls that pass, of 20 callers with 20 calls
// per second each.
func passing(l *headgate.Limiter, key string, d time.Duration) time.Duration {
	_, _ = l.Allow(context.Background(), "warm")
	var mu sync.Mutex
	var waits []time.Duration
	loop(20, d, 50*time.Millisecond, func(ctx context.Context, c, i int) {
		if i == 0 {
			time.Sleep(time.Duration(c) * 50 * time.Millisecond / 20)
		}
		begin := time.Now()
		if d, err := l.Allow(ctx, key); err == nil && d.Allowed {
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, time.Since(begin))
		}
	})
	slices.Sort(waits)
	return waits[len(waits)/2]
}
