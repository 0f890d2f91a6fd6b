package cluster_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// moveWhole moves slots 0 to last to a primary in one piece, by CLUSTER MIGRATION of Redis 8.4
// or CLUSTER MIGRATESLOTS of Valkey 9.
func moveWhole(t *testing.T, from, to *redis.Client, last int, migration bool) {
	id, err := to.ClusterMyID(t.Context()).Result()
	require.NoError(t, err)
	if migration {
		require.NoError(t, to.Do(t.Context(), "cluster", "migration", "import", 0, last).Err())
	} else {
		require.NoError(t, from.Do(t.Context(), "cluster", "migrateslots", "slotsrange", 0, last, "node", id).Err())
	}
	require.Eventually(t, func() bool {
		slots, err := to.ClusterSlots(t.Context()).Result()
		for _, s := range slots {
			if err == nil && s.Start == 0 && s.End >= last && s.Nodes[0].ID == id {
				return true
			}
		}
		return false
	}, 60*time.Second, 5*time.Millisecond)
}

// TestSlotsMoveWhole: slots that move in one piece, under load, fail at most the calls of the
// moment in which they are paused. Each call that the store decided is counted once.
func TestSlotsMoveWhole(t *testing.T) {
	const last, callers = 2730, 16
	known := redistest.Shared(t).Client(t).Do(t.Context(), "command", "info", "cluster|migration", "cluster|migrateslots").Val().([]any)
	if known[0] == nil && known[1] == nil {
		t.Skip("this server moves no slots whole")
	}
	c := redistest.StartCluster(t)
	admins := []*redis.Client{c.Primary(0).Client(t), c.Primary(16383).Client(t)}
	store, err := cluster.Open(c.Addrs(), nil)
	require.NoError(t, err)
	defer store.Close()
	l, err := headgate.New(store, []headgate.Policy{{Name: "p", Algorithm: algo.TokenBucket(algo.Per(1, 300*24*time.Hour), 1<<30), OnFailure: headgate.FailClosed}}, nil)
	require.NoError(t, err)
	var keys []string
	for i := 0; len(keys) < 100; i++ {
		if k := fmt.Sprint("k", i); slot.Of(k) <= last {
			keys = append(keys, k)
		}
	}
	counts := make([]struct{ passed, perhaps atomic.Int64 }, len(keys))
	var calls, failed, longest atomic.Int64
	var running sync.WaitGroup
	var stop atomic.Bool
	for caller := range callers {
		running.Add(1)
		go func() {
			defer running.Done()
			for i := caller; !stop.Load(); i += callers {
				k, begin := i%len(keys), time.Now()
				d, err := l.Allow(t.Context(), keys[k])
				took := int64(time.Since(begin))
				for m := longest.Load(); took > m && !longest.CompareAndSwap(m, took); m = longest.Load() {
				}
				calls.Add(1)
				switch {
				case err != nil:
					t.Error(err)
				case d.Source == headgate.FromStore:
					counts[k].passed.Add(1)
				default:
					failed.Add(1)
					counts[k].perhaps.Add(1)
				}
				time.Sleep(time.Millisecond)
			}
		}()
	}
	time.Sleep(200 * time.Millisecond)
	moves := redistest.Steps(2, 10)
	for i := range moves {
		moveWhole(t, admins[i%2], admins[1-i%2], last, known[0] != nil)
		time.Sleep(300 * time.Millisecond)
	}
	stop.Store(true)
	running.Wait()
	for i, k := range keys {
		var d headgate.Decision
		require.Eventually(t, func() bool {
			d, err = l.Peek(t.Context(), headgate.Call{Key: k, Costs: []int64{0}})
			return err == nil && d.Source == headgate.FromStore
		}, 10*time.Second, time.Millisecond)
		passed, perhaps := counts[i].passed.Load(), counts[i].perhaps.Load()
		require.GreaterOrEqual(t, d.Used, passed, k)
		require.LessOrEqual(t, d.Used, passed+perhaps, k)
	}
	t.Logf("| %d | %d | %d | %v |", moves, calls.Load(), failed.Load(), time.Duration(longest.Load()).Round(time.Millisecond))
	require.Less(t, failed.Load(), calls.Load()/4, "a pause, and no outage")
}
