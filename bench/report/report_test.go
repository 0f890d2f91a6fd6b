package report

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata")

func fixed() *Report {
	rows := []Row{
		{Subject: "headgate", Ours: true, Runs: []float64{1200000, 1000000, 1100000}},
		{Subject: "redis_rate", Peer: true, Runs: []float64{50000, 55000, 60000}},
		{Subject: "ulule <x>", Peer: true, Runs: []float64{70000, 65000.4, 71000}, Failed: 0.25},
		{Subject: "rueidis", Runs: []float64{200000}},
	}
	waits := []Row{
		{Subject: "headgate", Ours: true, Runs: []float64{120, 130}},
		{Subject: "redis_rate", Peer: true, Runs: []float64{100}},
	}
	return &Report{
		Machine: []Fact{{"cores", "2"}}, Modules: []Fact{{"example.com/peer", "v1.2.3"}},
		Notes: []string{"A note."},
		Tables: []*Table{
			{Place: "redis", Workload: "redis/hot", Rows: rows, Metric: Metric{
				Name: "decisions", Unit: "decisions/s", Targets: []Target{
					{Of: "headgate", Against: "redis_rate", AtLeast: true, Bound: 15},
					{Of: "headgate", Against: Fastest, AtLeast: true, Bound: 16},
					{Of: "headgate", Against: "nobody", AtLeast: true, Bound: 1},
					{Of: "headgate", Against: "rueidis", Published: true},
				}}},
			{Place: "latency", Workload: "latency/lone", Rows: waits, Metric: Metric{
				Name: "p50", Unit: "µs", Lower: true, Targets: []Target{
					{Of: "headgate", Against: "redis_rate", Bound: 1.1},
					{Of: "headgate", Bound: 125},
				}}},
		},
	}
}

func TestVerdicts(t *testing.T) {
	all := fixed().Verdicts()
	want := []struct {
		against string
		bound   string
		figure  string
		says    string
	}{
		{"redis_rate", "≥ 15", "20", "holds"},
		{"fastest peer: ulule <x> (25 % undecided)", "≥ 16", "15.7", "**does not hold**"},
		{"rueidis", "–", "5.5", "published"},
		{"redis_rate", "≤ 1.1", "1.25", "**does not hold**"},
		{"", "≤ 125", "125", "holds"},
	}
	if len(all) != len(want) {
		t.Fatalf("%d verdicts, want %d: one against nobody is none", len(all), len(want))
	}
	for i, v := range all {
		got := struct{ against, bound, figure, says string }{v.Against(), v.Bounded(), Figure(v.Figure), v.Says()}
		if got != want[i] {
			t.Errorf("got %v, want %v", got, want[i])
		}
	}
}

func TestUndecidedCallsProveNothing(t *testing.T) {
	r := fixed()
	r.Tables[0].Rows[0].Failed = 0.01
	if v := r.Verdicts()[0]; v.Holds || v.Says() != "**does not hold** (1 % undecided)" {
		t.Errorf("with 1 %% of the calls undecided it says %q", v.Says())
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		runs []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := (Row{Runs: c.runs}).Median(); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.runs, got, c.want)
		}
	}
}

func TestFigure(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 0.0391: "0.039", 1: "1", 1.256: "1.26", 12.34: "12.3", 123.4: "123", 1234.5: "1,234", 1234567: "1,234,567", 20: "20",
	} {
		if got := Figure(x); got != want {
			t.Errorf("%v is written %s, want %s", x, got, want)
		}
	}
	zero := 0.0
	if got := Figure(1 / zero); got != "–" {
		t.Errorf("infinity is written %s", got)
	}
}

func TestMarkdown(t *testing.T) {
	var b strings.Builder
	if err := fixed().Markdown(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "benchmarks.md", b.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s has changed; if that is wanted: go test ./report -update\n%s", path, got)
	}
}
