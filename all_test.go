package headgate_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// forms are the stores on which All decides at once, and one key after the other.
func forms(t *testing.T, f func(*testing.T, backend.Store)) {
	t.Run("at once", func(t *testing.T) { f(t, memory.New(nil)) })
	t.Run("one by one", func(t *testing.T) { f(t, oneKey(memory.New(nil))) })
}

// levels are limiters of users, organisations and everybody.
type levels struct{ user, org, world *headgate.Limiter }

func level(name string, limit int64) headgate.Policy {
	return headgate.Policy{Name: name, Algorithm: algo.SlidingLog(algo.PerDay(limit)), OnFailure: headgate.FailClosed}
}

func newLevels(t *testing.T, s backend.Store, o *headgate.Options) (l levels) {
	var err error
	l.user = limiter(t, s, o, level("user", 5), level("tokens", 1000))
	l.org, err = l.user.With(level("org", 8))
	require.NoError(t, err)
	l.world, err = l.user.With(level("world", 100))
	require.NoError(t, err)
	return l
}

// all asks for one call of a user with 10 tokens.
func (l levels) all(t *testing.T, user string) headgate.Decision {
	t.Helper()
	d, err := headgate.All(context.Background(), l.user.Part(user, 1, 10), l.org.Part("7"), l.world.Part("all"))
	require.NoError(t, err)
	return d
}

// quiet waits until nothing is given back any more.
func (l levels) quiet(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return headgate.Cancelling(l.user) == 0 }, 10*time.Second, time.Millisecond)
}

func requireCount(t *testing.T, l *headgate.Limiter, key string, want int64) {
	t.Helper()
	d, err := l.Peek(context.Background(), headgate.Call{Key: key, Costs: make([]int64, len(l.Policies()))})
	require.NoError(t, err)
	require.Equal(t, want, d.Used, key)
}

// TestAll charges all keys or none, and names the one that binds.
func TestAll(t *testing.T) {
	forms(t, func(t *testing.T, s backend.Store) {
		l := newLevels(t, s, nil)
		for n := range int64(5) {
			d := l.all(t, "a")
			require.True(t, d.Allowed)
			require.Equal(t, "a", d.Key)
			require.Equal(t, "user", d.Policy)
			require.Equal(t, 4-n, d.Remaining)
		}
		d := l.all(t, "a")
		require.False(t, d.Allowed)
		require.Equal(t, "a", d.Key)
		require.Positive(t, d.RetryAfter)
		for range 3 {
			d = l.all(t, "b")
			require.True(t, d.Allowed)
		}
		require.Equal(t, "7", d.Key)
		require.Equal(t, "org", d.Policy)
		require.Zero(t, d.Remaining)
		for range 10 {
			d = l.all(t, "b")
			require.False(t, d.Allowed)
			require.Equal(t, "7", d.Key)
			l.quiet(t)
		}
		requireCount(t, l.user, "a", 5)
		requireCount(t, l.user, "b", 3)
		requireCount(t, l.org, "7", 8)
		requireCount(t, l.world, "all", 8)
	})
}

// TestAllEach fills the states of every part.
func TestAllEach(t *testing.T) {
	forms(t, func(t *testing.T, s backend.Store) {
		l, ctx := newLevels(t, s, nil), context.Background()
		user, org := l.user.Part("a"), l.org.Part("7")
		user.Call.Each, org.Call.Each = make([]headgate.State, 2), make([]headgate.State, 1)
		d, err := headgate.All(ctx, user, org)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.EqualValues(t, 4, user.Call.Each[0].Remaining)
		require.EqualValues(t, 999, user.Call.Each[1].Remaining)
		require.EqualValues(t, 7, org.Call.Each[0].Remaining)
		user.Call.Costs = []int64{5, 1}
		d, err = headgate.All(ctx, user, org)
		require.NoError(t, err)
		require.False(t, d.Allowed)
		require.Equal(t, d.State, user.Call.Each[0])
		require.Equal(t, "org", org.Call.Each[0].Policy)
		require.EqualValues(t, 8, org.Call.Each[0].Limit)
		require.LessOrEqual(t, org.Call.Each[0].Used, int64(1), "not of the call that was denied")
	})
}

