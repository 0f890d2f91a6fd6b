package shard_test

import (
	"fmt"
	"runtime"
	"strconv"
)

func processors() int { return runtime.NumCPU() }

func atof(s string) float64 {
	f, _ := strconv.ParseFloat(s, 64)
	return f
}

// number writes thousands with commas.
func number(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%s,%03d", number(n/1000), n%1000)
}

func processes(n int) string {
	if n == 1 {
		return "one process"
	}
	return fmt.Sprint(n, " processes")
}

// fair returns what the busiest node decided, as a multiple of its part of
// the slots: a third, where nothing else is said.
func fair(o *outcome, parts []float64) (worst float64) {
	all := 0.0
	for _, s := range o.evalsha {
		all += float64(s.Calls)
	}
	for n, s := range o.evalsha {
		part := 1.0 / 3
		if parts != nil {
			part = parts[n]
		}
		if part > 0 {
			worst = max(worst, float64(s.Calls)/all/part)
		}
	}
	return worst
}

func (r *report) windows() {
	r.section("Windows that pass", fmt.Sprintf("Three periods of %v (thirty for TokenBucket above 100 %%), limit %s, K = 16, eight processes, calls evenly in time, merging off. Admitted is the part of what the limit allows, or of the calls if they are fewer. FixedWindow's periods touch one window more. A call lost every race if the sum showed free units, and other calls took them in both tries.", length, number(r.paced[0].Limit)))
	r.line("| algorithm | load | admitted | lost every race, %% | commands per decision |\n| --- | --- | --- | --- | --- |")
	for i := range r.paced {
		if o := &r.paced[i]; o.Load > 90 {
			r.line("| %s | %d %% | %.4f | %s | %.2f |", kindName(o), o.Load, o.admitted(), percent(o.wrong, o.decisions()), o.commands())
		}
	}
	r.line("\nEach sub-key of a TokenBucket can hold a fraction of a token, so at most K − 1 tokens are out of reach. A SlidingWindow rounds down in each share. So it admits a little sooner than a plain key.\n")
}

func (r *report) smallLimits() {
	r.section("Share sizes", "FixedWindow, K = 16, eight processes, merging off.")
	r.line("| limit / K | wrong denials, %%, at 98 and 150 %% | commands per decision |\n| --- | --- | --- |")
	for i := 0; i+1 < len(r.small); i += 2 {
		a, b := &r.small[i], &r.small[i+1]
		r.line("| %d | %s, %s | %.2f, %.2f |", a.Limit/int64(a.K), percent(a.wrong, a.decisions()), percent(b.wrong, b.decisions()), a.commands(), b.commands())
	}
	r.line("")
}

// worthShare returns the least limit / K from which on a spread key costs at
// most a tenth more commands at 98 %, and denies at most one call in a
// thousand wrongly.
func (r *report) worthShare() int64 {
	least, bad := int64(0), int64(0)
	for i := range r.small {
		o := &r.small[i]
		share := o.Limit / int64(o.K)
		if o.Load == 98 && o.commands() > 1.1 || float64(o.wrong) > 0.001*float64(o.decisions()) {
			least, bad = 0, share // at any load
		} else if least == 0 && share != bad {
			least = share
		}
	}
	return least
}

// advice is drawn from the tables.
func (r *report) advice() {
	r.section("When to spread", "From the tables below:")
	if n := r.worthShare(); n > 0 {
		r.line("- The smallest useful share, limit / K, is about **%s**. From there on, a spread key costs at most 10 %% more commands at 98 %% of its limit. At most one call in a thousand is denied wrongly. For smaller shares choose a smaller K, or none.", number(n))
	} else {
		r.line("- No share measured here stays within 10 %% more commands and one wrong denial in a thousand.")
	}
	r.line("- A cost above the smallest share, limit / K, is refused.")
	if n := r.pays(); n > 0 {
		r.line("- Here, with merging on (the default), spreading reduces the busiest node's load from **%s** on.", processes(n))
	} else {
		r.line("- Here, with merging on, spreading does not reduce the busiest node's load with up to %d processes: measure.", most)
	}
	plain, _ := r.time(0)
	_, busy := r.time(1)
	r.line("- With merging off, or with so many processes that calls seldom merge, the busiest node spends %.2f of its time for the plain key.\n", busy/plain)
}

