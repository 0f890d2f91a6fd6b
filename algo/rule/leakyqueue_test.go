package rule_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/oracle"
	"github.com/stretchr/testify/require"
)

// queue is a key of a LeakyQueue.
type queue struct {
	a     algo.Algorithm
	words []int64
}

func newQueue(a algo.Algorithm) *queue { return &queue{a, make([]int64, a.Words())} }

// take returns how long a call of n units waits, in µs; -1: it is denied. The charge may be given
// back.
func (q *queue) take(now, n int64) (delay int64, c rule.Charge) {
	v := q.a.View(q.words, now)
	if !q.a.Fits(&v, n) {
		return -1, c
	}
	q.words = q.a.Reserve(q.words, &v, n)
	return q.a.Delay(&v, 0), q.a.Charged(q.words, &v)
}

// nginx is the rule of limit_req as its documentation has it, in thousandths of a request. The
// first request has no excess.
type nginx struct{ rate, burst, excess, last int64 }

func (x *nginx) take(ms int64) (delay int64) {
	excess := max(0, x.excess-x.rate*(ms-x.last)+1000)
	if x.last == 0 {
		excess = 0
	}
	if excess > 1000*x.burst {
		return -1
	}
	x.excess, x.last = excess, ms
	return excess / x.rate // a rate of r/s is r thousandths per millisecond
}

// TestQueueIsLimitReq: at rates of which 2^-15 of a unit is a measure, a burst of one delays as
// nginx does. At others the two differ by less than a unit.
func TestQueueIsLimitReq(t *testing.T) {
	redistest.Plain(t)
	r := rand.New(rand.NewPCG(1, 1))
	for _, rate := range []int64{125, 250, 375, 1000, 3, 10, 30, 100, 777} {
		burst := 3 * (1 + r.Int64N(20))
		exact, passed, denied := rate%125 == 0, 0, 0
		var q *queue
		var x nginx
		now := int64(1_745_000_145_000)
		for i := range 100_000 {
			if i == 0 || !exact && i%1000 == 0 {
				q, x = newQueue(algo.LeakyQueue(algo.PerSecond(rate), 1, time.Duration(burst)*time.Second/time.Duration(rate)/time.Microsecond*time.Microsecond)), nginx{rate: rate, burst: burst}
			}
			now += r.Int64N(2*900/rate + 1)
			if r.IntN(200) == 0 {
				now += r.Int64N(20_000 / rate)
			}
			got, _ := q.take(now*1000, 1)
			switch want := x.take(now); {
			case exact && got < 0 || exact && want < 0:
				require.Equal(t, want, got, "%d/s, arrival %d", rate, i)
			case exact:
				require.Equal(t, want, got/1000, "%d/s, arrival %d", rate, i)
			case got >= 0 && want >= 0:
				require.InDelta(t, want*1000, got, float64(1_000_000/rate+1000), "%d/s, arrival %d", rate, i)
			}
			if passed++; got < 0 {
				passed--
				denied++
			}
		}
		require.Greater(t, min(passed, denied), 1000, "%d/s", rate)
	}
}

// TestQueuedCallersObey: callers that go on after their delay never do more than burst + rate*t,
// whoever cancels, comes late or takes on.
func TestQueuedCallersObey(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		rate, burst := algo.Per(1+r.Int64N(1000), []time.Duration{time.Second, 7 * time.Second, time.Minute}[r.IntN(3)]), 1+r.Int64N(9)
		unit := max(1, rate.Period.Microseconds()/rate.Events)
		a := algo.LeakyQueue(rate, burst, time.Duration(max(1000, r.Int64N(20*unit)))*time.Microsecond)
		require.NoError(t, a.Check())
		q, gone, decided := newQueue(a), oracle.New(algo.TokenBucket(rate, burst)), oracle.New(a)
		now, waited, longest := int64(1_745_000_145_000_000), 0, int64(0)
		_, most, _, _, _ := a.Numbers(0)
		type held struct {
			at, until, n int64
			charge       rule.Charge
		}
		var all []held
		for range 5000 {
			now += r.Int64N(1 + unit*int64(1+r.IntN(3)))
			n := 1 + r.Int64N(burst)
			delay, c := q.take(now, n)
			if delay >= 0 {
				all = append(all, held{now, now + delay, n, c})
				longest = max(longest, delay)
				if delay > 0 {
					waited++
				}
			}
			if len(all) > 0 && r.IntN(5) == 0 { // the last one or an earlier one leaves the queue
				i := max(0, len(all)-1-r.IntN(3))
				q.words = q.a.GiveBack(q.words, now, all[i].charge, all[i].n)
				all = append(all[:i], all[i+1:]...)
			}
		}
		gone.Late(time.Microsecond) // a delay is rounded up to whole ones
		for _, h := range all {
			decided.Add(h.at, h.n)
			if r.IntN(10) > 0 { // else it is late
				gone.Add(h.until, h.n)
			}
		}
		require.NoError(t, gone.Check(), "seed %d: %v", seed, &a)
		require.NoError(t, decided.Check(), "seed %d: %v", seed, &a)
		require.LessOrEqual(t, longest, most, "seed %d: %v", seed, &a)
		require.Greater(t, waited, 20, "seed %d: %v", seed, &a)
	}
}

// TestQueueOfCallers: 16 callers of a queue of 200/s, a burst of one and a delay of half a unit's
// time go on at nearly all of the instants that there are.
func TestQueueOfCallers(t *testing.T) {
	for _, poll := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		q := newQueue(algo.LeakyQueue(algo.PerSecond(200), 1, 2500*time.Microsecond))
		bucket := newQueue(algo.TokenBucket(algo.PerSecond(200), 1))
		passed := q.pass(poll)
		t.Logf("denied callers come again after %v: %d of 600 go on, by a TokenBucket %d", poll, passed, bucket.pass(poll))
		require.GreaterOrEqual(t, passed, 569)
	}
}

// pass returns how many calls 16 callers do in three seconds. One that is denied comes again
// after its RetryAfter, or after up to twice a time.
func (q *queue) pass(poll time.Duration) (passed int) {
	const start = 1_745_000_145_000_000
	r, due := rand.New(rand.NewPCG(1, 1)), [16]int64{}
	for i := range due {
		due[i] = start + r.Int64N(5000)
	}
	for {
		i := 0
		for j := range due {
			if due[j] < due[i] {
				i = j
			}
		}
		now := due[i]
		if now > start+3_000_000 {
			return passed
		}
		delay, _ := q.take(now, 1)
		switch v := q.a.View(q.words, now); {
		case delay >= 0:
			passed++
			due[i] = now + max(delay, 1)
		case poll == 0:
			due[i] = q.a.RetryAt(q.words, &v, 1)
		default:
			due[i] = now + 1 + r.Int64N(2*poll.Microseconds())
		}
	}
}
