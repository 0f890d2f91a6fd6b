package shard_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestReservationsOfSpreadKeys: a settlement corrects the sub-key that was charged,
// and what it gives back can be taken at once. A record charges one of them.
func TestReservationsOfSpreadKeys(t *testing.T) {
	ctx := context.Background()
	for _, a := range []algo.Algorithm{algo.SlidingLog(algo.PerDay(40)), algo.FixedWindow(algo.PerDay(40))} {
		s, now := over(t)
		now.Store(1_745_000_000_000_000)
		list := []backend.Policy{{Name: "p", Algorithm: a, OnFailure: backend.FailClosed, Shards: 4}}
		ask := func(op backend.Op, g backend.Group, l *backend.Lease) (backend.Decision, error) {
			g.Key, g.Policies = "k", list
			return layer.Ask(ctx, s, backend.Request{Op: op, Group: g, Lease: l})
		}
		used := func() int64 {
			d, err := ask(backend.Peek, backend.Group{Cost: 1}, nil)
			require.NoError(t, err)
			return d.Used
		}
		var subs []string
		for i := range 8 {
			receipt := &backend.Receipt{}
			d, err := ask(backend.Reserve, backend.Group{Cost: 5, Receipt: receipt}, &backend.Lease{ID: backend.LeaseID{byte(i + 1)}, Length: time.Minute})
			require.NoError(t, err)
			require.True(t, d.Allowed, "%d", i)
			require.NotEmpty(t, receipt.Sub)
			subs = append(subs, receipt.Sub)
		}
		require.EqualValues(t, 40, used())
		for i := range 8 {
			d, err := ask(backend.Reserve, backend.Group{Cost: 1}, &backend.Lease{ID: backend.LeaseID{99}, Length: time.Minute})
			require.NoError(t, err)
			require.False(t, d.Allowed)

			l := &backend.Lease{ID: backend.LeaseID{byte(i + 1)}, Length: time.Minute, Actual: []int64{2}, Attempt: backend.LeaseID{1}}
			_, err = ask(backend.Settle, backend.Group{}, l)
			require.ErrorAs(t, err, new(*backend.InvalidError))
			_, err = ask(backend.Settle, backend.Group{Sub: subs[i]}, l)
			require.NoError(t, err)
			d, err = ask(backend.Take, backend.Group{Cost: 3}, nil)
			require.NoError(t, err)
			require.True(t, d.Allowed, fmt.Sprint(i))
			require.EqualValues(t, 40, used())
		}
		d, err := ask(backend.Record, backend.Group{Cost: 25}, nil)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.EqualValues(t, 65, used())
		_, err = ask(backend.AtMost, backend.Group{Cost: 1}, nil)
		require.ErrorIs(t, err, backend.ErrUnsupported)
		slots := []backend.Policy{{Name: "p", Algorithm: algo.InFlight(9), OnFailure: backend.FailClosed, Shards: 4}}
		require.ErrorAs(t, s.Check(slots), new(*backend.InvalidError))
	}
}
