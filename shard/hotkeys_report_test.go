package shard_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/internal/lab/redistest"
)

// report is all that TestHotKeys measured.
type report struct {
	t       *testing.T
	matrix  []outcome // eight processes, a round trip for every call
	others  []outcome // one, two and four, with merging
	paced   []outcome
	small   []outcome
	even    []outcome   // plain, K = 16, K = 64 below the limit, no merging
	cost    [][]timing  // of each of subjects, several times
	merging [][]outcome // the same with merging on, each several times, for each number of processes
	crowded []outcome   // wrong denials with merging on
	uneven  []outcome
	shares  []float64 // each node's part of the slots then
	deaths  []death
	single  [2]float64 // server time per decision on one server: plain, K = 16
	choose  testing.BenchmarkResult
	took    time.Duration
	b       strings.Builder
	missed  []string
}

func (r *report) line(format string, args ...any) { fmt.Fprintf(&r.b, format+"\n", args...) }

func (r *report) markdown() string {
	r.line("# Hot keys\n")
	r.line("A key with `Options.Shards: K` is spread over K sub-keys in as many slots. `make hotkeys` (`go test ./shard -run '^TestHotKeys$' -hotkeys`) wrote this page in %v, and no number is typed by hand. The cluster has three primaries and three replicas, Redis %s. All processes and nodes share one machine of %d processors.\n", r.took.Round(time.Second), r.version(), processors())
	r.line("![Commands per decision by load, and server time per decision by node](hotkeys.svg)\n")
	r.required()
	r.advice()
	r.never()
	r.byLoad("Wrong denials", "Calls that were denied before the limit was spent, in % of all calls. Eight processes of eight callers call as fast as they can, with a limit of "+number(r.matrix[0].Limit)+". Each cell has the worst of five algorithms.", func(o *outcome) string {
		return percent(o.wrong, o.decisions())
	})
	r.byLoad("Commands per decision", "EVALSHAs that the servers ran, in the same runs, with deny cache and merging off. A denial of the whole key is cached for up to a second, and costs no command meanwhile.", func(o *outcome) string {
		return fmt.Sprintf("%.2f", o.commands())
	})
	r.windows()
	r.smallLimits()
	r.nodes()
	r.server()
	r.outages()
	return r.b.String()
}

func (r *report) section(title, what string) { r.line("## %s\n\n%s\n", title, what) }

func percent(n, of int) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%.3f", 100*float64(n)/float64(of))
}

func kindName(o *outcome) string {
	a := o.algorithm()
	return a.Kind().String()
}

// need notes a bound and what was measured.
func (r *report) need(what, bound, got string, ok bool) {
	mark := "met"
	if !ok {
		mark = "**missed**"
		r.missed = append(r.missed, what+": "+got)
	}
	r.line("| %s | %s | %s | %s |", what, bound, got, mark)
}

func (r *report) verdict() {
	for _, m := range r.missed {
		r.t.Errorf("missed: %s", m)
	}
}

// required holds the figures against what was promised.
func (r *report) required() {
	r.section("Promised and measured", "A ratio compares a key of K = 16 with a plain one. Merging has processes of 64 callers.")
	r.line("| what | at most | measured | |\n| --- | --- | --- | --- |")
	over, cells := 0, 0
	for _, set := range append([][]outcome{r.matrix, r.others, r.paced, r.small, r.even, r.crowded, r.uneven}, r.merging...) {
		for i := range set {
			cells++
			if set[i].broken != nil {
				over++
				r.t.Log(set[i].broken)
			}
		}
	}
	r.need(fmt.Sprintf("windows above the worst case of their algorithm, in %d runs", cells), "0", fmt.Sprint(over), over == 0)
	low, high := worstWrong(r.matrix)
	r.need("wrong denials of window algorithms, K = 16, up to 90 %", "0.01 %", low+" %", atof(low) <= 0.01)
	r.need("the same above 90 %", "0.1 %", high+" %", atof(high) <= 0.1)
	at := []float64{r.find(r.matrix, 0, 16, 90).commands(), r.find(r.matrix, 0, 16, 98).commands(), r.find(r.matrix, 0, 16, 1000).commands()}
	r.need("commands per decision, FixedWindow, K = 16, at 90, 98 and 1000 %", "1.01; 1.3; 0.5", fmt.Sprintf("%.3f; %.3f; %.3f", at[0], at[1], at[2]), at[0] <= 1.01 && at[1] <= 1.3 && at[2] <= 0.5)
	few, many := fair(&r.even[1], nil), fair(&r.even[2], nil)
	r.need("calls of the busiest primary, in its parts, K = 16 and 64", "1.13; 1.05", fmt.Sprintf("%.3f; %.3f", few, many), few <= 1.13 && many <= 1.05)
	spread := r.single[1] / r.single[0]
	r.need("ratio of server time per decision, merging off, one server", "1.10", fmt.Sprintf("%.2f", spread), spread <= 1.10)
	for i, f := range []func(timing) float64{timing.all, cpu} {
		got := ratio(r.cost[1], r.cost[3], f)
		r.need([]string{"the same on the cluster, to plain keys on all nodes", "the same, CPU of all nodes"}[i], "1.10", fmt.Sprintf("%.2f", got), got <= 1.10)
	}
	r.mergedRows()
	r.need("choosing the sub-key, K = 16", "50 ns, 0 allocations", fmt.Sprintf("%d ns, %d allocations", r.choose.NsPerOp(), r.choose.AllocsPerOp()), r.choose.NsPerOp() <= 50 && r.choose.AllocsPerOp() == 0)
	worst := 1.0
	for i := range r.paced {
		if o := &r.paced[i]; o.Kind == tokenBucket && o.Load > 100 {
			worst = min(worst, o.admitted())
		}
	}
	r.need("TokenBucket above 100 %, admitted part of burst + rate · t", "at least 0.999", fmt.Sprintf("%.4f", worst), worst >= 0.999)
	for _, d := range r.deaths {
		r.need("admitted by the store with a primary killed, "+d.mode+", limit "+number(d.limit), number(d.limit), number(d.passed), d.passed == d.limit && (d.mode == "open" || d.open == 0))
	}
	r.line("")
}

