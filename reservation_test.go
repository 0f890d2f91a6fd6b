package headgate_test

import (
	"context"
	"encoding/base64"
	"errors"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

func reserving(t *testing.T, s backend.Store, mode headgate.FailureMode) *headgate.Limiter {
	return limiter(t, s, &headgate.Options{Instances: 2},
		headgate.Policy{Name: "calls", Algorithm: algo.SlidingLog(algo.PerDay(100)), OnFailure: mode},
		headgate.Policy{Name: "tokens", Algorithm: algo.FixedWindow(algo.PerDay(1000)), OnFailure: mode})
}

// requireUsed requires what the limiter's policies count.
func requireUsed(t *testing.T, l *headgate.Limiter, want ...int64) {
	t.Helper()
	each := make([]headgate.State, len(want))
	_, err := l.Peek(context.Background(), headgate.Call{Key: "k", Costs: make([]int64, len(want)), Each: each})
	require.NoError(t, err)
	for i := range want {
		require.Equal(t, want[i], each[i].Used, each[i].Policy)
	}
}

func reserve(t *testing.T, l *headgate.Limiter, tokens int64) (*headgate.Reservation, headgate.Decision) {
	t.Helper()
	r, d, err := l.Reserve(context.Background(), headgate.Call{Key: "k", Costs: []int64{1, tokens}})
	require.NoError(t, err)
	return r, d
}

// TestReservation in its ways to end.
func TestReservation(t *testing.T) {
	ctx, l := context.Background(), reserving(t, memory.New(nil), headgate.FailClosed)
	r, d := reserve(t, l, 400)
	require.True(t, d.Allowed)
	require.NoError(t, r.Extend(ctx))
	require.ErrorAs(t, r.Commit(ctx, 1), new(*headgate.InvalidError))
	require.ErrorAs(t, r.Commit(ctx, 1, -1), new(*headgate.InvalidError))
	require.NoError(t, r.Commit(ctx, 1, 250))
	requireUsed(t, l, 1, 250)
	require.ErrorIs(t, r.Commit(ctx, 1, 250), headgate.ErrNotHeld)
	require.ErrorIs(t, r.Cancel(ctx), headgate.ErrNotHeld)
	require.ErrorIs(t, r.Extend(ctx), headgate.ErrNotHeld)
	require.NoError(t, r.Close())

	r, _ = reserve(t, l, 400)
	require.NoError(t, r.Commit(ctx))
	requireUsed(t, l, 2, 650)
	r, _ = reserve(t, l, 350)
	require.NoError(t, r.Close())
	requireUsed(t, l, 2, 650)
	r, _ = reserve(t, l, 350)
	require.NoError(t, r.Commit(ctx, 1, 500))
	requireUsed(t, l, 3, 1150)
	r, d = reserve(t, l, 1)
	require.False(t, d.Allowed)
	requireInert(t, r)

	r, _ = reserve(t, reserving(t, memory.New(nil), headgate.FailClosed), 350)
	require.ErrorAs(t, r.Commit(ctx, 1, -1), new(*headgate.InvalidError))
	require.NoError(t, r.Close(), "cancels, since the Commit was refused")
	require.ErrorIs(t, r.Commit(ctx), headgate.ErrNotHeld)
}

// TestReservationOnAServer: rates and slots in one reservation, settled by its text, and
// a spent key's flood of them answered from memory.
func TestReservationOnAServer(t *testing.T) {
	ctx, server := context.Background(), redistest.Start(t)
	l := limiter(t, unhurried(t, server), nil,
		headgate.Policy{Name: "running", Algorithm: algo.InFlight(2), OnFailure: headgate.FailClosed},
		headgate.Policy{Name: "tokens", Algorithm: algo.SlidingLog(algo.PerDay(1000)), OnFailure: headgate.FailClosed})
	r, d := reserve(t, l, 400)
	require.True(t, d.Allowed, "%+v", d)
	requireUsed(t, l, 1, 400)
	require.NoError(t, r.Extend(ctx))
	resumed, err := l.Resume(r.Token())
	require.NoError(t, err)
	require.NoError(t, resumed.Commit(ctx, 1, 1000))
	require.ErrorIs(t, r.Commit(ctx, 1, 250), headgate.ErrNotHeld)
	requireUsed(t, l, 0, 1000)
	for range 20 {
		r, d = reserve(t, l, 1)
		require.False(t, d.Allowed)
		requireInert(t, r)
	}
	require.EqualValues(t, 19, l.Stats().DenyCache)
	_, err = l.AllowAtMost(ctx, "k", 1)
	require.Error(t, err)
	server.NoImmortals(t)
}

// requireInert requires that there is nothing to settle, and that nothing panics.
func requireInert(t *testing.T, r *headgate.Reservation) {
	t.Helper()
	ctx := context.Background()
	require.NoError(t, r.Commit(ctx, 1, 2, 3))
	require.NoError(t, r.Cancel(ctx))
	require.NoError(t, r.Close())
	require.Empty(t, r.Token())
	require.ErrorIs(t, r.Extend(ctx), headgate.ErrNotHeld)
}

func TestZeroReservation(t *testing.T) {
	requireInert(t, nil)
	requireInert(t, &headgate.Reservation{})
	var zero headgate.Limiter
	r, _, err := zero.Reserve(context.Background(), headgate.Call{Key: "k"})
	require.ErrorAs(t, err, new(*headgate.InvalidError))
	requireInert(t, r)
	_, err = zero.Resume("AQ")
	require.ErrorAs(t, err, new(*headgate.InvalidError))
	l := reserving(t, memory.New(nil), headgate.FailClosed)
	for _, c := range []headgate.Call{
		{}, {Key: "k", Lease: time.Millisecond}, {Key: "k", Lease: 25 * time.Hour}, {Key: "k", Costs: []int64{1}},
	} {
		r, _, err := l.Reserve(context.Background(), c)
		require.ErrorAs(t, err, new(*headgate.InvalidError), "%+v", c)
		requireInert(t, r)
	}
	var none context.Context
	r, _, err = l.Reserve(none, headgate.Call{Key: "k"})
	require.Error(t, err)
	requireInert(t, r)
}

// TestSlots: a call that is denied a slot takes nothing of any policy, and only
// Reserve asks for one.
func TestSlots(t *testing.T) {
	ctx := context.Background()
	l := limiter(t, memory.New(nil), nil,
		headgate.Policy{Name: "running", Algorithm: algo.InFlight(2), OnFailure: headgate.FailClosed},
		headgate.Policy{Name: "calls", Algorithm: algo.FixedWindow(algo.PerDay(100)), OnFailure: headgate.FailClosed})
	first, _, err := l.Reserve(ctx, headgate.Call{Key: "k"})
	require.NoError(t, err)
	_, _, err = l.Reserve(ctx, headgate.Call{Key: "k", Lease: time.Hour})
	require.NoError(t, err)
	_, d, err := l.Reserve(ctx, headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.Equal(t, "running", d.Policy)
	require.False(t, d.Allowed)
	require.InDelta(t, time.Minute, d.RetryAfter, float64(time.Second))
	requireUsed(t, l, 2, 2)
	require.NoError(t, first.Commit(ctx))
	requireUsed(t, l, 1, 2)
	for _, wrong := range []func() error{
		func() error { _, err := l.Allow(ctx, "k"); return err },
		func() error { _, err := l.AllowAtMost(ctx, "k", 1); return err },
		func() error { _, err := l.Record(ctx, headgate.Call{Key: "k"}); return err },
	} {
		require.ErrorAs(t, wrong(), new(*headgate.InvalidError))
	}
	requireUsed(t, l, 1, 2)
}

// TestRecordAndAtMost: a record passes the limit, and an AllowAtMost grants the rest.
func TestRecordAndAtMost(t *testing.T) {
	ctx, l := context.Background(), limiter(t, memory.New(nil), nil, hourly)
	d, err := l.AllowAtMost(ctx, "k", 7)
	require.NoError(t, err)
	require.EqualValues(t, 7, d.Passed)
	d, err = l.AllowAtMost(ctx, "k", 7)
	require.NoError(t, err)
	require.EqualValues(t, 3, d.Passed)
	d, err = l.AllowAtMost(ctx, "k", 7)
	require.NoError(t, err)
	require.False(t, d.Allowed)
	d, err = l.Record(ctx, headgate.Call{Key: "k", Costs: []int64{15}})
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.EqualValues(t, 25, d.Used)
}

// TestReserveUnsupported: a store without reservations refuses them, and a policy that
// needs them.
func TestReserveUnsupported(t *testing.T) {
	s := &fake{Store: memory.New(nil), can: &backend.Basic, do: func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		if err := r.Check(ctx, backend.Basic); err != nil {
			return err
		}
		return next.Do(ctx, r, d)
	}}
	l := limiter(t, s, nil, hourly)
	r, _, err := l.Reserve(context.Background(), headgate.Call{Key: "k"})
	require.ErrorIs(t, err, headgate.ErrUnsupported)
	requireInert(t, r)
	_, err = headgate.New(s, []headgate.Policy{{Name: "p", Algorithm: algo.InFlight(2), OnFailure: headgate.FailOpen}}, nil)
	require.ErrorIs(t, err, headgate.ErrUnsupported)
}

// TestReserveFailsOpen: what passed uncounted is recorded by its Commit, and nothing by
// its Close.
func TestReserveFailsOpen(t *testing.T) {
	ctx, s := context.Background(), newLossy()
	l := reserving(t, s, headgate.FailOpen)
	s.lose(onAll, 0)
	committed, d := reserve(t, l, 400)
	require.True(t, d.Allowed)
	require.Equal(t, headgate.FromFailOpen, d.Source)
	closed, _ := reserve(t, l, 400)
	require.ErrorIs(t, committed.Commit(ctx, 1, 250), headgate.ErrUnavailable)
	require.NoError(t, committed.Extend(ctx))
	s.lose(0, 0)
	require.NoError(t, committed.Extend(ctx))
	require.NoError(t, committed.Commit(ctx, 1, 250))
	require.NoError(t, closed.Close())
	requireUsed(t, l, 1, 250)
	require.ErrorIs(t, committed.Commit(ctx, 1, 250), headgate.ErrNotHeld)
}

// TestLostReserve: the outcome is exact, whether the lost call had been charged or
// arrives later.
func TestLostReserve(t *testing.T) {
	ctx := context.Background()
	for _, late := range []bool{false, true} {
		s := newLossy()
		l := reserving(t, s, headgate.FailOpen)
		s.lose(0, onReserve)
		if late {
			s.lose(overtaken, onReserve)
		}
		r, d := reserve(t, l, 400)
		require.True(t, d.Allowed)
		require.ErrorIs(t, d.Err, headgate.ErrPerhapsCounted)
		s.lose(0, 0)
		require.NoError(t, r.Commit(ctx, 1, 250))
		if late {
			_, err := s.arrive()
			require.ErrorIs(t, err, headgate.ErrNotHeld)
		}
		requireUsed(t, l, 1, 250)
	}
}

// TestLostReserveDenied: what the caller was told is a denial gives back what it
// charged, by itself.
func TestLostReserveDenied(t *testing.T) {
	for _, late := range []bool{false, true} {
		s := newLossy()
		l := reserving(t, s, headgate.FailClosed)
		s.lose(0, onReserve|onSettle)
		if late {
			s.lose(overtaken, onReserve|onSettle)
		}
		r, d := reserve(t, l, 400)
		require.False(t, d.Allowed)
		requireInert(t, r)
		s.lose(0, 0)
		if !late {
			require.Eventually(t, func() bool {
				d, err := l.Peek(context.Background(), headgate.Call{Key: "k"})
				return err == nil && d.Used == 0
			}, 5*time.Second, time.Millisecond)
			continue
		}
		require.Eventually(t, func() bool {
			_, err := s.arrive()
			if err == nil { // it was faster than its cancellation
				return false
			}
			return errors.Is(err, headgate.ErrNotHeld)
		}, 5*time.Second, 30*time.Millisecond)
		require.Eventually(t, func() bool {
			d, err := l.Peek(context.Background(), headgate.Call{Key: "k"})
			return err == nil && d.Used == 0
		}, 5*time.Second, time.Millisecond)
	}
}

// TestLostSettle: a settlement whose answer was lost is asked for once more, and
// counts once. What stays unknown can be repeated.
func TestLostSettle(t *testing.T) {
	ctx, s := context.Background(), newLossy()
	l := reserving(t, s, headgate.FailClosed)
	r, _ := reserve(t, l, 400)
	s.lose(0, onSettle)
	require.ErrorIs(t, r.Commit(ctx, 1, 450), headgate.ErrPerhapsCounted)
	s.lose(0, 0)
	require.NoError(t, r.Commit(ctx, 1, 450))
	requireUsed(t, l, 1, 450)

	r, _ = reserve(t, l, 400)
	s.lose(onSettle, 0)
	require.ErrorIs(t, r.Commit(ctx, 1, 300), headgate.ErrUnavailable)
	s.lose(0, 0)
	require.NoError(t, r.Close(), "sends the Commit again")
	requireUsed(t, l, 2, 750)

	r, _ = reserve(t, l, 20)
	left, leave := context.WithCancel(ctx)
	leave() // the client of the request is gone
	require.ErrorIs(t, r.Commit(left, 1, 10), context.Canceled)
	require.NoError(t, r.Close(), "sends the Commit again")
	requireUsed(t, l, 3, 760)

	l = reserving(t, onceLossy(backend.Settle), headgate.FailClosed)
	r, _ = reserve(t, l, 400)
	require.NoError(t, r.Commit(ctx, 1, 450))
	requireUsed(t, l, 1, 450)
}

// TestReserveFailsLocal: the lease in this process and the one in the store are both
// settled.
func TestReserveFailsLocal(t *testing.T) {
	ctx, s := context.Background(), newLossy()
	l := reserving(t, s, headgate.FailLocal)
	s.lose(onAll, 0)
	r, d := reserve(t, l, 400) // of a share of 500
	require.True(t, d.Allowed)
	require.Equal(t, headgate.FromFailLocal, d.Source)
	_, d = reserve(t, l, 400)
	require.False(t, d.Allowed)
	require.ErrorIs(t, r.Commit(ctx, 1, 50), headgate.ErrUnavailable)
	_, d = reserve(t, l, 400)
	require.True(t, d.Allowed, "the local lease was settled")
	s.lose(0, 0)
	require.NoError(t, r.Commit(ctx, 1, 50))
	requireUsed(t, l, 1, 50)
}

// TestToken: another process settles by the text of a reservation.
func TestToken(t *testing.T) {
	ctx, s := context.Background(), memory.New(nil)
	key := []byte("0123456789abcdef")
	policies := reserving(t, s, headgate.FailClosed).Policies()
	signed := limiter(t, s, &headgate.Options{TokenKey: key}, policies...)
	for _, l := range []*headgate.Limiter{reserving(t, s, headgate.FailClosed), signed} {
		require.NoError(t, l.Reset(ctx, "k"))
		r, _ := reserve(t, l, 400)
		token := r.Token()
		other, err := l.Resume(token)
		require.NoError(t, err)
		require.Equal(t, token, other.Token())
		require.NoError(t, other.Extend(ctx))
		require.NoError(t, other.Commit(ctx, 1, 250))
		require.ErrorIs(t, r.Commit(ctx, 1, 250), headgate.ErrNotHeld)
		requireUsed(t, l, 1, 250)
		for _, bad := range []string{"", "?", token[:len(token)-1], token + "A", token[1:], "AQ", "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"} {
			r, err := l.Resume(bad)
			require.ErrorAs(t, err, new(*headgate.InvalidError), bad)
			requireInert(t, r)
		}
	}
	r, _ := reserve(t, signed, 1)
	forged := []byte(r.Token())
	forged[10] ^= 1
	_, err := signed.Resume(string(forged))
	require.ErrorAs(t, err, new(*headgate.InvalidError))
	_, err = headgate.New(s, policies, &headgate.Options{TokenKey: []byte("short")})
	require.ErrorAs(t, err, new(*headgate.InvalidError))
}

// TestReservationEvents: each step is an event of its operation.
func TestReservationEvents(t *testing.T) {
	ctx, seen := context.Background(), &events{}
	l := limiter(t, memory.New(nil), &headgate.Options{Observer: seen.observe}, hourly)
	r, _, err := l.Reserve(ctx, headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.NoError(t, r.Extend(ctx))
	require.NoError(t, r.Commit(ctx, 1))
	_, err = l.Record(ctx, headgate.Call{Key: "k"})
	require.NoError(t, err)
	_, err = l.AllowAtMost(ctx, "k", 3)
	require.NoError(t, err)
	var ops []backend.Op
	for _, e := range seen.of(headgate.EventDecision) {
		require.Equal(t, "k", e.Key)
		ops = append(ops, e.Op)
	}
	require.Equal(t, []backend.Op{backend.Reserve, backend.Extend, backend.Settle, backend.Record, backend.AtMost}, ops)
}

// TestTokenOfNoLength: a lease length out of range is refused.
func TestTokenOfNoLength(t *testing.T) {
	l, err := headgate.New(memory.New(nil), []headgate.Policy{{Name: "s", Algorithm: algo.InFlight(1), OnFailure: headgate.FailOpen}}, nil)
	require.NoError(t, err)
	b := append([]byte{1, 0}, make([]byte, 16)...)
	b[5] = 1
	b = append(b, 0, 1, 'k', 0, 0, 2, 1, 's') // length 0, key k, no sub-keys, cost 1 of s
	_, err = l.Resume(base64.RawURLEncoding.EncodeToString(b))
	require.Error(t, err)
}
