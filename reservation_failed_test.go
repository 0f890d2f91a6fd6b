package headgate_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestFailedReservations: a reservation that passed by a failure mode is recorded by its
// Commit, once, by each algorithm and by three of them. The lease in this process ends
// with it.
func TestFailedReservations(t *testing.T) {
	for name, s := range map[string]backend.Store{"memory": memory.New(nil), "server": unhurried(t, redistest.Start(t))} {
		for i, list := range failing() {
			for _, mode := range []headgate.FailureMode{headgate.FailOpen, headgate.FailLocal} {
				t.Run(fmt.Sprint(name, "/", i, "/", mode), func(t *testing.T) { failedReservation(t, s, list, mode) })
			}
		}
	}
}

// failing are lists of one and of three policies.
func failing() (lists [][]headgate.Policy) {
	var each []headgate.Policy
	for i, k := range rule.Kinds() {
		a := k.Random(algo.PerDay(100), func(least, most int64) int64 { return min(max(least, 100), most) })
		if k.Queues() {
			a = algo.LeakyQueue(a.Limit(), a.Max(), time.Millisecond) // in which no unit waits
		}
		each = append(each, headgate.Policy{Name: fmt.Sprint("p", i), Algorithm: a})
		lists = append(lists, []headgate.Policy{each[i]})
		if i >= 2 {
			lists = append(lists, append([]headgate.Policy(nil), each[i-2:]...))
		}
	}
	return lists
}

func failedReservation(t *testing.T, on backend.Store, list []headgate.Policy, mode headgate.FailureMode) {
	ctx, s := context.Background(), lossyOf(on)
	list = slices.Clone(list)
	for i := range list {
		list[i].OnFailure = mode
	}
	l := limiter(t, s, &headgate.Options{Instances: 2}, list...)
	require.NoError(t, l.Reset(ctx, "k"))
	units := func(n int64) (all []int64) {
		for range list {
			all = append(all, n)
		}
		return all
	}
	s.lose(onAll, 0)
	r, d, err := l.Reserve(ctx, headgate.Call{Key: "k", Costs: units(40)}) // of a share of 50
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.False(t, d.Source == headgate.FromStore)
	_, d, err = l.Reserve(ctx, headgate.Call{Key: "k", Costs: units(40)})
	require.NoError(t, err)
	require.Equal(t, mode == headgate.FailOpen, d.Allowed)
	require.ErrorIs(t, r.Commit(ctx, units(25)...), headgate.ErrUnavailable)
	if mode == headgate.FailLocal {
		_, d, err = l.Reserve(ctx, headgate.Call{Key: "k", Costs: units(25)})
		require.NoError(t, err)
		require.True(t, d.Allowed, "the local lease was settled: %+v", d)
	}
	s.lose(0, 0)
	require.NoError(t, r.Commit(ctx, units(25)...))
	requireUsed(t, l, units(25)...)
	require.ErrorIs(t, r.Commit(ctx, units(25)...), headgate.ErrNotHeld)
	require.NoError(t, r.Close())
	requireUsed(t, l, units(25)...)
}

// losesThenRefuses returns a store that executes the first Settle and loses its answer. It
// refuses later ones until the cause is nil.
func losesThenRefuses(cause *atomic.Pointer[error], beside func()) *fake {
	var settles atomic.Int64
	return inMemory(func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		if r.Op != backend.Settle {
			return next.Do(ctx, r, d)
		}
		switch refusal, n := cause.Load(), settles.Add(1); {
		case n > 1 && refusal != nil:
			if n == 2 {
				beside()
			}
			return *refusal
		case n > 1:
			return next.Do(ctx, r, d)
		}
		err := next.Do(ctx, r, d)
		*d = backend.Decision{}
		return cmp.Or(err, backend.ErrPerhapsCounted)
	})
}

