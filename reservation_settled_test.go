package headgate_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

func daily(name string, n int64) headgate.Policy {
	return headgate.Policy{Name: name, Algorithm: algo.FixedWindow(algo.Per(n, 24*time.Hour)), OnFailure: headgate.FailOpen}
}

// TestCommitOfOtherCosts: another settlement by the same handle is ErrNotHeld, each time, and
// the one that won is nil each time.
func TestCommitOfOtherCosts(t *testing.T) {
	ctx := context.Background()
	a := perDay(t, memory.New(nil), headgate.FailOpen, "a", 10)
	rs, d, err := headgate.ReserveAll(ctx, a.Part("user", 1), a.Part("org", 1))
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.NoError(t, rs.Commit(ctx, []int64{2}, []int64{2}))
	require.ErrorIs(t, rs.Commit(ctx, []int64{5}, []int64{5}), headgate.ErrNotHeld)
	t.Run("other", func(t *testing.T) {
		require.ErrorIs(t, rs.Commit(ctx, []int64{5}, []int64{5}), headgate.ErrNotHeld)
	})
	t.Run("same", func(t *testing.T) { require.NoError(t, rs.Commit(ctx, []int64{2}, []int64{2})) })
	d, err = a.Peek(ctx, headgate.Call{Key: "user"})
	require.NoError(t, err)
	require.EqualValues(t, 2, d.Used)
}

// TestCommitRace: of concurrent Commits of several keys one wins, and only it gets nil.
func TestCommitRace(t *testing.T) {
	ctx := context.Background()
	for range 300 {
		a := perDay(t, memory.New(nil), headgate.FailOpen, "a", 100)
		rs, _, err := headgate.ReserveAll(ctx, a.Part("user", 1), a.Part("org", 1))
		require.NoError(t, err)
		errs := make([]error, 4)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Add(1)
			go func() { defer wg.Done(); errs[i] = rs[0].Commit(ctx, int64(10+i)) }()
		}
		wg.Wait()
		won := -1
		for i, err := range errs {
			if err == nil {
				require.Equal(t, -1, won)
				won = i
			}
		}
		d, err := a.Peek(ctx, headgate.Call{Key: "user"})
		require.NoError(t, err)
		require.EqualValues(t, 10+won, d.Used)
		require.NoError(t, rs[1].Cancel(ctx))
		require.NoError(t, headgate.Reservations{rs[0]}.Commit(ctx, []int64{int64(10 + won)}))
	}
}

// TestCloseAfterRefusedCommit: Close repeats a Commit that failed, also where one that
// was refused came after it.
func TestCloseAfterRefusedCommit(t *testing.T) {
	ctx := context.Background()
	s := newDownStore()
	l := perDay(t, s, headgate.FailOpen, "a", 10)
	r, d, err := l.Reserve(ctx, headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.True(t, d.Allowed)
	s.down.Store(true)
	require.Error(t, r.Commit(ctx, 5))
	s.down.Store(false)
	require.ErrorAs(t, r.Commit(ctx, -1), new(*headgate.InvalidError))
	require.NoError(t, r.Close())
	d, err = l.Peek(ctx, headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.EqualValues(t, 5, d.Used)
}

// TestExtendAfterCommit: Extend of a settled reservation is ErrNotHeld.
func TestExtendAfterCommit(t *testing.T) {
	ctx := context.Background()
	s := newDownStore()
	l := perDay(t, s, headgate.FailOpen, "a", 10)
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprint("down=", down), func(t *testing.T) {
			s.down.Store(down)
			r, d, err := l.Reserve(ctx, headgate.Call{Key: "k"})
			require.NoError(t, err)
			require.True(t, d.Allowed)
			s.down.Store(false)
			require.NoError(t, r.Commit(ctx, 1))
			require.ErrorIs(t, r.Extend(ctx), headgate.ErrNotHeld)
		})
	}
}

// TestRefusedCommitFailsLocal: a refused Commit changes no count of this process.
func TestRefusedCommitFailsLocal(t *testing.T) {
	ctx := context.Background()
	s := newDownStore()
	a := daily("a", 10)
	a.OnFailure = headgate.FailLocal
	l, err := headgate.New(s, []headgate.Policy{a, daily("b", 10)}, &headgate.Options{Instances: 1})
	require.NoError(t, err)
	s.down.Store(true)
	r, d, err := l.Reserve(ctx, headgate.Call{Key: "k", Costs: []int64{1, 1}})
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.ErrorAs(t, r.Commit(ctx, 9, -1), new(*headgate.InvalidError))
	each := make([]headgate.State, 2)
	p, err := l.Peek(ctx, headgate.Call{Key: "k", Each: each})
	require.NoError(t, err)
	require.Equal(t, headgate.FromFailLocal, p.Source)
	require.EqualValues(t, 1, each[0].Used)
}

