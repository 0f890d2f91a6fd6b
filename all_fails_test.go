package headgate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// two are limiters of users and organisations on stores of their own, each with its
// mode.
func two(t *testing.T, user, org backend.Store, userMode, orgMode headgate.FailureMode) levels {
	p, q := level("user", 4), level("org", 4)
	p.OnFailure, q.OnFailure = userMode, orgMode
	o := &headgate.Options{Instances: 2}
	return levels{user: limiter(t, user, o, p), org: limiter(t, org, o, q)}
}

func (l levels) both(t *testing.T) headgate.Decision {
	t.Helper()
	d, err := headgate.All(context.Background(), l.user.Part("u"), l.org.Part("o"))
	require.NoError(t, err)
	return d
}

// TestAllFails: a counted denial wins over a failure mode, and the modes speak for the
// keys that nobody counted.
func TestAllFails(t *testing.T) {
	const open, closed, local = headgate.FailOpen, headgate.FailClosed, headgate.FailLocal
	fill := func(l *headgate.Limiter, key string) {
		_, err := l.AllowN(context.Background(), key, 4)
		require.NoError(t, err)
	}
	for _, userMode := range []headgate.FailureMode{open, closed, local} {
		user := newLossy()
		user.lose(onReserve, 0)
		spared, asked := asking(oneKey(memory.New(nil)))
		l := two(t, user, spared, userMode, closed)
		d := l.both(t)
		require.Equal(t, userMode != closed, d.Allowed)
		require.Equal(t, "u", d.Key)
		require.False(t, d.Source == headgate.FromStore)
		require.ErrorIs(t, d.Err, headgate.ErrUnavailable)
		if userMode == closed {
			requireCount(t, l.org, "o", 0)
			require.Zero(t, asked.Load(), "it was only looked at")
		} else {
			requireCount(t, l.org, "o", 1)
		}
		l = two(t, user, memory.New(nil), userMode, closed)
		fill(l.org, "o")
		d = l.both(t)
		require.False(t, d.Allowed)
		require.Equal(t, "o", d.Key)
		require.Equal(t, headgate.FromStore, d.Source)

		org := newLossy()
		org.lose(onReserve, 0)
		l = two(t, memory.New(nil), org, closed, userMode)
		d = l.both(t)
		require.Equal(t, userMode != closed, d.Allowed)
		require.Equal(t, "o", d.Key)
		require.Eventually(t, func() bool { return headgate.Cancelling(l.user) == 0 }, 10*time.Second, time.Millisecond)
		if userMode == closed {
			requireCount(t, l.user, "u", 0)
		} else {
			requireCount(t, l.user, "u", 1)
		}
		for _, mode := range []headgate.FailureMode{open, closed, local} {
			l = two(t, user, org, userMode, mode)
			d = l.both(t)
			require.Equal(t, userMode != closed && mode != closed, d.Allowed)
			strictest := map[headgate.FailureMode]headgate.Source{open: headgate.FromFailOpen, closed: headgate.FromFailClosed, local: headgate.FromFailLocal}[mode]
			if userMode == closed || userMode == local && mode == open {
				strictest = map[headgate.FailureMode]headgate.Source{closed: headgate.FromFailClosed, local: headgate.FromFailLocal}[userMode]
			}
			require.Equal(t, strictest, d.Source)
		}
	}
}

// TestAllAtOnceFails: where one store decides all keys, each key has its own mode.
func TestAllAtOnceFails(t *testing.T) {
	s := newLossy()
	for _, mode := range []headgate.FailureMode{headgate.FailOpen, headgate.FailClosed, headgate.FailLocal} {
		l := two(t, s, s, headgate.FailOpen, mode)
		s.lose(backend.OpsOf(backend.Take), 0)
		d := l.both(t)
		require.Equal(t, mode != headgate.FailClosed, d.Allowed)
		require.ErrorIs(t, d.Err, headgate.ErrUnavailable)
		require.Equal(t, mode == headgate.FailOpen, d.Key == "u")
		s.lose(0, 0)
		requireCount(t, l.user, "u", 0)
	}
}

