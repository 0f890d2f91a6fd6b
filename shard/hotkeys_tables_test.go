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
	r.section("Windows that pass", fmt.Sprintf("Three periods of %v (thirty for TokenBucket above 100 %%), limit %s, K = 16, eight processes, calls evenly in time, no merging. Admitted is the part of what the limit allows, of the calls that came: for TokenBucket of burst + rate · t. FixedWindow's periods here begin within a window of the clock, so that they touch one more. Denials that lost every race are what the store counted: after two tries there was room left of what the sum had shown, unless another process had taken it too.", length, number(r.paced[0].Limit)))
	r.line("| algorithm | load | admitted | lost every race, %% | sums | commands a decision |\n| --- | --- | --- | --- | --- | --- |")
	for i := range r.paced {
		o := &r.paced[i]
		r.line("| %s | %d %% | %.4f | %s | %d | %.2f |", kindName(o), o.Load, o.admitted(), percent(o.wrong, o.decisions()), o.stats.Sums, o.commands())
	}
	r.line("\nA sub-key of a TokenBucket holds a fraction of a token at any time, so at most K − 1 tokens are out of reach. A SlidingWindow rounds down in each share, and lets pass a little sooner than the plain one.\n")
}

func (r *report) smallLimits() {
	r.section("From which share on", "FixedWindow, K = 16, eight processes, no merging.")
	r.line("| limit | limit / K | load | wrong denials, %% | commands a decision |\n| --- | --- | --- | --- | --- |")
	for i := range r.small {
		o := &r.small[i]
		r.line("| %s | %d | %d %% | %s | %.2f |", number(o.Limit), o.Limit/int64(o.K), o.Load, percent(o.wrong, o.decisions()), o.commands())
	}
	r.line("")
}

// worthShare returns the least limit / K from which on a spread key costs at
// most a tenth more commands at 98 %, and denies at most one call in a
// thousand wrongly.
func (r *report) worthShare() int64 {
	least := int64(0)
	for i := range r.small {
		o := &r.small[i]
		bad := o.Load == 98 && o.commands() > 1.1 || float64(o.wrong) > 0.001*float64(o.decisions())
		if bad {
			least = 0
		} else if least == 0 {
			least = o.Limit / int64(o.K)
		}
	}
	return least
}

// advice is drawn from the tables.
func (r *report) advice() {
	r.section("When to spread", "Drawn from the tables below.")
	if n := r.worthShare(); n > 0 {
		r.line("- From limit / K of about **%s** on a spread key asks at most a tenth more commands at 98 %% of its limit, and denies at most one call in a thousand wrongly. With smaller shares take a smaller K, or none.", number(n))
	} else {
		r.line("- At none of the shares measured here did a spread key stay within a tenth more commands and one wrong denial in a thousand.")
	}
	r.line("- A cost can't be above the smallest share, limit / K: such calls are refused.")
	for i := 0; i+3 < len(r.merging); i += 4 {
		plain, spread := r.merging[i], r.merging[i+1]
		r.line("- With merging on (the default) and %s, the busiest node spends %.2f µs per decision on the plain key, %.2f on one spread over 16, where all nodes together spend %.2f.",
			processes(plain[0].Procs), typical(plain, busiestScript), typical(spread, busiestScript), typical(spread, allScripts))
	}
	if n := r.pays(); n > 0 {
		r.line("- So here, with merging on, spreading takes load off the busiest node from **%s** on.", processes(n))
	} else {
		r.line("- So here, with merging on, spreading takes no load off the busiest node with up to %d processes. Spread a key that one node can't carry, and measure.", most)
	}
	plain, _ := r.time(0)
	_, busy := r.time(1)
	r.line("- Without merging, or with so many processes that calls seldom meet, the busiest node spends %.2f of what it spends on the plain key.\n", busy/plain)
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
	r.section("One key's calls over the nodes", "The busiest node's calls as a multiple of its part of the slots: by the slots alone, the worst of 10,000 keys; and of one key as it was called. Uneven is 2,000, 7,000 and 7,384 slots.")
	r.line("| K | three thirds, worst of 10,000 keys | one key, called | uneven, worst of 10,000 keys | one key, called |\n| --- | --- | --- | --- | --- |")
	for i := range r.even {
		if k := r.even[i].K; k > 0 {
			r.line("| %d | %.3f | %.3f | %.3f | %.3f |", k, busiest(k, thirds), fair(&r.even[i], nil), busiest(k, skewed), fair(&r.uneven[i], r.shares))
		}
	}
	r.line("\nK points that lie evenly put at most one more on a node than its part of the range: with fewer slots that one weighs more.\n")
}

func (r *report) server() {
	r.section("The servers' time", fmt.Sprintf("`INFO commandstats` of EVALSHA, µs a decision, of all nodes and of the busiest; and where one caller calls, what all nodes' main threads take by `INFO cpu`, less what they take idle. One caller without merging: the subjects by turns of %s calls, medians of %d rounds. With merging: FixedWindow at 50 %% of the limit, 64 callers in each process, medians of %d turns, where the processors are shared by all processes and nodes, and a script's time holds some of others'.", number(int64(r.limit(4000))), len(r.cost[0]), turns))
	r.line("| merging | processes | key | all nodes | busiest node | CPU of all nodes | EVALSHAs a decision | decisions a second |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
	for i := range r.cost {
		all, busy := r.time(i)
		r.line("| off, one caller | 1 | %s | %.2f | %.2f | %.2f | | |", subjects[i].what(), all, busy, median(r.cost[i], cpu))
	}
	for _, turns := range r.merging {
		o := &turns[0]
		r.line("| on | %d | %s | %.2f | %.2f | | %.2f | %s |", o.Procs, o.what(), typical(turns, allScripts), typical(turns, busiestScript),
			typical(turns, (*outcome).commands), number(int64(typical(turns, perSecond))))
	}
	r.line("\nOn one server, one caller, the least of thirty: %.2f µs a decision for the plain key, %.2f for one spread over 16. On the cluster a node that has a third of the calls sleeps between them, and wakes with cold caches: plain keys of all nodes show the same.\n", r.single[0], r.single[1])
	r.line("Decisions a second are of all processes and nodes on one machine, so they say nothing of three machines.\n")
	r.line("Choosing the sub-key takes %d ns and %d allocations (K = 16, the least of seven, `go test ./shard -run '^$' -bench Choose`).\n", r.choose.NsPerOp(), r.choose.AllocsPerOp())
}

func (r *report) outages() {
	r.section("A primary killed", "FixedWindow, K = 16, one process of 16 callers. The primary of some of the shares is killed at a third of the limit; calls go on until the whole limit has passed, and beyond.")
	r.line("| mode | limit | passed by the store | let pass by the mode | denied by the mode | passed by the store before the promotion |\n| --- | --- | --- | --- | --- | --- |")
	for _, d := range r.deaths {
		r.line("| %s | %s | %s | %s | %s | %s |", d.mode, number(d.limit), number(d.passed), number(d.open), number(d.closed), number(d.before))
	}
	r.line("")
}