// TestRefusedAfterLostSettle: a settlement whose answer was lost stays perhaps counted while
// its repeats are refused, by whatever verb, and so is the same one beside it. The store that
// decides it ends that.
func TestRefusedAfterLostSettle(t *testing.T) {
	ctx := context.Background()
	for _, cause := range []error{
		backend.ErrUnavailable, &backend.RightError{Node: "n", Rights: []string{"+evalsha"}}, &backend.CorruptError{Key: "k"},
		backend.ErrClosed, fmt.Errorf("headgate: call not sent, not counted: %w", context.DeadlineExceeded),
	} {
		for name, settle := range map[string]func(*headgate.Reservation) error{
			"Commit":     func(r *headgate.Reservation) error { return r.Commit(ctx, 1, 450) },
			"CommitEach": func(r *headgate.Reservation) error { return r.CommitEach(ctx, make([]headgate.State, 2), 1, 450) },
			"Cancel":     func(r *headgate.Reservation) error { return r.Cancel(ctx) },
			"Close":      func(r *headgate.Reservation) error { return r.Close() },
			"all":        func(r *headgate.Reservation) error { return headgate.Reservations{r}.Commit(ctx, []int64{1, 450}) },
		} {
			t.Run(name+" "+cause.Error(), func(t *testing.T) {
				var refusal atomic.Pointer[error]
				refusal.Store(&cause)
				var settleNow func() error
				l := reserving(t, losesThenRefuses(&refusal, func() { requirePerhaps(t, settleNow()) }), headgate.FailClosed)
				r, _ := reserve(t, l, 400)
				settleNow = func() error { return settle(r) }
				for range 2 {
					requirePerhaps(t, settle(r))
				}
				requirePerhaps(t, r.Close())
				refusal.Store(nil)
				require.Eventually(t, func() bool { return r.Close() == nil }, 5*time.Second, time.Millisecond)
			})
		}
	}
}

// requirePerhaps requires an error that says nothing else of the count.
func requirePerhaps(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, headgate.ErrPerhapsCounted)
	require.NotErrorIs(t, err, headgate.ErrUnavailable)
}

// TestClosedAfterLostSettle: a Close whose store was closed repeats nothing in the background.
func TestClosedAfterLostSettle(t *testing.T) {
	ctx, s := context.Background(), newLossy()
	l := reserving(t, s, headgate.FailClosed)
	r, _ := reserve(t, l, 400)
	s.lose(0, onSettle)
	require.ErrorIs(t, r.Commit(ctx, 1, 450), headgate.ErrPerhapsCounted)
	s.lose(0, 0)
	require.NoError(t, s.Close())
	err := r.Close()
	require.ErrorIs(t, err, headgate.ErrPerhapsCounted)
	require.ErrorIs(t, err, headgate.ErrClosed)
	require.Eventually(t, func() bool { return headgate.Cancelling(l) == 0 }, 5*time.Second, time.Millisecond)
}

// TestRightRevokedAfterLostSettle: as TestRefusedAfterLostSettle, on a server that has charged
// the Commit and refuses its repeat.
func TestRightRevokedAfterLostSettle(t *testing.T) {
	server := redistest.Start(t)
	proxy, direct := redistest.NewProxy(t, server.Addr()), server.Client(t)
	ctx, client := context.Background(), server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })
	l := reserving(t, standalone.New(client, &standalone.Options{Budget: 500 * time.Millisecond}), headgate.FailClosed)
	r, d := reserve(t, l, 400)
	require.True(t, d.Allowed)
	proxy.Set(redistest.SwallowReply(3 * time.Second).Times(1))
	revoked := make(chan error, 1)
	time.AfterFunc(150*time.Millisecond, func() { revoked <- direct.Do(ctx, "acl", "setuser", "default", "-evalsha").Err() })
	err := r.Commit(ctx, 1, 450)
	require.NoError(t, <-revoked)
	require.ErrorIs(t, err, headgate.ErrPerhapsCounted)
	require.NotErrorIs(t, err, headgate.ErrUnavailable)
	require.ErrorContains(t, err, "NOPERM")
	require.ErrorIs(t, r.Commit(ctx, 1, 450), headgate.ErrPerhapsCounted)
	require.NoError(t, direct.Do(ctx, "acl", "setuser", "default", "+evalsha").Err())
	requireUsed(t, reserving(t, standalone.New(direct, patient), headgate.FailClosed), 1, 450)
	require.Eventually(t, func() bool { return r.Commit(ctx, 1, 450) == nil }, 5*time.Second, 10*time.Millisecond)
	requireUsed(t, reserving(t, standalone.New(direct, patient), headgate.FailClosed), 1, 450)
}
