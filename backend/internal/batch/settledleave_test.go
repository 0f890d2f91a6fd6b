package batch_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestSettledLeave: what is left of a settled lease leaves after one length and what a
// rounded clock needs. That of one that may be settled again unresolved stays as long as
// a tombstone.
func TestSettledLeave(t *testing.T) {
	client := redistest.Start(t).Client(t)
	runner, ctx := batch.Alone(client, &layer.Shared{}, 10*time.Second), context.Background()
	const late = 10 * time.Second // than its time, by the rounded clock
	l, id := algo.PerHour(100), 0
	for name, ps := range map[string][]backend.Policy{
		"one":  policy(algo.TokenBucket(l, 100)),
		"log":  policy(algo.SlidingLog(l)),
		"list": append(policy(algo.TokenBucket(l, 100)), backend.Policy{Name: "f", Algorithm: algo.FixedWindow(l)}),
	} {
		for _, c := range []struct {
			length           time.Duration
			unresolved, lost bool // lost: no Reserve has come
			stays            time.Duration
		}{
			{time.Second, false, false, time.Second},
			{time.Minute, false, false, time.Minute},
			{time.Minute, true, false, 10 * time.Minute},
			{time.Minute, true, true, 10 * time.Minute},
			{time.Hour, true, false, 2 * time.Hour},
			{time.Hour, true, true, 2 * time.Hour},
		} {
			id++
			ttl := func() time.Duration {
				return client.PTTL(ctx, names.DefaultPrefix.Lease(name, backend.LeaseID{1, byte(id)})).Val()
			}
			for _, op := range []backend.Op{backend.Reserve, backend.Settle} {
				g := leased(op, name, 1, ps, id)
				g.Lease.Length, g.Lease.Unresolved = c.length, c.unresolved
				if op == backend.Settle {
					g.Lease.Attempt, g.Lease.Actual = backend.LeaseID{2}, slices.Repeat([]int64{1}, len(ps))
				} else if c.lost {
					continue
				}
				require.NoError(t, run(t, runner, g).Err)
			}
			require.LessOrEqual(t, ttl(), c.stays+late, "%s %+v", name, c)
			require.Greater(t, ttl(), c.stays, "%s %+v", name, c)
		}
	}
}

// TestRefusedSettleKeepsTheTime: a lease whose settlement the server refused stays for as
// long as before.
func TestRefusedSettleKeepsTheTime(t *testing.T) {
	server := redistest.Start(t)
	admin, ctx := server.Client(t), context.Background()
	ps := policy(algo.BucketedWindow(algo.PerHour(100), 5))
	require.NoError(t, run(t, batch.Alone(admin, &layer.Shared{}, time.Second), leased(backend.Reserve, "k", 5, ps, 1)).Err)
	lease := names.DefaultPrefix.Lease("k", backend.LeaseID{1, 1})
	before := admin.PTTL(ctx, lease).Val()
	runner, _ := limited(t, server, "-hset")
	require.ErrorIs(t, run(t, runner, settled("k", 2, ps, 1)).Err, backend.ErrUnavailable)
	require.InDelta(t, before, admin.PTTL(ctx, lease).Val(), float64(5*time.Second))
}