// TestCommitRepeatedAfterAnother: a settlement that was lost is repeated as the same one,
// also where another was tried in between.
func TestCommitRepeatedAfterAnother(t *testing.T) {
	ctx := context.Background()
	for name, between := range map[string]func(*lossy, *headgate.Reservation) error{
		"unreachable": func(s *lossy, r *headgate.Reservation) error {
			s.lose(onSettle, 0)
			return r.Cancel(ctx)
		},
		"not held": func(s *lossy, r *headgate.Reservation) error {
			s.lose(0, 0)
			return r.Commit(ctx, 1, 7)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLossy()
			l := reserving(t, s, headgate.FailClosed)
			r, _ := reserve(t, l, 40)
			s.lose(0, onSettle)
			require.ErrorIs(t, r.Commit(ctx, 1, 25), headgate.ErrPerhapsCounted)
			require.Error(t, between(s, r))
			s.lose(0, 0)
			require.NoError(t, r.Commit(ctx, 1, 25))
			requireUsed(t, l, 1, 25)
			s.lose(onSettle, 0)
			require.ErrorIs(t, r.Commit(ctx, 1, 25), headgate.ErrNotHeld, "no store is asked")
		})
	}
}

// TestCloseAfterRefusedCommitBeside: Close repeats a Commit that failed while one that was
// refused was under way.
func TestCloseAfterRefusedCommitBeside(t *testing.T) {
	ctx := context.Background()
	s := newDownStore()
	l := perDay(t, s, headgate.FailOpen, "a", 10)
	r, _, err := l.Reserve(ctx, headgate.Call{Key: "k"})
	require.NoError(t, err)
	s.down.Store(true)
	s.before = func(request *backend.Request) {
		if request.Op == backend.Settle && request.Lease.Actual[0] < 0 {
			require.ErrorIs(t, r.Commit(ctx, 5), headgate.ErrUnavailable)
		}
	}
	require.ErrorAs(t, r.Commit(ctx, -1), new(*headgate.InvalidError))
	s.down.Store(false)
	require.NoError(t, r.Close())
	requireCount(t, l, "k", 5)
}

// TestExcessOfCommitsBeside: of concurrent Commits of one handle one wins, also where both
// are alike, and the excess is charged once.
func TestExcessOfCommitsBeside(t *testing.T) {
	ctx := context.Background()
	s, both := newDownStore(), new(sync.WaitGroup)
	l := limiter(t, s, nil, daily("a", 400))
	r, _, err := l.Reserve(ctx, headgate.Call{Key: "k", Costs: []int64{2}})
	require.NoError(t, err)
	both.Add(2)
	s.before = func(r *backend.Request) {
		if r.Op == backend.Settle {
			both.Done()
			both.Wait()
		}
	}
	errs := make(chan error)
	for range 2 {
		go func() { errs <- r.Commit(ctx, 10) }()
	}
	first, second := <-errs, <-errs
	if first != nil {
		first, second = second, first
	}
	require.NoError(t, first)
	require.ErrorIs(t, second, headgate.ErrNotHeld)
	requireCount(t, l, "k", 10)
}

// TestCommitOfNoReservations: a list may hold a reservation that holds nothing.
func TestCommitOfNoReservations(t *testing.T) {
	require.NoError(t, headgate.Reservations{nil, {}}.Commit(context.Background(), []int64{1}, nil))
}

// TestRefusedCommitBesideShadow: a Commit that is refused for one policy settles no other,
// whether that one is a shadow or not.
func TestRefusedCommitBesideShadow(t *testing.T) {
	ctx := context.Background()
	l := limiter(t, memory.New(nil), nil, daily("calls", 10), dailyShadow("tokens", 100))
	r, _ := reserve(t, l, 40)
	for _, wrong := range [][]int64{{-1, 5}, {1, -5}} {
		require.ErrorAs(t, r.Commit(ctx, wrong...), new(*headgate.InvalidError))
		requireUsed(t, l, 1, 40)
	}
	require.NoError(t, r.Commit(ctx, 1, 25))
	requireUsed(t, l, 1, 25)
}

// TestGivenBackManyTimes: what settlements give back may add up to many times the limit.
func TestGivenBackManyTimes(t *testing.T) {
	l := algo.Per(1_000_000, algo.MaxPeriod)
	for name, s := range map[string]backend.Store{"memory": memory.New(nil), "server": standalone.New(redistest.Start(t).Client(t), patient)} {
		for _, a := range []algo.Algorithm{algo.SlidingLog(l), algo.CompactLog(l), algo.FixedWindow(l), algo.SlidingWindow(l), algo.BucketedWindow(l, 60), algo.TokenBucket(l, 1_000_000)} {
			t.Run(name+"/"+a.Kind().String(), func(t *testing.T) {
				ctx := context.Background()
				l := limiter(t, s, nil, headgate.Policy{Name: "p", Algorithm: a, OnFailure: headgate.FailClosed})
				_, err := l.Allow(ctx, "k") // the oldest call, which stays
				require.NoError(t, err)
				for i := range 100 {
					var rs [2]*headgate.Reservation
					for j := range rs { // two, so that the first is not the newest when it is cancelled
						r, d, err := l.Reserve(ctx, headgate.Call{Key: "k", Costs: []int64{450_000}})
						require.NoError(t, err)
						require.True(t, d.Allowed, "%d: %+v", i, d)
						rs[j] = r
					}
					require.NoError(t, rs[0].Cancel(ctx))
					require.NoError(t, rs[1].Cancel(ctx))
					d, err := l.Peek(ctx, headgate.Call{Key: "k"})
					require.NoError(t, err)
					require.EqualValues(t, 1, d.Used, "%d: %+v", i, d)
				}
			})
		}
	}
}
