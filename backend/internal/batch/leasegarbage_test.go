package batch_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// garbageLeases are stored leases with wrong insides.
func garbageLeases(v string) map[string]string {
	return map[string]string{
		"empty":         "",
		"short head":    v[:16],
		"no charge":     v[:17],
		"short charge":  v[:40],
		"short name":    v[:len(v)-1],
		"longer":        v + "more",
		"text":          strings.Repeat("x", len(v)),
		"zeros":         strings.Repeat("\x00", len(v)),
		"ones":          strings.Repeat("\xff", len(v)),
		"version":       "\x02" + v[1:],
		"state 0":       v[:1] + "\x00" + v[2:],
		"state 4":       v[:1] + "\x04" + v[2:],
		"kind":          v[:17] + "\x63" + v[18:],
		"name's length": v[:18] + "\xff" + v[19:],
		"period":        v[:19] + strings.Repeat("\x00", 6) + v[25:],
		"cost":          v[:45] + strings.Repeat("\xff", 5) + v[50:],
	}
}

// held is a key with a lease among other counts.
type held struct {
	*testing.T
	client *redis.Client
	runner *batch.Server
	ps     []backend.Policy
	used   int64
}

func hold(t *testing.T, client *redis.Client, ps []backend.Policy) *held {
	require.NoError(t, client.FlushDB(context.Background()).Err())
	h := &held{t, client, batch.Alone(client, &layer.Shared{}, time.Second), ps, 0}
	for id := range 3 {
		require.NoError(t, run(t, h.runner, leased(backend.Reserve, "k", 1, ps, id)).Err)
	}
	h.used = h.peek().Decision.Used
	require.EqualValues(t, 3, h.used)
	return h
}

func (h *held) peek() *batch.Answer {
	look := group("k", 0, h.ps)
	look.Op = backend.Peek
	return run(h.T, h.runner, look)
}

// corrupt requires that each operation on the lease is a CorruptError that names what
// is stored, and that nothing changes.
func (h *held) corrupt(name, stored string, gs ...*batch.Asked) {
	h.Helper()
	before := h.client.Dump(context.Background(), stored).Val()
	for _, g := range gs {
		var corrupt *backend.CorruptError
		require.ErrorAs(h, run(h.T, h.runner, g).Err, &corrupt, "%s: %v", name, g.Op)
		require.Equal(h, "k", corrupt.Key)
	}
	require.Equal(h, before, h.client.Dump(context.Background(), stored).Val(), name)
}

func heldLists() map[string][]backend.Policy {
	l := algo.PerHour(9)
	several := []backend.Policy{{Name: "t", Algorithm: algo.TokenBucket(algo.PerDay(1), 9)}, {Name: "l", Algorithm: algo.SlidingLog(l)}}
	return map[string][]backend.Policy{
		"TokenBucket": policy(algo.TokenBucket(algo.PerDay(1), 9)), "SlidingLog": policy(algo.SlidingLog(l)),
		"CompactLog": policy(algo.CompactLog(l)), "InFlight": policy(algo.InFlight(9)), "several": several,
	}
}

// TestGarbageLeases: whatever lies where a lease should, it is named, no count changes,
// and it is left as it was.
func TestGarbageLeases(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	lease := names.DefaultPrefix.Lease("k", backend.LeaseID{1, 1})
	for kind, ps := range heldLists() {
		h := hold(t, client, ps)
		good := client.Get(ctx, lease).Val()
		for name, v := range garbageLeases(good) {
			require.NoError(t, client.Set(ctx, lease, v, time.Hour).Err())
			asked := []*batch.Asked{settled("k", 0, ps, 1), leased(backend.Extend, "k", 0, ps, 1)}
			if name != "period" && name != "kind" { // of which an Extend needs nothing
				h.corrupt(kind+"/"+name, lease, asked...)
			} else {
				h.corrupt(kind+"/"+name, lease, asked[0])
			}
			require.Equal(t, h.used, h.peek().Decision.Used)
		}
		require.NoError(t, client.Del(ctx, lease).Err())
		require.NoError(t, client.HSet(ctx, lease, "no", "string").Err())
		h.corrupt(kind+"/type", lease, settled("k", 0, ps, 1), leased(backend.Extend, "k", 0, ps, 1), leased(backend.Reserve, "k", 1, ps, 1))
		require.NoError(t, client.Set(ctx, lease, good, time.Hour).Err())
		require.NoError(t, run(t, h.runner, settled("k", 0, ps, 1)).Err)
		require.Equal(t, h.used-1, h.peek().Decision.Used)
	}
}

