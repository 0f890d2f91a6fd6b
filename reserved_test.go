package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// jobStates are the states of a reservation under an ID of the caller's, with what each operation
// does and what is used then: the table of docs/guide.md. A job has reserved 4 units.
var jobStates = []struct {
	state                                     string
	used                                      int64
	reserve, commit, cancel, extend, delayed  error
	reserves, commits, cancels, extends, late int64 // used afterwards
}{
	{"never seen", 0, nil, headgate.ErrNotHeld, headgate.ErrNotHeld, headgate.ErrNotHeld, nil, 4, 0, 0, 0, 4},
	{"open", 4, nil, nil, nil, nil, nil, 4, 3, 0, 4, 4},
	{"settled", 3, nil, headgate.ErrNotHeld, headgate.ErrNotHeld, headgate.ErrNotHeld, headgate.ErrNotHeld, 7, 3, 3, 3, 3},
	{"ended", 4, nil, nil, nil, headgate.ErrLeaseEnded, nil, 8, 3, 0, 4, 8},
}

// TestReservedStates: each operation in each state, by a process that has not reserved.
func TestReservedStates(t *testing.T) {
	ctx, now := context.Background(), time.UnixMicro(1745000145_000000)
	client := redistest.Start(t).Client(t)
	for name, s := range map[string]backend.Store{
		"memory": memory.New(&memory.Options{Now: func() time.Time { return now }}),
		"redis":  standalone.New(clock.Client{Processor: client, Now: func() time.Time { return now }}, &standalone.Options{Budget: 10 * time.Second}),
	} {
		l, other := limiter(t, s, nil, daily("p", 10)), limiter(t, s, nil, daily("p", 10))
		for i, st := range jobStates {
			for j, op := range []string{"Reserve", "Commit", "Cancel", "Extend", "a delayed Reserve"} {
				c := headgate.Call{Key: fmt.Sprint(name, i, j), ID: "job 7", Costs: []int64{4}, Lease: time.Minute}
				late := delayed(t, c)
				time.Sleep(2 * time.Microsecond) // attempts are instants
				if st.state != "never seen" {
					_, d, err := l.Reserve(ctx, c)
					require.True(t, err == nil && d.Allowed)
				}
				switch st.state {
				case "settled":
					require.NoError(t, l.Reserved(c).Commit(ctx, 3))
				case "ended":
					now = now.Add(61 * time.Second)
				}
				time.Sleep(2 * time.Microsecond)
				d, err := other.Peek(ctx, headgate.Call{Key: c.Key})
				require.True(t, err == nil && d.Used == st.used)
				r := other.Reserved(c)
				want, used := st.reserve, st.reserves
				switch op {
				case "Reserve":
					_, d, err = other.Reserve(ctx, c)
					require.True(t, err != nil || d.Allowed, "%s of one that is %s: %+v", op, st.state, d)
				case "Commit":
					err, want, used = r.Commit(ctx, 3), st.commit, st.commits
				case "Cancel":
					err, want, used = r.Cancel(ctx), st.cancel, st.cancels
				case "Extend":
					err, want, used = r.Extend(ctx), st.extend, st.extends
				default:
					if err, want, used = s.Do(ctx, late, new(backend.Decision)), st.delayed, st.late; errors.Is(err, backend.ErrHeld) {
						err = nil
					}
				}
				require.ErrorIs(t, err, want, "%s: %s of one that is %s", name, op, st.state)
				if want == nil {
					require.NoError(t, err, "%s: %s of one that is %s", name, op, st.state)
				}
				d, err = l.Peek(ctx, headgate.Call{Key: c.Key})
				require.NoError(t, err)
				require.Equal(t, used, d.Used, "%s: %s of one that is %s", name, op, st.state)
			}
		}
	}
}

