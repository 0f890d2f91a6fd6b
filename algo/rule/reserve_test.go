package rule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// reserve reserves what has room, and reports whether it had.
func reserve(a *Algorithm, w []int64, now, n int64) (c Charge, ok bool) {
	v := a.View(w, now)
	if !a.Fits(&v, n) {
		return c, false
	}
	a.Reserve(w, &v, n)
	return a.Charged(w, &v), true
}

// TestUnitsComeBack: at least 99.9 % of rate * t comes back to a TokenBucket, whatever
// is reserved and given back in between: one reservation after the other, as denied
// calls of several keys make them, or many that overlap.
func TestUnitsComeBack(t *testing.T) {
	rates := []Limit{PerHour(10), PerMinute(1), PerSecond(7), PerSecond(1000), PerSecond(700_001), PerSecond(1_000_000)}
	for _, l := range rates {
		for _, gap := range []time.Duration{10 * time.Millisecond, time.Millisecond, 100 * time.Microsecond} {
			for _, open := range []int{1, 7} {
				a := TokenBucket(l, MaxLimit)
				back := comesBack(&a, gap.Microseconds(), open, MaxLimit/2, steps(2000, 1_000_000), float64(steps(2500, 20_000)))
				require.GreaterOrEqual(t, back, 0.999, "%v, each %v, %d open", l, gap, open)
				require.LessOrEqual(t, back, 1.0, "%v, each %v, %d open", l, gap, open)
			}
		}
	}
}

// TestLastUnitsComeBack: a level of few units too.
func TestLastUnitsComeBack(t *testing.T) {
	for _, units := range []int64{1, 3} {
		for _, open := range []int{1, 7} {
			a := TokenBucket(PerSecond(1), 200)
			back := comesBack(&a, 1000, open, units, 0, 0.99*float64(units*fraction))
			require.GreaterOrEqual(t, back, 0.999, "%d units, %d open", units, open)
			require.LessOrEqual(t, back, 1.0, "%d units, %d open", units, open)
		}
	}
}

// comesBack returns how much of what leaks comes back while so many reservations are
// open at a time, each given back whole. Since a leak is seen in whole fractions, it
// goes on until they are many.
func comesBack(a *Algorithm, gap int64, open int, units int64, least int, leak float64) float64 {
	now, w, charges := int64(1e15), make([]int64, a.Words()), []Charge(nil)
	v := a.View(w, now)
	w = a.Take(w, &v, units)
	want := func() float64 { return float64(now-1e15) * float64(a.a) / float64(a.b) }
	for i := 0; i < least || want() < leak; i++ {
		now += gap
		c, _ := reserve(a, w, now, 1)
		if charges = append(charges, c); len(charges) == open {
			w = a.GiveBack(w, now+gap/2, charges[0], 1)
			charges = slices.Delete(charges, 0, 1)
		}
	}
	now += gap
	for _, c := range charges {
		w = a.GiveBack(w, now, c, 1)
	}
	v = a.View(w, now)
	return float64(units*fraction-v.z) / want()
}

// TestGivesBackOnce: what was leaked before a reservation is settled, and used by
// others, is not given back once more because another one gave back first.
func TestGivesBackOnce(t *testing.T) {
	a, now := TokenBucket(PerSecond(100), 200), int64(1e15)
	w := make([]int64, a.Words())
	first, _ := reserve(&a, w, now, 100)
	second, _ := reserve(&a, w, now, 100)
	w = a.GiveBack(w, now, first, 100)
	now += time.Second.Microseconds()
	v := a.View(w, now)
	require.Zero(t, v.Used)
	w = a.Take(w, &v, 200)
	w = a.GiveBack(w, now, second, 100)
	v = a.View(w, now)
	require.EqualValues(t, 200, v.Used)
}

// TestNeverAboveTheRate: whatever is reserved, settled and taken in whatever order, no
// more than burst + rate * t is used in any t. A charge counts by what is left of it,
// at its own instant. Of limiters with different numbers the greatest burst and the
// greatest rate count.
func TestNeverAboveTheRate(t *testing.T) {
	for seed := range uint64(steps(400, 50_000)) {
		r := rand.New(rand.NewPCG(seed, 3))
		period := []time.Duration{time.Second, time.Minute, 7 * time.Second}[r.IntN(3)]
		b := &bucket{now: 1e15}
		burst := 1 + r.Int64N(300)
		a := TokenBucket(Per(1+r.Int64N(2000), period), burst)
		b.askers, b.w = []Algorithm{a}, make([]int64, a.Words())
		if seed%2 > 0 {
			b.askers = append(b.askers, TokenBucket(Per((a.limit.Events+2)/3+r.Int64N(2)*r.Int64N(2*a.limit.Events), period), burst+r.Int64N(2)*r.Int64N(burst)))
		}
		pause := max(1, a.fill/[]int64{1, 3, 30, 1000}[r.IntN(4)])
		for step := range 120 {
			b.step(r, pause)
			require.NoError(t, b.within(), "seed %d, step %d: %v", seed, step, b.askers)
		}
	}
}

