package faulttest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/stretchr/testify/require"
)

// LostReservations reserves, extends, commits and cancels through a disturbance, by
// limiters that fail open and closed. Once undo has returned, each key's count is
// what was used: nothing was charged or given back twice, and what was denied without
// an answer was cancelled in the background.
func LostReservations(t *testing.T, through, direct backend.Store, disturb func() (undo func())) {
	r := &reservations{T: t, keys: make([]reservedKey, Callers*redistest.Steps(4, 160))}
	for _, list := range reservedLists {
		for _, mode := range []headgate.FailureMode{headgate.FailClosed, headgate.FailOpen} {
			r.through = append(r.through, Limiter(t, through, failing(list, mode)...))
			r.direct = append(r.direct, Limiter(t, direct, failing(list, mode)...))
		}
	}
	undo := disturb()
	per := len(r.keys) / Callers
	Go(Callers, func(c int) {
		for i := range per {
			n := c*per + i
			r.keys[n] = reservedKey{r.name(n), r.call(n)}
			time.Sleep(pace)
		}
	})()
	undo()
	require.Eventually(t, func() bool { return r.wrong() == "" }, time.Minute, 20*time.Millisecond, "what was denied is cancelled")
	require.Empty(t, r.wrong(), "nothing changes any more")
	require.Positive(t, r.lost.Load())
	t.Logf("%d reservations, %d not decided by the store", len(r.keys), r.lost.Load())
}

var reservedLists = [][]headgate.Policy{
	{{Name: "p", Algorithm: algo.TokenBucket(algo.PerDay(1), 100)}},
	{{Name: "p", Algorithm: algo.SlidingLog(algo.PerDay(100))}},
	{{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(100))}, {Name: "q", Algorithm: algo.CompactLog(algo.PerDay(100))}},
}

func failing(list []headgate.Policy, mode headgate.FailureMode) (all []headgate.Policy) {
	for _, p := range list {
		p.OnFailure = mode
		all = append(all, p)
	}
	return all
}

type reservations struct {
	*testing.T
	through, direct []*headgate.Limiter // by n modulo their number
	keys            []reservedKey
	lost            atomic.Int64
}

type reservedKey struct {
	name string
	used int64
}

func (r *reservations) name(n int) string { return fmt.Sprint(r.Name(), " ", n) }

// call is one reservation on a key of its own. It returns what was used.
func (r *reservations) call(n int) int64 {
	ctx, l := context.Background(), r.through[n%len(r.through)]
	actual := max(0, int64(n%70)-10)
	costs, used := []int64{estimate, estimate}, []int64{actual, actual}
	policies := len(reservedLists[n%len(r.through)/2])
	held, d, err := l.Reserve(ctx, headgate.Call{Key: r.name(n), Costs: costs[:policies]})
	if err != nil {
		r.Error(err)
	}
	if d.Err != nil {
		r.lost.Add(1)
	}
	if !d.Allowed {
		return 0
	}
	if n%3 == 0 {
		_ = held.Extend(ctx)
	}
	settle := func() error { return held.Commit(ctx, used[:policies]...) }
	if actual == 0 {
		settle = func() error { return held.Cancel(ctx) }
	}
	for err = settle(); errors.Is(err, headgate.ErrUnavailable) || errors.Is(err, headgate.ErrPerhapsCounted); err = settle() {
		time.Sleep(20 * time.Millisecond) // until the node is reachable
	}
	if err != nil {
		r.Error(err)
	}
	return actual
}

// wrong names the first key whose count is not what was used.
func (r *reservations) wrong() string {
	for n, k := range r.keys {
		if used := Used(r.T, r.direct[n%len(r.direct)], k.name); used != k.used {
			return fmt.Sprintf("%s: %d used, want %d", k.name, used, k.used)
		}
	}
	return ""
}
