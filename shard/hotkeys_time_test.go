package shard_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// subjects are what one caller's calls are for: a plain key, one spread over 16
// and 64, and plain keys of all nodes.
var subjects = []cell{{}, {K: 16}, {K: 64}, {Keys: 48}}

// timing is what the nodes spent on a decision, in µs.
type timing struct {
	nodes []float64 // each on its EVALSHAs, by INFO commandstats
	cpu   float64   // all of their main threads, by INFO cpu, less what they take idle
}

func (m timing) all() (sum float64) {
	for _, n := range m.nodes {
		sum += n
	}
	return sum
}

func (m timing) busiest() float64 { return slices.Max(m.nodes) }

// stopwatch reads what nodes have spent. The difference of two readings by turns
// is compared, never the least of each: the machine is faster at one time than
// at another, and the least of two subjects are of different times (0.97 in one
// run, 1.20 in the next).
type stopwatch struct {
	t     testing.TB
	nodes []*redis.Client
	idle  float64 // CPU that all nodes take when nobody calls, µs a µs: gossip, replication, cron
}

func newStopwatch(t testing.TB, c *redistest.Cluster) *stopwatch {
	w := &stopwatch{t: t}
	for _, n := range c.Nodes() {
		w.nodes = append(w.nodes, n.Client(t))
	}
	begin, before := time.Now(), w.read()
	time.Sleep(2 * time.Second)
	w.idle = w.read().since(before).cpu / float64(time.Since(begin).Microseconds())
	return w
}

func (w *stopwatch) read() timing {
	var m timing
	for _, n := range w.nodes {
		script := 0.0
		for line := range strings.Lines(n.Info(w.t.Context(), "cpu", "commandstats").Val()) {
			switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name {
			case "used_cpu_sys_main_thread", "used_cpu_user_main_thread":
				m.cpu += 1e6 * atof(value)
			case "cmdstat_evalsha":
				_, err := fmt.Sscanf(value, "calls=%f,usec=%f,", new(float64), &script)
				require.NoError(w.t, err)
			}
		}
		m.nodes = append(m.nodes, script)
	}
	return m
}

func (m timing) since(before timing) timing {
	d := timing{make([]float64, len(m.nodes)), m.cpu - before.cpu}
	for i := range d.nodes {
		d.nodes[i] = m.nodes[i] - before.nodes[i]
	}
	return d
}

// turn makes so many calls, one after the other.
func (w *stopwatch) turn(s backend.Store, c cell, calls int) timing {
	ps := one(algo.FixedWindow(algo.Per(1<<30, algo.MaxPeriod/64)), c.K)
	rs := make([]backend.Request, max(c.Keys, 1))
	for i := range rs {
		rs[i] = take(fmt.Sprint("timed:", c.K, ":", i), ps, 1)
	}
	begin, before := time.Now(), w.read()
	for n := range calls {
		require.True(w.t, do(w.t, s, rs[n%len(rs)]).Allowed)
	}
	d := w.read().since(before)
	d.cpu = (d.cpu - w.idle*float64(time.Since(begin).Microseconds())) / float64(calls)
	for i := range d.nodes {
		d.nodes[i] /= float64(calls)
	}
	return d
}

// timings gives each subject its turn in each of so many rounds, in any order,
// without merging.
func timings(t testing.TB, c *redistest.Cluster, rounds, calls int) [][]timing {
	store := open(c.Addrs(), &cluster.Options{Budget: longBudget, DisableBatching: true})
	defer store.Close()
	s, w := wrappers(store), newStopwatch(t, c)
	all := make([][]timing, len(subjects))
	for round := range rounds + 1 {
		for _, i := range rand.Perm(len(subjects)) {
			if m := w.turn(s, subjects[i], calls); round > 0 { // the first is for connections and scripts
				all[i] = append(all[i], m)
			}
		}
	}
	return all
}

func median(all []timing, f func(timing) float64) float64 {
	var fs []float64
	for _, m := range all {
		fs = append(fs, f(m))
	}
	return middle(fs)
}

// ratio is the median of the rounds' own ratios.
func ratio(a, b []timing, f func(timing) float64) float64 {
	var fs []float64
	for i := range a {
		fs = append(fs, f(a[i])/f(b[i]))
	}
	return middle(fs)
}

func middle(fs []float64) float64 {
	slices.Sort(fs)
	return fs[len(fs)/2]
}

func cpu(m timing) float64 { return m.cpu }

// TestServerTime is that part of TestHotKeys alone, to see how far it scatters.
func TestServerTime(t *testing.T) {
	if !*hotkeys {
		t.Skip("part of make hotkeys")
	}
	all := timings(t, redistest.StartCluster(t), 21, 4000)
	for i := range subjects {
		t.Logf("%s: %.2f µs by EVALSHA, the busiest %.2f; %.2f µs CPU", subjects[i].what(), median(all[i], timing.all), median(all[i], timing.busiest), median(all[i], cpu))
	}
	t.Logf("K = 16 of plain keys: %.3f by EVALSHA, %.3f CPU", ratio(all[1], all[3], timing.all), ratio(all[1], all[3], cpu))
}