// TestTwoRatesGiveBackOnce: what the faster of two rates has leaked is not given back by
// a settle of the slower one.
func TestTwoRatesGiveBackOnce(t *testing.T) {
	fast, slow, now := TokenBucket(PerSecond(100), 100), TokenBucket(PerHour(1), 100), int64(1e15)
	w := make([]int64, fast.Words())
	c, _ := reserve(&slow, w, now, 100)
	now += time.Second.Microseconds()
	v := fast.View(w, now)
	require.Zero(t, v.Used)
	w = fast.Take(w, &v, 100)
	w = slow.GiveBack(w, now, c, 100)
	v = slow.View(w, now)
	require.EqualValues(t, 100, v.Used)
}

// TestLittleLeaksByTheFastestRate: what a slow limiter reserves of a level that a fast one
// would find empty does not leak from before it was charged.
func TestLittleLeaksByTheFastestRate(t *testing.T) {
	fast, slow := TokenBucket(PerSecond(300), 2), TokenBucket(PerSecond(100), 2)
	b := &bucket{askers: []Algorithm{fast, slow}, now: 1e15, w: make([]int64, fast.Words())}
	for range 500 {
		for v := fast.View(b.w, b.now); v.z > 4500; v = fast.View(b.w, b.now) {
			b.now += fast.leaks(v.z - 4500)
		}
		c, _ := reserve(&fast, b.w, b.now, 1)
		b.w = fast.GiveBack(b.w, b.now, c, 1) // by now
		b.now += 500
		if _, ok := reserve(&slow, b.w, b.now, 1); ok {
			b.past = append(b.past, taken{at: b.now, n: 1})
		}
		if v := fast.View(b.w, b.now); fast.Fits(&v, 1) {
			b.w = fast.Take(b.w, &v, 1)
			b.past = append(b.past, taken{at: b.now, n: 1})
		}
		require.NoError(t, b.within())
	}
}

// bucket is a TokenBucket with its past.
type bucket struct {
	askers []Algorithm
	w      []int64
	now    int64
	past   []taken
	open   []int // of past, those that may be given back
}

func (b *bucket) step(r *rand.Rand, pause int64) {
	b.now += r.Int64N(3) * r.Int64N(pause+1)
	a := &b.askers[r.IntN(len(b.askers))]
	n := 1 + r.Int64N(max(1, a.max/[]int64{1, 4, 40}[r.IntN(3)]))
	switch v := a.View(b.w, b.now); r.IntN(5) {
	case 0:
		if a.Fits(&v, n) {
			b.w = a.Take(b.w, &v, n)
			b.past = append(b.past, taken{at: b.now, n: n})
		}
	case 1, 2:
		if c, ok := reserve(a, b.w, b.now, n); ok {
			b.open = append(b.open, len(b.past))
			b.past = append(b.past, taken{b.now, n, c})
		}
	default:
		if len(b.open) == 0 {
			return
		}
		i := r.IntN(len(b.open))
		p := &b.past[b.open[i]]
		b.open = slices.Delete(b.open, i, i+1)
		back := p.n - r.Int64N(2)*r.Int64N(p.n+1)
		b.w = a.GiveBack(b.w, b.now, p.Charge, back)
		p.n -= back
	}
}

// within holds what was used to burst + rate * t, over any t: the level that it makes,
// in units times microseconds of the period, is never above the burst.
func (b *bucket) within() error {
	level, last, rate, burst := int64(0), int64(0), int64(0), int64(0)
	for i := range b.askers {
		rate, burst = max(rate, b.askers[i].limit.Events), max(burst, b.askers[i].max)
	}
	period := b.askers[0].period
	for _, p := range b.past {
		level, last = max(0, level-rate*min(p.at-last, 1e10))+p.n*period, p.at
		if most := burst * period; p.n > 0 && level > most {
			return fmt.Errorf("the level of what was used is %d, want at most %d", level, most)
		}
	}
	return nil
}

// TestEarlierLevelGivesNothingBack: a level that began anew, as the clock went back,
// gives nothing back of what was charged before.
func TestEarlierLevelGivesNothingBack(t *testing.T) {
	a, now := TokenBucket(PerSecond(100), 200), int64(1e15)
	w := make([]int64, a.Words())
	c, _ := reserve(&a, w, now, 100)
	now -= time.Hour.Microseconds()
	v := a.View(w, now)
	w = a.Take(w, &v, 50)
	w = a.GiveBack(w, now, c, 100)
	v = a.View(w, now)
	require.EqualValues(t, 50, v.Used)
}