// TestReservedByToken: a reservation under an ID of the caller's that is settled by its token is
// reserved anew, but not by a Reserve that was sent before.
func TestReservedByToken(t *testing.T) {
	ctx := context.Background()
	for name, s := range map[string]backend.Store{"memory": memory.New(nil), "redis": unhurried(t, redistest.Start(t))} {
		l := limiter(t, s, nil, daily("p", 10))
		c := headgate.Call{Key: "k", ID: "job 7", Costs: []int64{4}}
		late := delayed(t, c)
		time.Sleep(2 * time.Microsecond) // attempts are instants
		for used := int64(3); used < 7; used += 3 {
			r, d, err := l.Reserve(ctx, c)
			require.True(t, err == nil && d.Allowed, "%s: %+v, %v", name, d, err)
			r, err = l.Resume(r.Token())
			require.NoError(t, err)
			require.NoError(t, r.Commit(ctx, 3))
			require.ErrorIs(t, s.Do(ctx, late, new(backend.Decision)), headgate.ErrNotHeld, name)
			requireCount(t, l, "k", used)
			time.Sleep(2 * time.Microsecond)
		}
	}
}

// delayed returns the Reserve of the call as it is sent now.
func delayed(t *testing.T, c headgate.Call) *backend.Request {
	var sent backend.Request
	s := &fake{Store: memory.New(nil)}
	s.do = func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		sent = *r
		lease := *r.Lease
		sent.Lease, sent.Costs, sent.Each = &lease, []int64{c.Costs[0]}, nil
		return next.Do(ctx, r, d)
	}
	_, _, err := limiter(t, s, nil, daily("p", 10)).Reserve(context.Background(), c)
	require.NoError(t, err)
	sent.Policies, sent.StoreTime = []backend.Policy{daily("p", 10)}, nil
	return &sent
}

// TestReservedIsRefused: other costs, other lists, several keys and waits.
func TestReservedIsRefused(t *testing.T) {
	ctx := context.Background()
	l := limiter(t, memory.New(nil), nil, daily("p", 10))
	c := headgate.Call{Key: "k", ID: "job", Costs: []int64{4}}
	_, _, err := l.Reserve(ctx, c)
	require.NoError(t, err)
	more := c
	more.Costs = []int64{5}
	_, _, err = l.Reserve(ctx, more)
	require.ErrorAs(t, err, new(*headgate.InvalidError))
	with, err := l.With(headgate.Policy{Name: "q", Algorithm: algo.FixedWindow(algo.PerDay(10)), OnFailure: headgate.FailOpen})
	require.NoError(t, err)
	_, _, err = with.Reserve(ctx, c)
	require.ErrorAs(t, err, new(*headgate.InvalidError))
	_, _, err = l.WaitReserve(ctx, c)
	require.ErrorAs(t, err, new(*headgate.InvalidError))
	_, _, err = headgate.ReserveAll(ctx, headgate.Part{Limiter: l, Call: c}, headgate.Part{Limiter: l, Call: headgate.Call{Key: "other"}})
	require.ErrorAs(t, err, new(*headgate.InvalidError))
	requireCount(t, l, "k", 4)
	require.NoError(t, l.Reserved(headgate.Call{Key: "k"}).Commit(ctx), "no ID: nothing to settle")
}

// TestReservedBesideADenial: a remembered denial of the key does not hide an open reservation.
// One whose answer is lost is not cancelled.
func TestReservedBesideADenial(t *testing.T) {
	ctx, w := context.Background(), lossyOf(memory.New(nil))
	s := remote(w)
	l := limiter(t, s, nil, headgate.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(4)), OnFailure: headgate.FailClosed})
	c := headgate.Call{Key: "k", ID: "job", Costs: []int64{4}}
	w.lose(0, onReserve)
	_, d, err := l.Reserve(ctx, c)
	require.True(t, err == nil && !d.Allowed && errors.Is(d.Err, headgate.ErrPerhapsCounted))
	w.lose(0, 0)
	require.Zero(t, headgate.Cancelling(l))
	requireDenied(t, l, "k")
	_, d, err = l.Reserve(ctx, c)
	require.True(t, err == nil && d.Allowed && d.Used == 4, "%+v, %v", d, err)
	require.NoError(t, l.Reserved(c).Cancel(ctx))
	requireCount(t, l, "k", 0)
}

// TestReservedOfOnePart: ReserveAll and ReserveFirst of one key, under an ID that is open, are the
// same reservation.
func TestReservedOfOnePart(t *testing.T) {
	ctx, l := context.Background(), limiter(t, memory.New(nil), nil, daily("p", 10))
	part := l.Part("k", 4)
	part.Call.ID = "job"
	for _, reserve := range []func(context.Context, ...headgate.Part) (headgate.Reservations, headgate.Decision, error){
		headgate.ReserveAll, headgate.ReserveFirst, headgate.ReserveAll,
	} {
		rs, d, err := reserve(ctx, part)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Len(t, rs, 1)
		requireCount(t, l, "k", 4)
	}
	rs, _, err := headgate.ReserveFirst(ctx, part)
	require.NoError(t, err)
	require.NoError(t, rs.Commit(ctx, []int64{3}))
	requireCount(t, l, "k", 3)
}