// mergedRows holds the spread key, with merging on, against the plain one.
func (r *report) mergedRows() {
	for i := 0; i+3 < len(r.merging); i += 4 {
		plain, spread := r.merging[i], r.merging[i+1]
		procs, cost, rate := plain[0].Procs, 0.6, 0.75
		if procs == most {
			cost, rate = 1.0, 0.65
		}
		busy, all := paired(spread, plain, busiestScript), paired(spread, plain, perSecond)
		r.need("ratio of the busiest node's script time, and of decisions per second, merging, "+processes(procs),
			fmt.Sprintf("%v; at least %v", cost, rate), fmt.Sprintf("%.2f; %.2f", busy, all), busy <= cost && all >= rate)
	}
	low, high := worstWrong(r.crowded)
	r.need(fmt.Sprintf("wrong denials, merging, 1 to %d processes, up to 90 %%", most), "0.01 %", low+" %", atof(low) <= 0.01)
	r.need("the same above 90 %", "0.1 %", high+" %", atof(high) <= 0.1)
	over := 0
	for i := range r.crowded {
		over += max(r.crowded[i].passed-int(r.crowded[i].Limit), 0)
	}
	r.need("the same, admitted above the limit", "0", fmt.Sprint(over), over == 0)
}

// paired is the median of the turns' own ratios.
func paired(a, b []outcome, f func(*outcome) float64) float64 {
	var all []float64
	for i := range a {
		all = append(all, f(&a[i])/f(&b[i]))
	}
	return middle(all)
}

// typical is the median of the turns.
func typical(turns []outcome, f func(*outcome) float64) float64 {
	var all []float64
	for i := range turns {
		all = append(all, f(&turns[i]))
	}
	return middle(all)
}

func perSecond(o *outcome) float64 { return float64(o.decisions()) / o.took.Seconds() }

func busiestScript(o *outcome) float64 {
	_, busiest := o.usec()
	return busiest
}

func allScripts(o *outcome) float64 {
	all, _ := o.usec()
	return all
}

// tokenBucket is its place in kinds.
const tokenBucket = 4

// admitted is what a paced cell admitted, as a part of what its algorithm
// could at most, of what was asked.
func (o *outcome) admitted() float64 {
	ideal := float64(o.Limit) * float64(o.Periods)
	if o.Kind == tokenBucket {
		ideal = float64(o.Limit) + float64(o.Limit)*float64(o.span)/float64(length.Microseconds())
	}
	return float64(o.passed) / min(ideal, float64(o.calls()))
}

// time returns what one caller's decision on the i-th of subjects cost: the
// medians.
func (r *report) time(i int) (all, busiest float64) {
	return median(r.cost[i], timing.all), median(r.cost[i], timing.busiest)
}

func (r *report) find(set []outcome, kind, k, load int) *outcome {
	for i := range set {
		if o := &set[i]; o.Kind == kind && o.K == k && o.Load == load {
			return o
		}
	}
	r.t.Fatalf("nothing measured for %d %d %d", kind, k, load)
	return nil
}

// worstWrong returns the worst of the window algorithms at K = 16, up to 90 %
// and above.
func worstWrong(set []outcome) (low, high string) {
	low, high = "0", "0"
	for i := range set {
		o := &set[i]
		if o.K != 16 || o.Kind == tokenBucket {
			continue
		}
		at := &high
		if o.Load <= 90 {
			at = &low
		}
		if p := percent(o.wrong, o.decisions()); atof(p) > atof(*at) {
			*at = p
		}
	}
	return low, high
}

// never tells how many runs there were, and what they admitted.
func (r *report) never() {
	r.section("Never more than the limit", fmt.Sprintf("`internal/oracle` compares every charge with the algorithm's worst case: each algorithm, K of %v, loads of %v %% of the limit.", spreadKs, loads))
	runs, passed, over := 0, 0, 0
	for _, set := range [][]outcome{r.matrix, r.others} {
		for i := range set {
			runs, passed = runs+1, passed+set[i].passed
			if set[i].broken != nil {
				over++
			}
		}
	}
	r.line("1 to %d processes admitted %s calls in %d runs. Of these runs %d were above the limit.\n", most, number(int64(passed)), runs, over)
}

// byLoad is a table of the matrix: the worst of all algorithms.
func (r *report) byLoad(title, what string, figure func(*outcome) string) {
	r.section(title, what)
	r.line("| K | %s |\n| --- |%s", strings.Join(heads(), " | "), strings.Repeat(" --- |", len(loads)))
	for _, k := range spreadKs {
		var figures []string
		for _, load := range loads {
			worst := "0"
			for kind := range kinds(algo.PerDay(1)) {
				if got := figure(r.find(r.matrix, kind, k, load)); atof(got) > atof(worst) {
					worst = got
				}
			}
			figures = append(figures, worst)
		}
		r.line("| %d | %s |", k, strings.Join(figures, " | "))
	}
	r.line("")
}

func heads() (all []string) {
	for _, load := range loads {
		all = append(all, fmt.Sprint(load, " %"))
	}
	return all
}

func (r *report) version() string {
	for line := range strings.Lines(redistest.Shared(r.t).Client(r.t).Info(r.t.Context(), "server").Val()) {
		if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}
