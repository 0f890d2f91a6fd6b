package headgate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStallOutlivesLease: a server that stalls for longer than the lease executes the denied
// Reserve afterwards. It is cancelled all the same, on one key and on several.
func TestStallOutlivesLease(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	for name, call := range map[string]func(*headgate.Limiter) (headgate.Decision, error){
		"Reserve": func(l *headgate.Limiter) (headgate.Decision, error) {
			_, d, err := l.Reserve(context.Background(), headgate.Call{Key: "k", Lease: lease})
			return d, err
		},
		"ReserveAll": func(l *headgate.Limiter) (headgate.Decision, error) {
			p, q := l.Part("k", 1), l.Part("beside", 1)
			p.Call.Lease, q.Call.Lease = lease, lease
			_, d, err := headgate.ReserveAll(context.Background(), p, q)
			return d, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			store, err := standalone.Open("redis://"+server.Addr(), nil)
			require.NoError(t, err)
			defer store.Close()
			l := reserving(t, store, headgate.FailClosed)
			used := func(key string) int64 { // -1: unknown
				d, err := l.Peek(context.Background(), headgate.Call{Key: key})
				if err != nil || d.Source != headgate.FromStore {
					return -1
				}
				return d.Used
			}
			var stalled time.Time
			require.Eventually(t, func() bool {
				if used("k") < 0 || used("beside") < 0 {
					return false
				}
				stalled = time.Now()
				server.Stop()
				d, err := call(l)
				if err == nil && errors.Is(d.Err, headgate.ErrPerhapsCounted) {
					return true
				}
				server.Cont() // it was not sent: this process was late
				return false
			}, 20*time.Second, 10*time.Millisecond)
			time.Sleep(time.Until(stalled.Add(lease + lease/2)))
			server.Cont()
			require.Eventually(t, func() bool { return headgate.Cancelling(l) == 0 && used("k") >= 0 }, 10*time.Second, 10*time.Millisecond)
			for _, key := range []string{"k", "beside"} {
				assert.Zero(t, used(key), "%s is charged until it has aged", key)
			}
		})
	}
}

// TestCloseThroughAnOutage: a deferred Close, whose error no caller reads, frees its slot when
// the server answers again, long before the lease ends. A Commit that failed is repeated.
func TestCloseThroughAnOutage(t *testing.T) {
	server, ctx := redistest.Start(t), context.Background()
	store, err := standalone.Open("redis://"+server.Addr(), nil)
	require.NoError(t, err)
	defer store.Close()
	l := limiter(t, store, nil,
		headgate.Policy{Name: "slots", Algorithm: algo.InFlight(2), OnFailure: headgate.FailClosed},
		headgate.Policy{Name: "units", Algorithm: algo.FixedWindow(algo.Per(10, algo.MaxPeriod)), OnFailure: headgate.FailClosed})
	var held []*headgate.Reservation
	for len(held) < 2 {
		r, d, err := l.Reserve(ctx, headgate.Call{Key: "k", Costs: []int64{1, 5}})
		require.NoError(t, err)
		if d.Allowed {
			held = append(held, r)
		}
	}
	server.Stop()
	require.Error(t, held[0].Commit(ctx, 1, 2))
	for _, r := range held {
		require.Error(t, r.Close())
	}
	server.Cont()
	require.Eventually(t, func() bool {
		each := make([]headgate.State, 2)
		d, err := l.Peek(ctx, headgate.Call{Key: "k", Each: each})
		return err == nil && d.Source == headgate.FromStore && each[0].Used == 0 && each[1].Used == 2
	}, 10*time.Second, 10*time.Millisecond)
}