// TestAllOfOneKey: a key may be listed twice, a count may not; one part is a Do.
func TestAllOfOneKey(t *testing.T) {
	forms(t, func(t *testing.T, s backend.Store) {
		l, ctx := newLevels(t, s, nil), context.Background()
		d, err := headgate.All(ctx, l.user.Part("7"), l.org.Part("7"), l.world.Part("7"))
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Equal(t, "7", d.Key)
		_, err = headgate.All(ctx, l.user.Part("a"), l.org.Part("7"), l.org.Part("7"))
		require.ErrorAs(t, err, new(*headgate.InvalidError))
		_, err = headgate.All(ctx, l.org.Part("7"), l.user.Part("a"), l.org.Part("7"))
		require.ErrorAs(t, err, new(*headgate.InvalidError))
		d, err = headgate.All(ctx, l.org.Part("7", 3))
		require.NoError(t, err)
		require.True(t, d.Allowed)
		requireCount(t, l.user, "a", 0)
		requireCount(t, l.org, "7", 4)
	})
}

// TestAllOfOneName: a denial is that of the count which denied, also where another one of
// the key has the policy's name.
func TestAllOfOneName(t *testing.T) {
	for name, s := range map[string]backend.Store{"memory": memory.New(nil), "server": unhurried(t, redistest.Start(t)), "key by key": oneKey(memory.New(nil))} {
		t.Run(name, func(t *testing.T) {
			var seen headgate.Event
			day := limiter(t, s, &headgate.Options{Observer: func(e headgate.Event) {
				if e.Type == headgate.EventDecision && e.Op == backend.Take { // and no settlement in the background
					seen = e
				}
			}}, level("calls", 9))
			policy := level("calls", 1)
			policy.Algorithm = algo.SlidingLog(algo.PerHour(1))
			hour, err := day.With(policy)
			require.NoError(t, err)
			ctx := context.Background()
			for i := range 2 {
				d, err := headgate.All(ctx, day.Part("k"), hour.Part("k"))
				require.NoError(t, err)
				require.Equal(t, i == 0, d.Allowed)
				require.Equal(t, 1, d.At)
				require.Equal(t, hour.Policies(), seen.Policies)
			}
			d, err := day.Allow(ctx, "k")
			require.NoError(t, err)
			require.True(t, d.Allowed)
			require.Zero(t, d.At)
		})
	}
}

// TestAllRefuses what is wrong with any part before anything is counted.
func TestAllRefuses(t *testing.T) {
	forms(t, func(t *testing.T, s backend.Store) {
		l, ctx := newLevels(t, s, nil), context.Background()
		slots := limiter(t, s, nil, headgate.Policy{Name: "running", Algorithm: algo.InFlight(2), OnFailure: headgate.FailClosed})
		ended, cancel := context.WithCancel(ctx)
		cancel()
		first := l.user.Part("a")
		bad := func(ctx context.Context, parts ...headgate.Part) {
			t.Helper()
			_, err := headgate.All(ctx, parts...)
			require.Error(t, err)
			rs, _, again := headgate.ReserveAll(ctx, parts...)
			require.Equal(t, err.Error(), again.Error())
			require.Empty(t, rs)
		}
		bad(ctx, make([]headgate.Part, backend.MaxKeys+1)...)
		bad(ctx, first, headgate.Part{})
		bad(ctx, first, (*headgate.Limiter)(nil).Part("x", 1))
		bad(ctx, first, new(headgate.Limiter).Part("x"))
		bad(ctx, first, l.org.Part(""))
		bad(ctx, first, l.org.Part("7", 9))
		bad(ctx, first, l.org.Part("7", 1, 1))
		bad(ctx, first, l.org.Part("7", -1))
		bad(nil, first, l.org.Part("7")) //nolint:staticcheck // that is what is tested
		bad(ended, first, l.org.Part("7"))
		_, err := headgate.All(ctx, first, slots.Part("x"))
		require.ErrorAs(t, err, new(*headgate.InvalidError))
		_, err = headgate.All(ctx, first, l.org.Part("7", 9))
		require.ErrorIs(t, err, headgate.ErrNeverAdmissible)
		requireCount(t, l.user, "a", 0)
		require.NoError(t, s.Close())
		_, err = headgate.All(ctx, first, l.org.Part("7"))
		require.ErrorIs(t, err, headgate.ErrClosed)
	})
}