// TestReservedIsHeld: a process that has not reserved does not know when the lease began, so its Hold
// extends at once.
func TestReservedIsHeld(t *testing.T) {
	ctx, extended := context.Background(), make(chan struct{}, 1)
	s := &fake{Store: memory.New(nil)}
	s.do = func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		if r.Op == backend.Extend {
			extended <- struct{}{}
		}
		return next.Do(ctx, r, d)
	}
	l := limiter(t, s, nil, daily("p", 10))
	c := headgate.Call{Key: "k", ID: "job", Lease: time.Hour}
	_, _, err := l.Reserve(ctx, c)
	require.NoError(t, err)
	_, release := l.Reserved(c).Hold(ctx)
	defer release()
	select {
	case <-extended:
	case <-time.After(10 * time.Second):
		t.Fatal("the lease is not extended")
	}
}

// TestReservedOfWrongCalls: no method panics, and none counts.
func TestReservedOfWrongCalls(t *testing.T) {
	ctx, s := context.Background(), memory.New(nil)
	l := limiter(t, s, nil, daily("p", 10), headgate.Policy{Name: "slots", Algorithm: algo.InFlight(3), OnFailure: headgate.FailOpen})
	for _, c := range []headgate.Call{
		{Key: "k", ID: "job", Costs: []int64{1}},
		{Key: "k", ID: "job", Costs: []int64{1, 1, 1}},
		{Key: "k", ID: "job", Costs: []int64{-1, 1}},
		{Key: "", ID: "job"},
		{Key: "k", ID: "job", Lease: time.Nanosecond},
		{Key: "k", ID: "job", Lease: -time.Hour},
		{Key: "k", ID: "job", Lease: 1000 * time.Hour},
	} {
		for _, r := range []*headgate.Reservation{l.Reserved(c), new(headgate.Limiter).Reserved(c), (*headgate.Limiter)(nil).Reserved(c)} {
			held, release := r.Hold(ctx)
			release()
			<-held.Done()
			for _, err := range []error{r.Extend(ctx), r.Commit(ctx), r.Commit(ctx, 1), r.Commit(ctx, 1, 1), r.Cancel(ctx), r.Close()} {
				if err != nil && !errors.Is(err, headgate.ErrNotHeld) {
					require.ErrorAs(t, err, new(*headgate.InvalidError), "%+v", c)
				}
			}
			_ = r.Token()
		}
		_, _, err := l.Reserve(ctx, c)
		require.ErrorAs(t, err, new(*headgate.InvalidError), "%+v", c)
	}
	require.Zero(t, s.Len())
}

// TestReservedAfterReset: a Reset ends the reservation, and its ID is free when the lease has ended.
func TestReservedAfterReset(t *testing.T) {
	ctx, now := context.Background(), time.UnixMicro(1745000145_000000)
	client := redistest.Start(t).Client(t)
	for name, s := range map[string]backend.Store{
		"memory": memory.New(&memory.Options{Now: func() time.Time { return now }}),
		"redis":  standalone.New(clock.Client{Processor: client, Now: func() time.Time { return now }}, &standalone.Options{Budget: 10 * time.Second}),
	} {
		l, c := limiter(t, s, nil, daily("p", 10)), headgate.Call{Key: "k", ID: "job", Costs: []int64{4}}
		_, _, err := l.Reserve(ctx, c)
		require.NoError(t, err)
		require.NoError(t, l.Reset(ctx, "k"))
		for _, op := range []func() error{
			func() error { _, _, err := l.Reserve(ctx, c); return err },
			func() error { return l.Reserved(c).Extend(ctx) },
			func() error { return l.Reserved(c).Commit(ctx, 3) },
			func() error { _, _, err := l.Reserve(ctx, c); return err },
		} {
			require.ErrorIs(t, op(), headgate.ErrNotHeld, name)
			requireCount(t, l, "k", 0)
		}
		now = now.Add(time.Minute)
		_, d, err := l.Reserve(ctx, c)
		require.True(t, err == nil && d.Allowed && d.Used == 4, "%s: %+v, %v", name, d, err)
		require.NoError(t, l.Reserved(c).Commit(ctx, 3), name)
	}
}

