package rule

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// twoLogs are a SlidingLog and a CompactLog that see the same.
type twoLogs struct {
	period time.Duration
	limit  int64
	x, y   []int64
	past   []taken
	now    int64
}

func (l *twoLogs) both() [2]Algorithm {
	return [2]Algorithm{SlidingLog(Per(l.limit, l.period)), CompactLog(Per(l.limit, l.period))}
}

// step takes, records or gives back, and requires that every number is the same.
func (l *twoLogs) step(t *testing.T, r *rand.Rand) {
	as := l.both()
	a, b := &as[0], &as[1]
	v, u := a.View(l.x, l.now), b.View(l.y, l.now)
	n := 1 + r.Int64N(l.limit)
	if r.IntN(8) > 0 {
		n = 1 + r.Int64N(1+l.limit/50)
	}
	l.same(t, &v, &u, n)
	switch op := r.IntN(10); {
	case op < 2 && len(l.past) > 0:
		p := &l.past[len(l.past)-1-r.IntN(min(len(l.past), 200))]
		back := r.Int64N(p.n + 1)
		if r.IntN(2) == 0 {
			back = p.n
		}
		p.n -= back
		l.x, l.y = a.GiveBack(l.x, l.now, p.Charge, back), b.GiveBack(l.y, l.now, p.Charge, back)
		return
	case op == 2:
		n = a.Recorded(&v, n)
		require.Equal(t, n, b.Recorded(&u, n))
	case !a.Fits(&v, n):
		return
	}
	l.x, l.y = a.Take(l.x, &v, n), b.Take(l.y, &u, n)
	l.past = append(l.past, taken{l.now, n, a.Charged(l.x, &v)})
	require.True(t, a.Charged(l.x, &v) == b.Charged(l.y, &u))
	v, u = a.View(l.x, l.now), b.View(l.y, l.now)
	l.same(t, &v, &u, n)
}

func (l *twoLogs) same(t *testing.T, v, u *View, n int64) {
	as := l.both()
	a, b := &as[0], &as[1]
	x, y := []int64{v.Used, v.At, a.ResetAt(v)}, []int64{u.Used, u.At, b.ResetAt(u)}
	if !a.Fits(v, n) {
		x, y = append(x, a.RetryAt(l.x, v, n)), append(y, b.RetryAt(l.y, u, n))
	}
	if !slices.Equal(x, y) {
		t.Fatalf("%v at %d: used, at, reset and retry are %d, want %d", a, l.now, y, x)
	}
}

// TestCompactLogIsASlidingLog: random costs, settles, records, limits and steps of
// the clock, in periods from a millisecond to 400 days.
func TestCompactLogIsASlidingLog(t *testing.T) {
	redistest.Plain(t)
	r := rand.New(rand.NewPCG(1, 2))
	for left := steps(200_000, 2_000_000); left > 0; {
		l := twoLogs{period: []time.Duration{time.Millisecond, time.Second, time.Minute, 24 * time.Hour, 30 * 24 * time.Hour, MaxPeriod}[r.IntN(6)]}
		l.now, l.limit = 1e15+r.Int64N(1e15), 1+r.Int64N([]int64{5, 300, 5000, MaxLogLimit}[r.IntN(4)])
		kind := SlidingLog(PerDay(1))
		l.x, l.y = make([]int64, kind.Words()), make([]int64, compactHeader)
		calls := 1 + r.Int64N(2*min(l.limit, 3000))
		for range 2000 {
			switch us := l.period.Microseconds(); r.IntN(400) {
			case 0:
				l.now += us + r.Int64N(3) - 1
			case 1:
				l.now -= r.Int64N(2 * us)
			case 2:
				l.limit = 1 + r.Int64N(2*l.limit)
				l.limit = min(l.limit, MaxLogLimit)
			default:
				l.now += r.Int64N(2) * r.Int64N(1+2*us/calls)
			}
			l.step(t, r)
			left--
		}
	}
}

// TestCompactLogExpiresAtOnce: a view of a full log of which all but one entry, or a
// half, has left, and the take that drops them, look at blocks and not at entries.
func TestCompactLogExpiresAtOnce(t *testing.T) {
	a := CompactLog(PerMinute(100_000))
	w := make([]int64, a.Words())
	now := int64(1e15)
	for range 100_000 {
		now += 300
		v := a.View(w, now)
		require.True(t, a.Fits(&v, 1))
		w = a.Take(w, &v, 1)
	}
	t.Logf("%d calls in %d bytes", w[1], 8*len(w))
	require.Less(t, 8*len(w), 9*100_000)
	for _, left := range []int64{50_000, 2} { // the second time with what the first took
		now = 1e15 + 300*(100_000-left+left%4/2) + a.period
		begin := time.Now()
		v := a.View(w, now)
		took := time.Since(begin)
		require.EqualValues(t, left, v.Used)
		w = a.Take(w, &v, 1)
		t.Logf("a view of %d that are left takes %v, with the take %v", left, took, time.Since(begin))
	}
}
