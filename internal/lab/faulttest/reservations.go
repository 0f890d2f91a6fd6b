package faulttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// LostLeases is LostReservations while replies of every operation of a lease are lost.
// They are swallowed for longer than the budget, cut, or reset, each 33rd, in short tests
// each third. A control that settles under another ID than it reserved by must fail.
func LostLeases(t *testing.T, through, direct backend.Store, network Network, budget time.Duration) {
	ways := []redistest.Fault{redistest.SwallowReply(budget * 3 / 2), redistest.ResetAfterRequest, redistest.HalfReply}
	lose := func() (undo func()) {
		var trips atomic.Int64
		network.Set(redistest.Draw(func() redistest.Fault {
			if trips.Add(1)%int64(redistest.Steps(3, 33)) != 0 {
				return redistest.Pass
			}
			return ways[rand.IntN(len(ways))]
		}))
		return func() { network.Set(redistest.Pass) }
	}
	t.Run("replies", func(t *testing.T) { LostReservations(t, through, direct, lose) })
	t.Run("control", func(t *testing.T) {
		r, wrong := reserveAll(t, forgetful{through}, direct, lose), 0
		for n := range r.used {
			if n%2 == 1 && r.wrong(n) != "" { // fails open, so nothing is left to cancel
				wrong++
			}
		}
		t.Logf("of %d reservations %d are counted wrongly without IDs", len(r.used), wrong)
		require.Positive(t, wrong, "a control without IDs must count wrongly")
	})
}

// StopBriefly stops a server for 2 s, in short tests for 0.4 s. undo waits until it
// runs again.
func StopBriefly(server *redistest.Server) (undo func()) {
	server.Stop()
	awake := make(chan struct{})
	stopped := time.Duration(redistest.Steps(400, 2000)) * time.Millisecond
	time.AfterFunc(stopped, func() { server.Cont(); close(awake) })
	return func() { <-awake }
}

// forgetful settles an unresolved lease under another ID.
type forgetful struct{ backend.Store }

func (f forgetful) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	own := *r
	if r.Op == backend.Settle && r.Lease.Unresolved {
		lease := *r.Lease
		lease.ID[15] ^= 1
		own.Lease = &lease
	}
	return f.Store.Do(ctx, &own, d)
}

// LostReservations reserves, extends, commits and cancels through a disturbance, by
// limiters that fail open and closed. Once undo has returned, each key's count is
// what was used. Nothing was charged or given back twice, and what was denied without
// an answer was cancelled in the background.
func LostReservations(t *testing.T, through, direct backend.Store, disturb func() (undo func())) {
	r := reserveAll(t, through, direct, disturb)
	right := func() bool { return r.anyWrong() == "" }
	require.Eventually(t, right, time.Minute, 20*time.Millisecond, "what was denied is cancelled")
	require.Empty(t, r.anyWrong(), "nothing changes any more")
	t.Logf("%d reservations, %d not decided by the store", len(r.used), r.lost.Load())
}

type reservations struct {
	*testing.T
	through, direct []*headgate.Limiter // by n modulo their number
	used            []int64             // of the n-th key
	lost            atomic.Int64
}

var reservedLists = [][]headgate.Policy{
	{{Name: "p", Algorithm: algo.TokenBucket(algo.PerDay(1), 100)}},
	{{Name: "p", Algorithm: algo.SlidingLog(algo.PerDay(100))}},
	{
		{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(100))},
		{Name: "q", Algorithm: algo.BucketedWindow(algo.PerDay(100), 4)},
		{Name: "r", Algorithm: algo.CompactLog(algo.PerDay(100))},
	},
}

// policies is how many the n-th reservation has.
func policies(n int) int { return len(reservedLists[n/2%len(reservedLists)]) }

// reserveAll makes all reservations while the disturbance lasts.
func reserveAll(t *testing.T, through, direct backend.Store, disturb func() (undo func())) *reservations {
	r := &reservations{T: t, used: make([]int64, Callers*redistest.Steps(8, 160))}
	for _, list := range reservedLists {
		for _, mode := range []headgate.FailureMode{headgate.FailClosed, headgate.FailOpen} {
			list = slices.Clone(list)
			for i := range list {
				list[i].OnFailure = mode
			}
			r.through = append(r.through, Limiter(t, through, list...))
			r.direct = append(r.direct, Limiter(t, direct, list...))
		}
	}
	undo := disturb()
	per := len(r.used) / Callers
	Go(Callers, func(c int) {
		for i := range per {
			n := c*per + i
			r.used[n] = r.call(n)
			time.Sleep(pace)
		}
	})()
	undo()
	require.Positive(t, r.lost.Load())
	return r
}

func (r *reservations) key(n int) string { return fmt.Sprint(r.Name(), " ", n) }

// call is one reservation on a key of its own. It returns what was used.
func (r *reservations) call(n int) int64 {
	ctx, l := context.Background(), r.through[n%len(r.through)]
	actual := max(0, int64(n%70)-10)
	held, d, err := l.Reserve(ctx, headgate.Call{Key: r.key(n), Costs: slices.Repeat([]int64{40}, policies(n))})
	if err != nil {
		r.Error(err)
	}
	if d.Err != nil {
		r.lost.Add(1)
	}
	if !d.Allowed {
		return 0
	}
	if n%4 < 2 { // of every list and mode
		_ = held.Extend(ctx)
	}
	settle := func() error { return held.Commit(ctx, slices.Repeat([]int64{actual}, policies(n))...) }
	if actual == 0 {
		settle = func() error { return held.Cancel(ctx) }
	}
	for err = settle(); backend.Undecided(err); err = settle() {
		time.Sleep(20 * time.Millisecond) // until the node is reachable
	}
	if err != nil {
		r.Error(err)
	}
	return actual
}

// wrong says which policies of a key do not count what was used; empty: all do.
func (r *reservations) wrong(n int) (why string) {
	each := make([]headgate.State, policies(n))
	d, err := r.direct[n%len(r.direct)].Peek(context.Background(), headgate.Call{Key: r.key(n), Each: each})
	if err != nil || d.Err != nil {
		r.Error(err, d.Err)
	}
	for _, s := range each {
		if s.Used != r.used[n] {
			why += fmt.Sprintf("%s: %s counts %d, want %d\n", r.key(n), s.Policy, s.Used, r.used[n])
		}
	}
	return why
}

// anyWrong is wrong of the first key of which it is not empty.
func (r *reservations) anyWrong() (why string) {
	for n := 0; n < len(r.used) && why == ""; n++ {
		why = r.wrong(n)
	}
	return why
}
