package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/peers"
	"github.com/headgate-go/headgate/internal/redistest"
)

// The test binary is its own child, as the benchmark is.
func TestMain(m *testing.M) {
	if child() {
		return
	}
	os.Exit(m.Run())
}

// TestEveryWorkload runs all of them in small: the figures mean nothing, but
// each has to be there, and the document with its pictures.
func TestEveryWorkload(t *testing.T) {
	redistest.Shared(t) // skips where there is no server, which a benchmark must not
	b := newBench(settings{runs: 1, length: 40 * time.Millisecond, keys: 200, many: 500, most: 1000, crowd: 16, crowded: 32})
	t.Cleanup(b.stage.close)
	r, err := b.all(regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	turns := map[string]int{}
	for _, trial := range trials() {
		turns[trial.name] = trial.times(1)
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
	for _, trial := range trials() {
		if !strings.Contains(string(text), "### "+trial.name) {
			t.Errorf("%s is not in the document", trial.name)
		}
	}
	for _, chart := range r.Charts() {
		if _, err := os.Stat(filepath.Join(dir, "benchmarks-"+chart+".svg")); err != nil {
			t.Error(err)
		}
	}
}

// TestSeatFillsOnceWhatAServerKeeps: a hot key before them must not pass for
// all keys.
func TestSeatFillsOnceWhatAServerKeeps(t *testing.T) {
	var filled atomic.Int64
	m := peers.Maker{Name: "counting", Make: func(peers.Limit) (*peers.Subject, error) {
		return &peers.Subject{Fill: func(string) load.Answer {
			filled.Add(1)
			return load.Passed
		}}, nil
	}}
	b := newBench(settings{keys: 100})
	for _, c := range []struct {
		place string
		keys  load.Keys
		want  int64
	}{{server, hot(b), 1}, {server, uniform(b), 100}, {server, zipf(b), 0}, {cluster, zipf(b), 100}, {memory, hot(b), 1}, {memory, hot(b), 1}} {
		filled.Store(0)
		if err := b.seat(trial{place: c.place, fill: 4}, &guest{Maker: m, keys: c.keys}); err != nil {
			t.Fatal(err)
		}
		if got := filled.Load(); got != c.want {
			t.Errorf("%s: %d of %d keys were filled, want %d", c.place, got, len(c.keys.Names()), c.want)
		}
	}
}

// TestTargetsNameSubjects: a claim about a subject that does not take part
// would never be judged.
func TestTargetsNameSubjects(t *testing.T) {
	redistest.Shared(t)
	b := newBench(defaults)
	t.Cleanup(b.stage.close)
	for _, trial := range trials() {
		names := map[string]bool{"": true, "fastest peer": true}
		for _, m := range trial.makers(b) {
			names[m.Name] = true
		}
		for _, m := range trial.metrics {
			for _, target := range m.Targets {
				if !names[target.Of] || !names[target.Against] {
					t.Errorf("%s, %s: %q against %q", trial.name, m.Name, target.Of, target.Against)
				}
			}
		}
	}
}
