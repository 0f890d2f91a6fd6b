package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/peers"
	"github.com/headgate-go/headgate/internal/lab/redistest"
)

// small is enough to see that a workload runs.
var small = settings{runs: 1, length: 40 * time.Millisecond, keys: 200, many: 500, most: 16, fleet: 4}

// The test binary is its own child, as the benchmark is.
func TestMain(m *testing.M) {
	if child() {
		return
	}
	os.Exit(m.Run())
}

// TestEveryWorkload runs all of them in small: the figures mean nothing, but
// each has to be there, and the document.
func TestEveryWorkload(t *testing.T) {
	redistest.Shared(t) // skips where there is no server, which a benchmark must not
	b := newBench(small)
	t.Cleanup(b.tb.close)
	r, err := b.all(regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	turns := map[string]int{}
	for _, w := range workloads() {
		turns[w.name] = w.times(1)
	}
	for _, table := range r.Tables {
		for _, row := range table.Rows {
			if len(row.Runs) != turns[table.Workload] {
				t.Errorf("%s, %s: %s has %d figures", table.Workload, table.Name, row.Subject, len(row.Runs))
			}
		}
		if got := len(table.Verdicts()); got != len(table.Targets) && table.Name == decisions {
			t.Errorf("%s: %d of %d targets have a verdict: a name is wrong", table.Workload, got, len(table.Targets))
		}
	}
	dir := t.TempDir()
	r.Machine, r.Modules = b.facts(), modules()
	if err := write(r, dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range workloads() {
		if !strings.Contains(string(text), "| "+w.name) {
			t.Errorf("%s is not in the document", w.name)
		}
	}
}

// TestCompareRunsBothBinaries: an order for a fleet and one for a cluster.
func TestCompareRunsBothBinaries(t *testing.T) {
	redistest.Shared(t)
	caller := filepath.Join(t.TempDir(), "caller")
	if out, err := exec.Command("go", "build", "-o", caller, "./fleet/caller").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := newBench(small)
	t.Cleanup(b.tb.close)
	sides := []func() *exec.Cmd{self("caller"), func() *exec.Cmd { return exec.Command(caller) }}
	for _, w := range workloads() {
		if w.name != "redis/uniform/16x4" && w.name != "cluster/zipf/512" {
			continue
		}
		r, err := b.byTurns(w, sides, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.ratio.Runs) != 2 || r.this.Median() == 0 || r.other.Median() == 0 {
			t.Errorf("%s: %v decisions per second here, %v there", w.name, r.this.Runs, r.other.Runs)
		}
	}
}

// TestKeysAreFilledOnce: a hot key before them must not pass for all keys.
func TestKeysAreFilledOnce(t *testing.T) {
	var filled atomic.Int64
	m := peers.Maker{Name: "counting", Make: func(peers.Limit) (*peers.Subject, error) {
		return &peers.Subject{Fill: func(context.Context, string) load.Answer {
			filled.Add(1)
			return load.Passed
		}}, nil
	}}
	b := newBench(settings{})
	for _, c := range []struct {
		place, keys string
		want        int64
	}{
		{server, "hot", 1}, {server, "uniform", 100}, {server, "zipf", 0},
		{cluster, "zipf", 100}, {memory, "hot", 1}, {memory, "hot", 1},
	} {
		filled.Store(0)
		s := subject{Maker: m, workload: workload{place: c.place, fill: 4}, names: load.Named(c.keys, 100)}
		if err := b.fill(&s); err != nil {
			t.Fatal(err)
		}
		if got := filled.Load(); got != c.want {
			t.Errorf("%s, %s: %d keys were filled, want %d", c.place, c.keys, got, c.want)
		}
	}
}

// TestObserverIsTold: else the row with an observer would show nothing.
func TestObserverIsTold(t *testing.T) {
	var e events
	s, err := peers.HeadgateMemory(observed, e.options()).Make(peers.Roomy)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Allow(t.Context(), "key"); e.Load() != 1 {
		t.Errorf("the observer was told of %d events, want 1", e.Load())
	}
}