// TestReservedBesideAnOutage: an open reservation passes also if the look at its counts is lost. No
// number is shown then.
func TestReservedBesideAnOutage(t *testing.T) {
	ctx, w := context.Background(), lossyOf(memory.New(nil))
	l := limiter(t, remote(w), nil, daily("p", 10))
	c := headgate.Call{Key: "k", ID: "job"}
	_, _, err := l.Reserve(ctx, c)
	require.NoError(t, err)
	w.lose(backend.OpsOf(backend.Peek), 0)
	r, d, err := l.Reserve(ctx, c)
	require.True(t, err == nil && d.Allowed && d.Source == headgate.FromStore && d.Err == nil && d.Known == backend.NotCounted, "%+v, %v", d, err)
	w.lose(0, 0)
	require.NoError(t, r.Commit(ctx))
}

// TestReservedThatFailedOpen: a reservation that passed by a failure mode is recorded by the Commit
// of its own handle. A handle of another process finds nothing before.
func TestReservedThatFailedOpen(t *testing.T) {
	ctx := context.Background()
	for _, m := range []headgate.FailureMode{headgate.FailOpen, headgate.FailLocal} {
		s := newDownStore()
		list := []headgate.Policy{
			{Name: "slots", Algorithm: algo.InFlight(3), OnFailure: m},
			{Name: "units", Algorithm: algo.FixedWindow(algo.Per(100, algo.MaxPeriod)), OnFailure: m},
		}
		l, other := limiter(t, s, &headgate.Options{Instances: 1}, list...), limiter(t, s, &headgate.Options{Instances: 1}, list...)
		s.down.Store(true)
		c := headgate.Call{Key: "k", ID: "job 7", Costs: []int64{1, 4}}
		r, d, err := l.Reserve(ctx, c)
		require.True(t, err == nil && d.Allowed && d.Err != nil)
		require.NoError(t, r.Extend(ctx), m)
		s.down.Store(false)
		require.NoError(t, r.Extend(ctx), m)
		require.ErrorIs(t, other.Reserved(c).Commit(ctx, 1, 6), headgate.ErrNotHeld)
		require.NoError(t, r.Commit(ctx, 1, 6), m)
		require.ErrorIs(t, other.Reserved(c).Commit(ctx, 1, 6), headgate.ErrNotHeld)
		each := make([]headgate.State, 2)
		_, err = other.Peek(ctx, headgate.Call{Key: "k", Costs: []int64{0, 0}, Each: each})
		require.NoError(t, err)
		require.EqualValues(t, 6, each[1].Used, m)
	}
}

// TestReservedIsNotClosedLater: a Close that no store decides does not end what another process
// reserves under the same ID meanwhile.
func TestReservedIsNotClosedLater(t *testing.T) {
	ctx, link := context.Background(), newLossy()
	list := []headgate.Policy{
		{Name: "slots", Algorithm: algo.InFlight(1), OnFailure: headgate.FailClosed},
		{Name: "units", Algorithm: algo.FixedWindow(algo.Per(100, algo.MaxPeriod)), OnFailure: headgate.FailClosed},
	}
	a, b := limiter(t, link, nil, list...), limiter(t, link.Store, nil, list...)
	c := headgate.Call{Key: "k", ID: "job 7", Costs: []int64{1, 4}}
	ra, d, err := a.Reserve(ctx, c)
	require.True(t, err == nil && d.Allowed)
	link.lose(onAll, 0)
	require.ErrorIs(t, ra.Close(), headgate.ErrUnavailable)
	rb, d, err := b.Reserve(ctx, c)
	require.True(t, err == nil && d.Allowed)
	link.lose(0, 0)
	require.Eventually(t, func() bool { return headgate.Cancelling(a) == 0 }, 5*time.Second, time.Millisecond)
	other := c
	other.ID = "job 8"
	_, d, err = b.Reserve(ctx, other)
	require.True(t, err == nil && !d.Allowed, "job 7 has the slot")
	require.NoError(t, rb.Commit(ctx, 1, 6))
}