// TestReserveAll settles every key by what was used of it.
func TestReserveAll(t *testing.T) {
	forms(t, func(t *testing.T, s backend.Store) {
		ctx := context.Background()
		l := newLevels(t, s, nil)
		slots := limiter(t, s, nil, headgate.Policy{Name: "running", Algorithm: algo.InFlight(2), OnFailure: headgate.FailClosed})
		reserve := func() (headgate.Reservations, headgate.Decision) {
			rs, d, err := headgate.ReserveAll(ctx, l.user.Part("7", 1, 300), slots.Part("7"), l.org.Part("7"))
			require.NoError(t, err)
			return rs, d
		}
		rs, d := reserve()
		require.True(t, d.Allowed)
		require.Len(t, rs, 3)
		other, d := reserve()
		require.True(t, d.Allowed)
		none, d := reserve()
		require.False(t, d.Allowed)
		require.Equal(t, "running", d.Policy)
		require.Empty(t, none)
		require.NoError(t, none.Commit(ctx))
		require.NoError(t, none.Close())
		l.quiet(t)
		require.NoError(t, rs.Extend(ctx))
		require.ErrorAs(t, rs.Commit(ctx, []int64{1, 2}), new(*headgate.InvalidError))
		require.NoError(t, rs.Commit(ctx, []int64{1, 250}, nil, nil))
		require.ErrorIs(t, rs.Commit(ctx), headgate.ErrNotHeld)
		require.NoError(t, rs.Close())
		resumed, err := l.user.Resume(other[0].Token())
		require.NoError(t, err)
		require.NoError(t, resumed.Cancel(ctx))
		require.ErrorIs(t, other.Cancel(ctx), headgate.ErrNotHeld)
		requireCount(t, l.org, "7", 1)
		requireCount(t, slots, "7", 0)
		each := make([]headgate.State, 2)
		_, err = l.user.Peek(ctx, headgate.Call{Key: "7", Costs: []int64{0, 0}, Each: each})
		require.NoError(t, err)
		require.EqualValues(t, 1, each[0].Used)
		require.EqualValues(t, 250, each[1].Used)
	})
}

// TestReserveAllLease: the lease of all keys is the longest that a part asks for. A length
// out of range is refused beside another too.
func TestReserveAllLease(t *testing.T) {
	now := time.Unix(1_745_000_000, 0)
	s := memory.New(&memory.Options{Now: func() time.Time { return now }})
	for _, s := range []backend.Store{s, oneKey(s)} {
		l, ctx := newLevels(t, s, nil), context.Background()
		user, org := l.user.Part("a"), l.org.Part("7")
		user.Call.Lease, org.Call.Lease = time.Second, time.Hour
		rs, _, err := headgate.ReserveAll(ctx, user, org)
		require.NoError(t, err)
		now = now.Add(30 * time.Minute)
		require.NoError(t, rs.Extend(ctx))
		require.NoError(t, rs.Close())
		for _, length := range []time.Duration{-time.Hour, time.Millisecond, 25 * time.Hour} {
			user.Call.Lease = length
			_, _, err := headgate.ReserveAll(ctx, user, org)
			var invalid *headgate.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, length, invalid.Value)
		}
	}
}

// TestAllObserved: one event, of the limiter whose key binds.
func TestAllObserved(t *testing.T) {
	forms(t, func(t *testing.T, s backend.Store) {
		var seen []headgate.Event
		l := newLevels(t, s, &headgate.Options{Observer: func(e headgate.Event) {
			if e.Type == headgate.EventDecision && e.Op != backend.Settle && e.Op != backend.Peek {
				seen = append(seen, e)
			}
		}})
		for range 6 {
			l.all(t, "a")
		}
		_, err := headgate.All(context.Background(), l.user.Part("a"), l.org.Part(""))
		require.Error(t, err)
		require.Len(t, seen, 7)
		for i, e := range seen[:6] {
			require.Equal(t, backend.Take, e.Op)
			require.Equal(t, "a", e.Key)
			require.Equal(t, "user", e.Policies[0].Name)
			require.Equal(t, i < 5, e.Decision.Allowed)
			require.LessOrEqual(t, e.StoreTime, e.Duration)
			require.Positive(t, e.StoreTime)
		}
		require.Equal(t, err, seen[6].Err)
	})
}

// TestAllOfShadows: the key of the shadow that binds is named.
func TestAllOfShadows(t *testing.T) {
	s := memory.New(nil)
	user, org := limiter(t, s, nil, dailyShadow("p", 100)), limiter(t, s, nil, dailyShadow("p", 1))
	calls := []headgate.Part{user.Part("user"), org.Part("org")}
	calls[1].Call.Each = make([]headgate.State, 1) // as an Observer makes it
	for range 2 {
		d, err := headgate.All(context.Background(), calls...)
		require.NoError(t, err)
		require.EqualValues(t, 1, d.Limit)
		require.Equal(t, "org", d.Key)
	}
}