// TestAllPerhapsCounted: what may have been charged is given back if the call is
// denied, also where the Reserve arrives after its cancellation.
func TestAllPerhapsCounted(t *testing.T) {
	org := newLossy()
	l := two(t, memory.New(nil), org, headgate.FailClosed, headgate.FailClosed)
	org.lose(0, onReserve)
	require.False(t, l.both(t).Allowed)
	for _, k := range []*headgate.Limiter{l.user, l.org} {
		require.Eventually(t, func() bool { return headgate.Cancelling(k) == 0 }, 10*time.Second, time.Millisecond)
	}
	requireCount(t, l.user, "u", 0)
	requireCount(t, l.org, "o", 0)
	org.lose(overtaken, onReserve)
	require.False(t, l.both(t).Allowed)
	require.Eventually(t, func() bool { return headgate.Cancelling(l.org) == 0 }, 5*time.Second, time.Millisecond)
	org.lose(0, 0)
	_, err := org.arrive()
	require.ErrorIs(t, err, headgate.ErrNotHeld)
	requireCount(t, l.org, "o", 0)
}

// TestAllLocal: what a key let pass in this process is given back too.
func TestAllLocal(t *testing.T) {
	user := newLossy()
	user.lose(onReserve, 0)
	l := two(t, user, memory.New(nil), headgate.FailLocal, headgate.FailClosed)
	_, err := l.org.AllowN(context.Background(), "o", 4)
	require.NoError(t, err)
	for range 10 { // its share is 2
		require.Equal(t, headgate.FromStore, l.both(t).Source)
		require.Eventually(t, func() bool { return headgate.Cancelling(l.user) == 0 }, 10*time.Second, time.Millisecond)
	}
}

// TestAllCancelsBeyondBackground: where no more can be cancelled in the background, a
// denied call gives back before it returns.
func TestAllCancelsBeyondBackground(t *testing.T) {
	l := two(t, memory.New(nil), memory.New(nil), headgate.FailClosed, headgate.FailClosed)
	_, err := l.org.AllowN(context.Background(), "o", 4)
	require.NoError(t, err)
	free := headgate.FillAbandoned(l.user)
	defer free()
	require.False(t, l.both(t).Allowed)
	requireCount(t, l.user, "u", 0)
}

// TestAllErrorGivesBack: a key that refuses the call after another let it pass.
func TestAllErrorGivesBack(t *testing.T) {
	org := memory.New(nil)
	l := two(t, memory.New(nil), org, headgate.FailClosed, headgate.FailClosed)
	require.NoError(t, org.Close())
	_, err := headgate.All(context.Background(), l.user.Part("u"), l.org.Part("o"))
	require.ErrorIs(t, err, headgate.ErrClosed)
	require.Eventually(t, func() bool { return headgate.Cancelling(l.user) == 0 }, 10*time.Second, time.Millisecond)
	requireCount(t, l.user, "u", 0)
}

// TestAllBudget: several keys that don't answer cost one budget, not one each.
func TestAllBudget(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })
	const budget = time.Second
	s := func() backend.Store { return standalone.New(client, &standalone.Options{Budget: budget}) }
	l := levels{user: limiter(t, s(), nil, level("user", 1000)), org: limiter(t, s(), nil, level("org", 1000))}
	require.True(t, l.both(t).Allowed)
	proxy.Set(redistest.Delay(600 * time.Millisecond)) // one answer comes in time, a second does not
	late, begin := redistest.Lateness(t, budget), time.Now()
	d := l.both(t)
	took := time.Since(begin)
	require.False(t, d.Allowed)
	require.Equal(t, headgate.FromFailClosed, d.Source)
	require.Equal(t, "o", d.Key)
	require.True(t, errors.Is(d.Err, headgate.ErrPerhapsCounted) || errors.Is(d.Err, headgate.ErrUnavailable), "%v", d.Err)
	require.Less(t, took, budget+90*time.Millisecond+late.Max())
	proxy.Set(redistest.Pass)
	for _, k := range []*headgate.Limiter{l.user, l.org} {
		require.Eventually(t, func() bool { return headgate.Cancelling(k) == 0 }, 5*time.Second, time.Millisecond)
	}
	requireCount(t, l.user, "u", 1)
	requireCount(t, l.org, "o", 1)
}