// TestGarbageGenerations: the same of the field that a reset of the key changes.
func TestGarbageGenerations(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	hash := names.DefaultPrefix.Hash("k")
	for kind, ps := range heldLists() {
		h := hold(t, client, ps)
		good := client.HGet(ctx, hash, names.Leases).Val()
		for name, v := range map[string]string{"empty": "", "short": good[:8], "longer": good + "x", "version": "\x02" + good[1:]} {
			require.NoError(t, client.HSet(ctx, hash, names.Leases, v).Err())
			h.corrupt(kind+"/"+name, hash, settled("k", 0, ps, 1), leased(backend.Extend, "k", 0, ps, 1), leased(backend.Reserve, "k", 1, ps, 7))
			require.Equal(t, h.used, h.peek().Decision.Used)
			reset := group("k", 0, ps)
			reset.Op = backend.Reset
			h.corrupt(kind+"/"+name, hash, reset)
			require.Equal(t, h.used, h.peek().Decision.Used)
		}
	}
}

// TestGarbageRows: the same of what the entries of a log gave back.
func TestGarbageRows(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	ps := policy(algo.SlidingLog(algo.PerHour(9)))
	rows := names.DefaultPrefix.Log("k", &ps[0]) + ":back"
	h := hold(t, client, ps)
	require.NoError(t, run(t, h.runner, settled("k", 0, ps, 0)).Err)
	require.Equal(t, []string{strings.Repeat("\x00", 7)}, client.HKeys(ctx, rows).Val())
	good := client.HGetAll(ctx, rows).Val()
	for name, v := range map[string]string{"long": strings.Repeat("\xff", 200), "full": strings.Repeat("\xff", 96)} {
		require.NoError(t, client.HSet(ctx, rows, strings.Repeat("\x00", 7), v).Err())
		h.corrupt(name, rows, group("k", 1, ps), settled("k", 0, ps, 1), settled("k", 5, ps, 1), leased(backend.Reserve, "k", 1, ps, 7))
	}
	require.NoError(t, client.Del(ctx, rows).Err())
	require.NoError(t, client.Set(ctx, rows, "no hash", time.Hour).Err())
	h.corrupt("type", rows, group("k", 1, ps), settled("k", 0, ps, 1), settled("k", 5, ps, 1))
	require.NoError(t, client.Del(ctx, rows).Err())
	require.NoError(t, client.HSet(ctx, rows, good).Err())
	require.NoError(t, run(t, h.runner, settled("k", 0, ps, 1)).Err)
	require.EqualValues(t, 1, h.peek().Decision.Used)

	// A row that none of ours is named so is left, and disturbs nobody.
	require.NoError(t, client.FlushDB(ctx).Err())
	ps = policy(algo.SlidingLog(algo.PerHour(100)))
	for id := range 3 {
		require.NoError(t, run(t, h.runner, leased(backend.Reserve, "k", 30, ps, id)).Err)
	}
	require.NoError(t, run(t, h.runner, settled("k", 1, ps, 0)).Err)
	require.NoError(t, client.HSet(ctx, names.DefaultPrefix.Log("k", &ps[0])+":back", "x", "y").Err())
	require.NoError(t, run(t, h.runner, settled("k", 1, ps, 1)).Err)
	h.ps = ps
	require.EqualValues(t, 32, h.peek().Decision.Used)
}
