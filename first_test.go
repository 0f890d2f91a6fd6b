package headgate_test

import (
	"context"
	"runtime/debug"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// models are limiters of two models of a user, and of the user's requests to both.
type models struct{ fast, cheap, user *headgate.Limiter }

func newModels(t *testing.T, s backend.Store, o *headgate.Options, mode headgate.FailureMode) (m models) {
	m.fast = limiter(t, s, o, perDayOf("fast", 3, mode))
	var err error
	m.cheap, err = m.fast.With(perDayOf("cheap", 5, mode))
	require.NoError(t, err)
	m.user, err = m.fast.With(perDayOf("user", 7, mode))
	require.NoError(t, err)
	return m
}

func perDayOf(name string, limit int64, mode headgate.FailureMode) headgate.Policy {
	p := level(name, limit)
	p.OnFailure = mode
	return p
}

// parts are the fast model and then the cheap one, each with the user's requests.
func (m models) parts(n int64) []headgate.Part {
	fast, cheap := m.fast.Part("u", n), m.cheap.Part("u", n)
	fast.And, cheap.And = []headgate.Part{m.user.Part("u")}, []headgate.Part{m.user.Part("u")}
	return []headgate.Part{fast, cheap}
}

func (m models) counts(t *testing.T, fast, cheap, user int64) {
	t.Helper()
	requireCount(t, m.fast, "u", fast)
	requireCount(t, m.cheap, "u", cheap)
	requireCount(t, m.user, "u", user)
}

func (m models) quiet(t *testing.T) { levels{user: m.user}.quiet(t) }

// TestFirst charges the first part that has room, and no other. A count that stands in both is
// charged once.
func TestFirst(t *testing.T) {
	forms(t, func(t *testing.T, s backend.Store) {
		m, ctx := newModels(t, s, nil, headgate.FailClosed), context.Background()
		for i := range 7 {
			d, err := headgate.First(ctx, m.parts(1)...)
			require.NoError(t, err)
			require.True(t, d.Allowed)
			require.Equal(t, i >= 3, d.At == 1, "%+v", d)
			require.Equal(t, "u", d.Key)
			m.quiet(t)
			m.counts(t, int64(min(i+1, 3)), int64(max(0, i-2)), int64(i+1))
		}
		d, err := headgate.First(ctx, m.parts(1)...)
		require.NoError(t, err)
		require.False(t, d.Allowed)
		require.Contains(t, []string{"fast", "user"}, d.Policy)
		require.Positive(t, d.RetryAfter)
		m.quiet(t)
		m.counts(t, 3, 4, 7)
		d, err = headgate.First(ctx, m.fast.Part("u"), m.cheap.Part("u"))
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Equal(t, 1, d.At)
		require.Equal(t, "cheap", d.Policy)
		d, err = headgate.First(ctx)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		_, err = headgate.First(ctx, m.fast.Part("v"), m.cheap.Part(""))
		require.Error(t, err)
		requireCount(t, m.fast, "v", 0)
	})
}

// TestFirstDenies by the part that passes soonest, and its RetryAfter is exact.
func TestFirstDenies(t *testing.T) {
	now := time.Unix(1_745_000_000, 0)
	s := memory.New(&memory.Options{Now: func() time.Time { return now }})
	for _, s := range []backend.Store{s, oneKey(s)} {
		ctx := context.Background()
		hour := limiter(t, s, nil, headgate.Policy{Name: "hour", Algorithm: algo.SlidingLog(algo.PerHour(1)), OnFailure: headgate.FailClosed})
		minute, err := hour.With(headgate.Policy{Name: "minute", Algorithm: algo.SlidingLog(algo.PerMinute(1)), OnFailure: headgate.FailClosed})
		require.NoError(t, err)
		first := func() headgate.Decision {
			d, err := headgate.First(ctx, hour.Part("k"), minute.Part("k"), hour.Part("l"))
			require.NoError(t, err)
			return d
		}
		require.Equal(t, 0, first().At)
		require.Equal(t, 1, first().At)
		require.Equal(t, 2, first().At)
		d := first()
		require.False(t, d.Allowed)
		require.Equal(t, 1, d.At)
		require.Equal(t, time.Minute, d.RetryAfter)
		now = now.Add(d.RetryAfter - time.Microsecond)
		require.False(t, first().Allowed)
		now = now.Add(time.Microsecond)
		require.True(t, first().Allowed)
		now = now.Add(2 * time.Hour)
	}
}

// TestFirstOfNothing: a part that costs nothing passes where it is reached, and no later one is
// charged.
func TestFirstOfNothing(t *testing.T) {
	forms(t, func(t *testing.T, s backend.Store) {
		m, ctx := newModels(t, s, nil, headgate.FailClosed), context.Background()
		for i := range 5 {
			rs, d, err := headgate.ReserveFirst(ctx, m.fast.Part("u"), m.user.Part("u", 0), m.cheap.Part("u"))
			require.NoError(t, err)
			require.True(t, d.Allowed)
			require.Equal(t, i >= 3, d.At == 1)
			used := []int64{0}
			if i < 3 { // else it is recorded
				used[0] = 2
			}
			require.NoError(t, rs.Commit(ctx, []int64{1}, used, []int64{1}))
			m.counts(t, int64(min(i+1, 3)), 0, 0)
		}
	})
}

// TestFirstMeetsNoneOfItsOwn: what a part has taken of a count that stands in the next one too is
// given back before that is decided.
func TestFirstMeetsNoneOfItsOwn(t *testing.T) {
	forms(t, func(t *testing.T, s backend.Store) {
		m, ctx := newModels(t, s, nil, headgate.FailClosed), context.Background()
		_, err := m.fast.AllowN(ctx, "u", 3)
		require.NoError(t, err)
		fast, cheap := m.user.Part("u", 7), m.user.Part("u", 7)
		fast.And, cheap.And = []headgate.Part{m.fast.Part("u")}, []headgate.Part{m.cheap.Part("u")}
		d, err := headgate.First(ctx, fast, cheap)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		m.quiet(t)
		m.counts(t, 3, 1, 7)
	})
}

// TestFirstObserved: the event of a call has what it charged, and nothing of other parts.
func TestFirstObserved(t *testing.T) {
	forms(t, func(t *testing.T, s backend.Store) {
		near := map[string]int{}
		m := newModels(t, s, &headgate.Options{Observer: func(e headgate.Event) {
			for _, n := range e.Near {
				near[n.Policy]++
			}
		}}, headgate.FailClosed)
		for range 4 {
			_, err := headgate.First(context.Background(), m.fast.Part("u"), m.cheap.Part("u"))
			require.NoError(t, err)
		}
		require.Equal(t, map[string]int{"fast": 1}, near)
	})
}

// TestReserveFirst settles the part that was charged, whatever is given for the others.
func TestReserveFirst(t *testing.T) {
	forms(t, func(t *testing.T, s backend.Store) {
		m, ctx := newModels(t, s, nil, headgate.FailClosed), context.Background()
		reserve := func(n int64) headgate.Reservations {
			rs, d, err := headgate.ReserveFirst(ctx, m.parts(n)...)
			require.NoError(t, err)
			require.True(t, d.Allowed)
			require.Len(t, rs, 4)
			m.quiet(t)
			return rs
		}
		one, two := reserve(2), reserve(2)
		m.counts(t, 2, 2, 2)
		require.NotEmpty(t, one[0].Token())
		require.Empty(t, one[2].Token())
		require.Empty(t, two[0].ID())
		require.NoError(t, two.Extend(ctx))
		require.NoError(t, two.Commit(ctx, []int64{9}, []int64{9}, []int64{6}, []int64{1}))
		m.counts(t, 2, 6, 2) // above its limit
		require.NoError(t, two.Close())
		require.ErrorIs(t, two.Cancel(ctx), headgate.ErrNotHeld)
		require.NoError(t, one.Cancel(ctx))
		m.counts(t, 0, 6, 1)
		rs, d, err := headgate.ReserveFirst(ctx, m.cheap.Part("u"))
		require.NoError(t, err)
		require.False(t, d.Allowed)
		require.Empty(t, rs)
		one = reserve(1)
		require.NoError(t, one[0].Commit(ctx, 2))
		require.NoError(t, one.Close())
		m.counts(t, 2, 6, 1)
	})
}

// TestFirstLost: a ReserveFirst whose answer is lost is settled by one request, whichever part it
// was charged to. It may come after the settlement.
func TestFirstLost(t *testing.T) {
	for name, c := range map[string]struct {
		spent  int64 // of the fast model
		lose   func(*lossy)
		settle func(*testing.T, headgate.Reservations) error
		want   [3]int64
	}{
		"first charged":  {0, func(s *lossy) { s.lose(0, onReserve) }, commitAll, [3]int64{2, 0, 1}},
		"second charged": {3, func(s *lossy) { s.lose(0, onReserve) }, commitAll, [3]int64{3, 3, 1}},
		"none charged":   {3, func(s *lossy) { s.lose(onReserve, 0) }, commitAll, [3]int64{5, 0, 1}},
		"overtaken":      {0, func(s *lossy) { s.lose(overtaken, onReserve) }, commitAll, [3]int64{2, 0, 1}},
		"cancelled": {3, func(s *lossy) { s.lose(0, onReserve) }, func(t *testing.T, rs headgate.Reservations) error {
			return rs.Cancel(context.Background())
		}, [3]int64{3, 0, 0}},
		"closed": {3, func(s *lossy) { s.lose(0, onReserve) }, func(t *testing.T, rs headgate.Reservations) error { return rs.Close() }, [3]int64{3, 0, 0}},
		"one committed": {3, func(s *lossy) { s.lose(0, onReserve) }, func(t *testing.T, rs headgate.Reservations) error {
			return rs[2].Commit(context.Background(), 2)
		}, [3]int64{3, 2, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s, ctx := newLossy(), context.Background()
			s.shared = s.Store.(*memory.Store).Shared()
			m := newModels(t, s, nil, headgate.FailOpen)
			if c.spent > 0 {
				_, err := m.fast.Record(ctx, headgate.Call{Key: "u", Costs: []int64{c.spent}})
				require.NoError(t, err)
			}
			c.lose(s)
			rs, d, err := headgate.ReserveFirst(ctx, m.parts(1)...)
			require.NoError(t, err)
			require.True(t, d.Allowed)
			require.Equal(t, headgate.FromFailOpen, d.Source)
			require.Zero(t, d.At)
			s.lose(0, 0)
			require.Empty(t, rs[0].Token())
			require.NoError(t, c.settle(t, rs))
			if s.delayed.Load() != nil {
				_, err := s.arrive()
				require.ErrorIs(t, err, headgate.ErrNotHeld)
			}
			m.counts(t, c.want[0], c.want[1], c.want[2])
			require.NoError(t, rs.Close())
			require.ErrorIs(t, rs[0].Commit(ctx, 3), headgate.ErrNotHeld)
			m.counts(t, c.want[0], c.want[1], c.want[2])
		})
	}
}

// commitAll settles as if 2 units of the fast model had been used, or 3 of the cheap one.
func commitAll(t *testing.T, rs headgate.Reservations) error {
	lists := [][]int64{{2}, {1}, {3}, {1}}
	err := rs.Commit(context.Background(), lists...)
	require.NoError(t, rs.Commit(context.Background(), lists...)) // once more
	return err
}

// TestFirstLostDenied: where the unknown outcome is a denial, whatever was charged is given back.
func TestFirstLostDenied(t *testing.T) {
	s := newLossy()
	s.shared = s.Store.(*memory.Store).Shared()
	m := newModels(t, s, nil, headgate.FailClosed)
	s.lose(0, onReserve)
	_, d, err := headgate.ReserveFirst(context.Background(), m.parts(1)...)
	require.NoError(t, err)
	require.False(t, d.Allowed)
	s.lose(0, 0)
	m.quiet(t)
	m.counts(t, 0, 0, 0)
}

// TestFirstOverStores: a part of a store that is down is passed over, or stops the call. One whose
// outcome is unknown ends it by its failure mode. If none is decided, that of the first part does.
func TestFirstOverStores(t *testing.T) {
	one, two, ctx := newLossy(), newLossy(), context.Background()
	a := limiter(t, one, nil, perDayOf("a", 3, headgate.FailOpen))
	b := limiter(t, two, nil, perDayOf("b", 3, headgate.FailClosed))
	first := func(stop bool) headgate.Decision {
		part := a.Part("k")
		part.Stop = stop
		rs, d, err := headgate.ReserveFirst(ctx, part, b.Part("k"))
		require.NoError(t, err)
		require.NoError(t, rs.Commit(ctx))
		return d
	}
	require.Equal(t, 0, first(false).At)
	one.lose(onReserve, 0)
	d := first(false)
	require.True(t, d.Allowed)
	require.Equal(t, 1, d.At)
	require.NoError(t, d.Err)
	d = first(true)
	require.Equal(t, headgate.FromFailOpen, d.Source)
	require.Equal(t, 0, d.At)
	one.lose(0, onReserve)
	d = first(false)
	require.Equal(t, headgate.FromFailOpen, d.Source)
	require.ErrorIs(t, d.Err, headgate.ErrPerhapsCounted)
	one.lose(onReserve, 0)
	two.lose(onReserve, 0)
	d = first(false)
	require.True(t, d.Allowed)
	require.Equal(t, 0, d.At)
	require.Equal(t, headgate.FromFailOpen, d.Source)
	two.lose(0, onReserve)
	d = first(false)
	require.False(t, d.Allowed)
	require.Equal(t, 1, d.At)
	require.Equal(t, headgate.FromFailClosed, d.Source)
	one.lose(0, 0)
	two.lose(0, 0)
	require.Eventually(t, func() bool { return headgate.Cancelling(b) == 0 }, 10*time.Second, time.Millisecond)
	requireCount(t, b, "k", 1)
	requireCount(t, a, "k", 4) // a Commit of what failed open is recorded
}

// TestFirstKnown: a part that is known to be denied is left out, and a call all of whose parts are
// is answered from memory. A denial that counted lent units is asked for.
func TestFirstKnown(t *testing.T) {
	m, ctx := memory.New(nil), context.Background()
	groups, requests := 0, 0
	s := remote(m)
	s.shared = new(layer.Shared)
	s.do = func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		groups, requests = groups+1+len(r.And), requests+1
		return next.Do(ctx, r, d)
	}
	l := newModels(t, s, nil, headgate.FailClosed)
	for range 3 {
		_, err := headgate.First(ctx, l.fast.Part("u"), l.cheap.Part("u"))
		require.NoError(t, err)
	}
	require.Equal(t, []int{6, 3}, []int{groups, requests})
	for i := range 5 {
		d, err := headgate.First(ctx, l.fast.Part("u"), l.cheap.Part("u"))
		require.NoError(t, err)
		require.Equal(t, 1, d.At)
		require.Equal(t, int64(4-i), d.Remaining)
		require.Equal(t, headgate.FromStore, d.Source)
	}
	require.Equal(t, []int{12, 8}, []int{groups, requests}, "the first part was sent once")
	for range 3 {
		d, err := headgate.First(ctx, l.fast.Part("u"), l.cheap.Part("u"))
		require.NoError(t, err)
		require.False(t, d.Allowed)
	}
	require.Equal(t, 9, requests)
	require.NoError(t, l.fast.Reset(ctx, "u"))
	d, err := headgate.First(ctx, l.fast.Part("u"), l.cheap.Part("u"))
	require.NoError(t, err)
	require.Equal(t, 0, d.At)
}

// TestAndContainsItself: an And without end has too many keys.
func TestAndContainsItself(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(1 << 20))
	l, ctx := limiter(t, memory.New(nil), nil, daily("p", 10)), context.Background()
	part := l.Part("k", 1)
	part.And = []headgate.Part{part, l.Part("j", 1)}
	part.And[0].And = part.And
	_, err := headgate.First(ctx, part)
	invalid(t, err, "keys", "at most 64")
	_, _, err = headgate.ReserveFirst(ctx, l.Part("i", 1), part)
	invalid(t, err, "keys", "at most 64")
	_, err = headgate.All(ctx, part)
	invalid(t, err, "keys", "at most 64")
	_, err = headgate.WaitAll(ctx, part)
	invalid(t, err, "keys", "at most 64")
	requireCount(t, l, "k", 0)
}