// TestAllBudgetSpent: where the first key took all of the budget, the failure modes of
// the others decide.
func TestAllBudgetSpent(t *testing.T) {
	const budget = 50 * time.Millisecond
	s := standalone.New(redistest.Start(t).Client(t), &standalone.Options{Budget: budget})
	late := &fake{Store: s, shared: s.Shared(), do: func(context.Context, backend.Store, *backend.Request, *backend.Decision) error {
		time.Sleep(2 * budget)
		return backend.ErrUnavailable
	}}
	l := two(t, late, s, headgate.FailOpen, headgate.FailClosed)
	d := l.both(t)
	require.False(t, d.Allowed)
	require.Equal(t, "o", d.Key)
	require.Equal(t, headgate.FromFailClosed, d.Source)
	require.ErrorIs(t, d.Err, headgate.ErrUnavailable)
}

// perDay returns a limiter of a daily window, with one instance.
func perDay(t *testing.T, s backend.Store, m headgate.FailureMode, name string, limit int64) *headgate.Limiter {
	l, err := headgate.New(s, []headgate.Policy{{Name: name, Algorithm: algo.FixedWindow(algo.Per(limit, 24*time.Hour)), OnFailure: m}}, &headgate.Options{Instances: 1})
	require.NoError(t, err)
	return l
}

// TestReserveAllFailsLocal: the local lease of each key is settled.
func TestReserveAllFailsLocal(t *testing.T) {
	s := newDownStore()
	a := perDay(t, s, headgate.FailLocal, "a", 10)
	b, err := a.With(headgate.Policy{Name: "b", Algorithm: algo.InFlight(1), OnFailure: headgate.FailLocal})
	require.NoError(t, err)
	s.down.Store(true)
	for i := range 3 {
		rs, d, err := headgate.ReserveAll(context.Background(), a.Part("user", 1), b.Part("org", 1))
		require.NoError(t, err)
		require.True(t, d.Allowed, "call %d %+v", i, d)
		_ = rs.Close()
	}
}

// TestAllLocalGivesBack: a denied call is charged to none of its keys, in this process too.
func TestAllLocalGivesBack(t *testing.T) {
	s := newDownStore()
	user := perDay(t, s, headgate.FailLocal, "user", 3)
	org := perDay(t, s, headgate.FailClosed, "org", 10)
	s.down.Store(true)
	for range 3 {
		d, err := headgate.All(context.Background(), user.Part("u"), org.Part("o"))
		require.NoError(t, err)
		require.False(t, d.Allowed)
	}
	require.Eventually(t, func() bool { // what passed is given back in the background
		d, err := user.Peek(context.Background(), headgate.Call{Key: "u"})
		return err == nil && d.Source == headgate.FromFailLocal && d.Used == 0
	}, 10*time.Second, time.Millisecond)
}

// TestReservationsCommitRepeated: a Commit that failed for one key can be repeated.
func TestReservationsCommitRepeated(t *testing.T) {
	ctx, down := context.Background(), ""
	s := inMemory(func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		if r.Key == down {
			return backend.ErrUnavailable
		}
		return next.Do(ctx, r, d)
	})
	a := perDay(t, s, headgate.FailOpen, "a", 10)
	rs, d, err := headgate.ReserveAll(ctx, a.Part("user", 1), a.Part("org", 1))
	require.NoError(t, err)
	require.True(t, d.Allowed)
	down = "org"
	require.ErrorIs(t, rs.Commit(ctx), backend.ErrUnavailable)
	down = ""
	require.NoError(t, rs.Commit(ctx))
}
