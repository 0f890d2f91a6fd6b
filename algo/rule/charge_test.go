package rule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// taken is a charge of a key's past. Replayed in order, charges make the words that
// would stand had they been made so.
type taken struct {
	at, n int64
	Charge
}

// replay returns the words of these charges, each made without asking.
func replay(a *Algorithm, past []taken) []int64 {
	w := make([]int64, a.Words())
	for _, t := range past {
		v := a.View(w, t.at)
		w = a.Take(w, &v, a.Recorded(&v, t.n))
	}
	return w
}

// requireSame requires that both words amount to the same at an instant.
func requireSame(t *testing.T, a *Algorithm, want, got []int64, now int64, why string) {
	t.Helper()
	v, g := a.View(want, now), a.View(got, now)
	require.Equal(t, v.Used, g.Used, why)
	require.Equal(t, a.ResetAt(&v), a.ResetAt(&g), why)
	if n := a.Max(); v.Used > 0 {
		require.Equal(t, a.RetryAt(want, &v, n), a.RetryAt(got, &g, n), why)
	}
}

func windows() []Algorithm {
	l := Per(1000, time.Second)
	return []Algorithm{FixedWindow(l), SlidingWindow(l), BucketedWindow(l, 2), BucketedWindow(l, 7), SlidingLog(l), CompactLog(l), Calendar(1000, Day(), time.UTC)}
}

// TestGiveBackIsExact: after any mix of takes, records, settles and pauses a window
// counts what it would, had each call been charged what it was settled to.
func TestGiveBackIsExact(t *testing.T) {
	redistest.Plain(t)
	for _, a := range windows() {
		t.Run(a.String(), func(t *testing.T) {
			for seed := range uint64(steps(25, 100)) {
				giveBackAtRandom(t, &a, rand.New(rand.NewPCG(seed, 1)))
			}
		})
	}
}

func giveBackAtRandom(t *testing.T, a *Algorithm, r *rand.Rand) {
	now, w, past := int64(1e15), make([]int64, a.Words()), []taken(nil)
	pause := a.period / []int64{1, 10, 100}[r.IntN(3)]
	for step := range 150 {
		switch now += r.Int64N(3) * r.Int64N(pause); r.IntN(3) {
		case 0, 1:
			n, v := 1+r.Int64N(50), a.View(w, now)
			w = a.Take(w, &v, a.Recorded(&v, n))
			past = append(past, taken{now, n, a.Charged(w, &v)})
		default:
			if len(past) == 0 {
				continue
			}
			p := &past[len(past)-1-r.IntN(min(len(past), 10))]
			n := r.Int64N(p.n + 1)
			w = a.GiveBack(w, now, p.Charge, n)
			p.n -= n
		}
		requireSame(t, a, replay(a, past), w, now, fmt.Sprint("step ", step))
	}
}

// TestGiveBackOfALevel: a TokenBucket gives back all that would not have leaked
// where nobody else took, and never more than that where others did.
func TestGiveBackOfALevel(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 2))
		a := TokenBucket(Per(1+r.Int64N(5000), time.Second), 1000)
		now, past := int64(1e15), []taken(nil)
		take := func(most int) {
			for range r.IntN(most + 1) {
				past = append(past, taken{at: now, n: 1 + r.Int64N(80)})
				now += r.Int64N(3) * r.Int64N(30_000)
			}
		}
		take(4)
		reserved := len(past)
		past = append(past, taken{at: now, n: 1 + r.Int64N(200)})
		w := replay(&a, past)
		v := a.View(w, now)
		c := a.Charged(w, &v)
		now += r.Int64N(2) * r.Int64N(100_000)
		others := len(past)
		if seed%2 == 0 {
			take(4)
		}
		w = replay(&a, past)
		n := r.Int64N(past[reserved].n + 1)
		w = a.GiveBack(w, now, c, n)
		alone := len(past) == others
		if past[reserved].n -= n; past[reserved].n == 0 {
			past = slices.Delete(past, reserved, reserved+1)
		}
		want, got := a.View(replay(&a, past), now), a.View(w, now)
		require.GreaterOrEqual(t, got.z, want.z, "seed %d", seed)
		if alone {
			require.LessOrEqual(t, got.z, want.z+1, "seed %d", seed) // a leak in two steps is rounded twice
		}
	}
}

// TestGiveBackAfterAll: what has left its window, and a count that was reset, give
// nothing back, and write nothing.
func TestGiveBackAfterAll(t *testing.T) {
	for _, a := range append(windows(), TokenBucket(PerSecond(1000), 1000)) {
		w, now := make([]int64, a.Words()), int64(1e15)
		v := a.View(w, now)
		w = a.Take(w, &v, 10)
		c := a.Charged(w, &v)
		zero := make([]int64, a.Words())
		require.Zero(t, slices.Max(a.GiveBack(zero, now, c, 10)), a.String())

		now += 2 * a.period
		v = a.View(w, now)
		w = a.Take(w, &v, 7)
		before := slices.Clone(w)
		require.Equal(t, before, a.GiveBack(w, now, c, 10), a.String())
		require.Equal(t, before, a.GiveBack(w, now, a.Charged(w, &v), 0), a.String())
		require.Equal(t, before, a.GiveBack(w, now, a.Charged(w, &v), -1), a.String())
		if a.Kind() != KindTokenBucket { // whose level is nobody's
			require.Equal(t, before, a.GiveBack(w, now, Charge{At: now - a.period}, 10), a.String())
		}
	}
	var zero Algorithm
	require.Nil(t, zero.GiveBack(nil, 1, Charge{}, 1))
}

// TestRecordSaturates at twice the greatest limit of the kind, where every number
// is still whole.
func TestRecordSaturates(t *testing.T) {
	for _, k := range Kinds() {
		a := k.Random(PerDay(k.MaxLimit()), func(_, most int64) int64 { return most })
		w, now := make([]int64, a.Words()), int64(1e15)
		for range 4 {
			v := a.View(w, now)
			w = a.Take(w, &v, a.Recorded(&v, a.Max()))
		}
		v := a.View(w, now)
		require.Equal(t, 2*k.MaxLimit(), v.Used, "%v", k)
		require.Equal(t, v.Used, a.MaxUsed(), "%v", k)
		require.Zero(t, a.Recorded(&v, 1), "%v", k)
		at := a.RetryAt(w, &v, 1)
		later := a.View(w, at)
		require.True(t, a.Fits(&later, 1), "%v", k)
		later = a.View(w, at-1)
		require.False(t, a.Fits(&later, 1), "%v", k)
	}
}

// TestLevelWithoutARest: a bucket that has leaked empty has level 0, as one that its store has
// removed.
func TestLevelWithoutARest(t *testing.T) {
	a := TokenBucket(PerSecond(10), 5)
	w, now := replay(&a, []taken{{at: 1e15, n: 5}}), int64(1e15)
	for after, want := range map[time.Duration]bool{0: true, 499 * time.Millisecond: true, 500 * time.Millisecond: false, time.Hour: false} {
		v := a.View(w, now+after.Microseconds())
		require.Equal(t, want, a.Level(&v) != 0, after)
	}
}
