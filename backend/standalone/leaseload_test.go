package standalone_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestLeaseMemory: what a lease takes of used_memory, beside the counts that takes
// would have made too.
func TestLeaseMemory(t *testing.T) {
	if !*serverCost {
		t.Skip("run by make server-cost")
	}
	p := newPipelined(t)
	for _, c := range []struct {
		keys, each int
		most       float64
	}{{1, 100_000, 250}, {1_000_000, 1, 250}} { // each key has a field for its resets too
		require.NoError(t, p.client.FlushAll(t.Context()).Err())
		row := leaseRows()[0]
		take, reserve := row.take(p.recorded), row.reserve(p.recorded)
		for from := 0; from < c.keys; from += 1000 {
			p.run(from, min(c.keys, 1000), take)
		}
		before := usedMemory(t, p.client)
		for range c.each {
			for from := 0; from < c.keys; from += 1000 {
				p.run(from, min(c.keys, 1000), reserve)
			}
		}
		bytes := float64(usedMemory(t, p.client)-before) / float64(c.keys*c.each)
		t.Logf("%d leases on each of %d keys: %.0f bytes per lease", c.each, c.keys, bytes)
		require.LessOrEqual(t, bytes, c.most)
	}
}

func usedMemory(t *testing.T, client *redis.Client) int64 {
	s := timed{T: t, client: client}
	return s.used()
}

// TestLeasesLeave: 100,000 leases of one key leave by themselves. It prints what the
// calls of others take meanwhile.
func TestLeasesLeave(t *testing.T) {
	if !*serverCost {
		t.Skip("run by make server-cost")
	}
	p := newPipelined(t)
	row := leaseRows()[0]
	ids, s := leaseIDs(), standalone.New(p.recorded, &standalone.Options{DisableBatching: true})
	reserve := func(string) error {
		l := backend.Lease{ID: ids("k"), Length: time.Second}
		_, err := layer.Ask(context.Background(), s, backend.Request{Op: backend.Reserve, Lease: &l, Group: backend.Group{Key: "k", Policies: row.policies, Cost: 1}})
		return err
	}
	other := standalone.New(p.client, &standalone.Options{Budget: 10 * time.Second})
	list := []backend.Policy{{Name: "p", Algorithm: algo.TokenBucket(algo.PerHour(1<<20), 1<<20), OnFailure: backend.FailClosed}}
	call := func() time.Duration {
		begin := time.Now()
		_, err := layer.Ask(context.Background(), other, backend.Request{Op: backend.Take, Group: backend.Group{Key: "other", Policies: list, Cost: 1}})
		require.NoError(t, err)
		return time.Since(begin)
	}
	var with, without []float64
	for range 5 {
		for range 100 {
			p.run(0, 1000, reserve)
		}
		require.Eventually(t, func() bool { return p.client.DBSize(t.Context()).Val() < 99_000 }, time.Minute, time.Millisecond)
		var took []time.Duration
		for i := 0; i%100 > 0 || p.client.DBSize(t.Context()).Val() > 1000; i++ {
			took = append(took, call())
		}
		with = append(with, p99(took))
		n := len(took)
		for took = nil; len(took) < n; {
			took = append(took, call())
		}
		without = append(without, p99(took))
	}
	t.Logf("p99 of another key's calls: %.0f µs while 100,000 leases leave, %.0f µs without", median(with), median(without))
}

func p99(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)*99/100].Microseconds())
}