// pays returns from how many processes on the busiest node has at least a
// tenth less to do for the spread key; 0: not with as many as were measured.
func (r *report) pays() int {
	from := 0
	for i := 0; i+3 < len(r.merging); i += 4 {
		if paired(r.merging[i+1], r.merging[i], busiestScript) > 0.9 {
			from = 0
		} else if from == 0 {
			from = r.merging[i][0].Procs
		}
	}
	return from
}

// what names a cell of below, and of subjects.
func (c *cell) what() string {
	switch {
	case c.Keys > 0:
		return fmt.Sprint(c.Keys, " plain keys")
	case c.K == 0:
		return "plain"
	}
	return fmt.Sprint("K = ", c.K)
}

func (r *report) nodes() {
	r.section("Calls of one key per node", "The busiest node's calls, as a multiple of its part of the slots: the worst of 10,000 keys, computed, and one key, as it was called. The uneven cluster has 2,000, 7,000 and 7,384 slots.")
	r.line("| K | three thirds, worst of 10,000 keys | one key, called | uneven, worst of 10,000 keys | one key, called |\n| --- | --- | --- | --- | --- |")
	for i := range r.even {
		if k := r.even[i].K; k > 0 {
			r.line("| %d | %.3f | %.3f | %.3f | %.3f |", k, busiest(k, thirds), fair(&r.even[i], nil), busiest(k, skewed), fair(&r.uneven[i], r.shares))
		}
	}
	r.line("\nSub-keys are spaced evenly over the slots, so a node gets at most one more than its part.\n")
}

func (r *report) server() {
	r.section("The servers' time", fmt.Sprintf("µs per decision of EVALSHA by `INFO commandstats`, of all nodes and of the busiest node. For one caller also the CPU of all main threads by `INFO cpu`, less that of an idle cluster: turns of %s calls, medians of %d rounds. With merging on, each process has 64 callers, FixedWindow is at 50 %% of the limit, medians of %d turns. All share the processors then, so a script's time contains some of others'.", number(int64(r.limit(4000))), len(r.cost[0]), turns))
	r.line("| processes | key | all nodes | busiest node | CPU of all nodes | EVALSHAs per decision | decisions per second |\n| --- | --- | --- | --- | --- | --- | --- |")
	for i := range r.cost {
		all, busy := r.time(i)
		r.line("| one caller | %s | %.2f | %.2f | %.2f | | |", subjects[i].what(), all, busy, median(r.cost[i], cpu))
	}
	for _, turns := range r.merging {
		o := &turns[0]
		if o.K > 16 {
			continue
		}
		r.line("| %d | %s | %.2f | %.2f | | %.2f | %s |", o.Procs, o.what(), typical(turns, allScripts), typical(turns, busiestScript),
			typical(turns, (*outcome).commands), number(int64(typical(turns, perSecond))))
	}
	r.line("\nOn one server with one caller, a decision takes %.2f µs for the plain key, and %.2f for one spread over 16. These are the least of thirty rounds. On the cluster a node with a third of the calls sleeps between them, as plain keys on all nodes show.\n", r.single[0], r.single[1])
	r.line("Decisions per second on one machine do not predict three machines.\n")
	r.line("Choosing the sub-key takes %d ns and %d allocations (K = 16, the least of seven, `go test ./shard -run '^$' -bench Choose`).\n", r.choose.NsPerOp(), r.choose.AllocsPerOp())
}

func (r *report) outages() {
	r.section("A primary killed", "FixedWindow, K = 16, one process of 16 callers. At a third of the limit, the primary of some of the shares is killed. Calls go on beyond the limit.")
	r.line("| mode | limit | admitted by the store | admitted by the mode | denied by the mode | admitted by the store before the promotion |\n| --- | --- | --- | --- | --- | --- |")
	for _, d := range r.deaths {
		r.line("| %s | %s | %s | %s | %s | %s |", d.mode, number(d.limit), number(d.passed), number(d.open), number(d.closed), number(d.before))
	}
	r.line("")
}
