package shard_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

var (
	hotkeys = flag.Bool("hotkeys", false, "measure spread keys on a cluster, and write docs/hotkeys.md and .svg")
	into    = flag.String("into", "../docs", "where -hotkeys writes")
	brief   = flag.Bool("brief", false, "a tenth of -hotkeys, to see that it runs")
)

var (
	spreadKs = []int{2, 4, 8, 16, 64}
	loads    = []int{50, 90, 98, 100, 102, 150, 1000}
)

const (
	most  = 8  // processes
	crowd = 64 // callers in each process, where calls merge
	turns = 5  // of each key there
)

// TestHotKeys measures what a spread key does, on a real cluster.
func TestHotKeys(t *testing.T) {
	if me, ok := redistest.Child(); ok {
		member(t, me)
		return
	}
	if !*hotkeys {
		t.Skip("run by make hotkeys")
	}
	begin := time.Now()
	c := redistest.StartCluster(t)
	r := &report{t: t}
	r.matrix = fleet(t, c, most, matrix(r.limit(10_000), true))
	r.note("the matrix")
	for _, procs := range []int{1, 2, 4} {
		r.others = append(r.others, fleet(t, c, procs, matrix(r.limit(2000), false))...)
		r.note(fmt.Sprint(procs, " processes"))
	}
	r.paced = fleet(t, c, most, pacedCells(r.limit(2000)))
	r.note("paced")
	r.small = fleet(t, c, most, small())
	r.note("small limits")
	r.even = fleet(t, c, most, below(r.limit(30_000), true, callers))
	r.cost = timings(t, c, 21, int(r.limit(4000)))
	r.note("server time")
	r.mergedFleets(c)
	uneven(t, c)
	r.uneven = fleet(t, c, 4, below(r.limit(30_000), true, callers))
	r.shares = fractions(t, c)
	r.note("an uneven cluster")
	for _, mode := range []string{"closed", "open"} {
		r.deaths = append(r.deaths, outage(t, mode))
	}
	r.single = single(t)
	for range 7 {
		if b := testing.Benchmark(BenchmarkChooseHot); r.choose.N == 0 || b.NsPerOp() < r.choose.NsPerOp() {
			r.choose = b
		}
	}
	r.took = time.Since(begin)
	require.NoError(t, os.MkdirAll(*into, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(*into, "hotkeys.md"), []byte(r.markdown()), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(*into, "hotkeys.svg"), []byte(r.svg()), 0o644))
	r.verdict()
}

func (r *report) limit(n int64) int64 {
	if *brief {
		return n / 10
	}
	return n
}

func (r *report) note(what string) { r.t.Logf("%v: %s", time.Now().Format(time.TimeOnly), what) }

// matrix is every algorithm, K and load.
func matrix(limit int64, alone bool) (cells []cell) {
	for kind := range kinds(algo.PerDay(1)) {
		for _, k := range spreadKs {
			for _, load := range loads {
				cells = append(cells, cell{Kind: kind, K: k, Limit: limit, Load: load, Alone: alone})
			}
		}
	}
	return cells
}

// pacedCells have windows that pass.
func pacedCells(limit int64) (cells []cell) {
	for kind := range kinds(algo.PerDay(1)) {
		for _, load := range []int{50, 98, 150, 1000} {
			c := cell{Kind: kind, K: 16, Limit: limit, Load: load, Alone: true, Periods: 3}
			if kind == tokenBucket && load > 100 {
				c.Periods = 30 // or K tokens are too large a part of all
			}
			cells = append(cells, c)
		}
	}
	return cells
}

// small are shares of a few units to many.
func small() (cells []cell) {
	for _, share := range []int64{1, 4, 16, 64, 256, 1024} {
		for _, load := range []int{98, 150} {
			cells = append(cells, cell{K: 16, Limit: 16 * share, Load: load, Alone: true})
		}
	}
	return cells
}

// below is half of the limit: one plain key, spread over 16 and 64, and as many
// calls for plain keys of all nodes.
func below(limit int64, alone bool, callers int) (cells []cell) {
	for _, k := range []int{0, 16, 64} {
		cells = append(cells, cell{K: k, Limit: limit, Load: 50, Alone: alone, Callers: callers})
	}
	return append(cells, cell{Limit: limit, Load: 50, Alone: alone, Callers: callers, Keys: 48})
}

// mergedFleets measures the default: calls of one process that are in flight
// together merge.
func (r *report) mergedFleets(c *redistest.Cluster) {
	for _, procs := range []int{1, 2, 4, most} {
		r.merging = append(r.merging, byTurns(fleet(r.t, c, procs, slices.Repeat(below(r.limit(400_000), false, crowd), turns)))...)
		r.note(fmt.Sprint("merging on, ", processes(procs)))
		r.crowded = append(r.crowded, fleet(r.t, c, procs, crowded(r.limit(100_000)))...)
		r.note(fmt.Sprint("wrong denials with merging on, ", processes(procs)))
	}
}

// byTurns brings the turns of each cell of below together.
func byTurns(all []outcome) [][]outcome {
	cells := make([][]outcome, len(all)/turns)
	for i := range all {
		cells[i%len(cells)] = append(cells[i%len(cells)], all[i])
	}
	return cells
}

// crowded is what spreading over 16 denies where calls merge.
func crowded(limit int64) (cells []cell) {
	for kind := range 2 { // FixedWindow and SlidingWindow
		for _, load := range loads {
			cells = append(cells, cell{Kind: kind, K: 16, Limit: limit, Load: load, Callers: crowd})
		}
	}
	return cells
}

// TestHotKeysMerging is the part of TestHotKeys where calls merge, alone.
func TestHotKeysMerging(t *testing.T) {
	if me, ok := redistest.Child(); ok {
		member(t, me)
		return
	}
	if !*hotkeys {
		t.Skip("part of make hotkeys")
	}
	c, r := redistest.StartCluster(t), &report{t: t}
	r.mergedFleets(c)
	r.mergedRows()
	t.Log("\n" + r.b.String())
	r.verdict()
}

// BenchmarkChooseHot is BenchmarkChoose at K = 16.
func BenchmarkChooseHot(b *testing.B) {
	s, _ := over(b)
	r := take("tenant:42", one(algo.FixedWindow(algo.PerMinute(1_000_000)), 16), 1)
	b.ReportAllocs()
	for b.Loop() {
		s.Choose(&r, 0)
	}
}

// single returns the server time a decision of one server: of a plain key, and
// of one that is spread over 16. The least of thirty, taken in turn: whatever
// else the machine does only adds.
func single(t *testing.T) [2]float64 {
	server := redistest.Start(t)
	store := standalone.New(server.Client(t), &standalone.Options{Budget: longBudget, DisableBatching: true})
	s := wrappers(store)
	least := [2]float64{1e9, 1e9}
	for range 30 {
		for i, k := range []int{0, 16} {
			ps := one(algo.FixedWindow(algo.Per(1<<30, algo.MaxPeriod)), k)
			for n := range 2000 {
				if n == 200 {
					server.ResetStats(t)
				}
				_ = do(t, s, take(fmt.Sprint("tenant", k), ps, 1))
			}
			least[i] = min(least[i], server.CommandStats(t)["evalsha"].PerCall)
		}
	}
	return least
}
