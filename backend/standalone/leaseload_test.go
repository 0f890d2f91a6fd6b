package standalone_test

import (
	"context"
	"fmt"
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
// would have made too, open and settled. docs/operations.md has the sums.
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
		if c.keys > 1 { // the settled ones of a million keys would leave while others are settled
			continue
		}
		settle := row.settle(p.recorded)
		for range c.each {
			p.run(0, 1, settle)
		}
		bytes = float64(usedMemory(t, p.client)-before) / float64(c.each)
		t.Logf("settled: %.0f bytes per lease", bytes)
		require.LessOrEqual(t, bytes, 220.0)
	}
}

func usedMemory(t *testing.T, client *redis.Client) int64 {
	s := timed{T: t, client: client}
	return s.used()
}

// TestLeasesLeave: 100,000 leases of one key leave by themselves. It prints what the
// calls of others take meanwhile, and while as many plain keys leave.
func TestLeasesLeave(t *testing.T) {
	if !*serverCost {
		t.Skip("run by make server-cost")
	}
	p := newPipelined(t)
	row := leaseRows()[0]
	ids, s := leaseIDs(), standalone.New(p.recorded, &standalone.Options{DisableBatching: true})
	reserve := func(string) error {
		l := backend.Lease{ID: ids("k"), Length: time.Second}
		_, err := layer.Ask(context.Background(), s, backend.Request{Op: backend.Reserve, Group: backend.Group{Lease: &l, Key: "k", Policies: row.policies, Cost: 1}})
		return err
	}
	leases := func() {
		for range 100 {
			p.run(0, 1000, reserve)
		}
	}
	plainKeys := func() {
		for i := range 100 {
			_, err := p.client.Pipelined(context.Background(), func(pipe redis.Pipeliner) error {
				for j := range 1000 {
					pipe.Set(context.Background(), fmt.Sprintf("plain:%d:%d", i, j), make([]byte, 80), 12*time.Second)
				}
				return nil
			})
			require.NoError(t, err)
		}
	}
	for _, c := range []struct {
		what string
		fill func()
	}{{"leases", leases}, {"plain keys of as many bytes", plainKeys}} {
		with, without := p.whileTheyLeave(c.fill)
		t.Logf("p99 of another key's calls: %.0f µs while 100,000 %s leave, %.0f µs without", with, c.what, without)
	}
}

// whileTheyLeave returns the p99 of another key's calls while 100,000 keys expire, and of
// as many calls after it: medians of five turns.
func (p *pipelined) whileTheyLeave(fill func()) (with, without float64) {
	other := standalone.New(p.client, &standalone.Options{Budget: 10 * time.Second})
	list := []backend.Policy{{Name: "p", Algorithm: algo.TokenBucket(algo.PerHour(1<<20), 1<<20), OnFailure: backend.FailClosed}}
	call := func() time.Duration {
		begin := time.Now()
		_, err := layer.Ask(context.Background(), other, backend.Request{Op: backend.Take, Group: backend.Group{Key: "other", Policies: list, Cost: 1}})
		require.NoError(p, err)
		return time.Since(begin)
	}
	size := func() int64 { return p.client.DBSize(context.Background()).Val() }
	var leaving, quiet []float64
	for range 5 {
		fill()
		require.Eventually(p, func() bool { return size() < 99_000 }, time.Minute, time.Millisecond)
		var took []time.Duration
		for i := 0; i%100 > 0 || size() > 1000; i++ {
			took = append(took, call())
		}
		leaving = append(leaving, p99(took))
		n := len(took)
		for took = nil; len(took) < n; {
			took = append(took, call())
		}
		quiet = append(quiet, p99(took))
	}
	return median(leaving), median(quiet)
}

func p99(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)*99/100].Microseconds())
}
