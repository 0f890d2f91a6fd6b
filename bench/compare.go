package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"

	"github.com/headgate-go/headgate/bench/fleet"
	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/report"
	"github.com/redis/go-redis/v9"
)

// The least ratio of this build's decisions per second to the other's. A
// fleet's may be lower: its processes compete for two cores, and its ratios
// vary more.
const (
	keptAlone   = 0.9
	keptInFleet = 0.8
)

const layout = "%-26s %12s %12s %7s  %-16s"

// compare runs Headgate from this build and from another binary by turns, on
// the workloads of one server and of the cluster. It prints the medians of both
// sides and of the turns' ratios. Both sides are children that get the same
// order, so neither has the parent's heap. A workload in memory needs no such
// child, and backend/memory's own benchmarks compare it.
func (b *bench) compare(binary string, turns int, chosen *regexp.Regexp) error {
	sides := []func() *exec.Cmd{self("caller"), func() *exec.Cmd { return exec.Command(binary) }}
	fmt.Printf(layout+"\n", "decisions per second", "this build", "the other", "ratio", "least … greatest")
	missed := 0
	for _, w := range workloads() {
		if w.place != server && w.place != cluster || !chosen.MatchString(w.name) {
			continue
		}
		pair, err := b.byTurns(w, sides, turns)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		missed += pair.print(w)
	}
	if missed > 0 {
		return fmt.Errorf("%d workloads are slower than before", missed)
	}
	return nil
}

// rates are both sides' decisions per second, and the ratio, by turn. The ratio
// is taken within a turn, since the machine's speed drifts between turns.
type rates struct{ this, other, ratio report.Row }

// byTurns lets each side begin every other turn, so that warm caches and the
// host's drift favour neither. Each side finds the servers empty, as another
// release may store another format. It fails on a denial: a denial is cheaper
// than a pass, so such a rate proves nothing.
func (b *bench) byTurns(w workload, sides []func() *exec.Cmd, turns int) (rates, error) {
	var all rates
	for turn := range turns {
		var rate [2]float64
		for i := range sides {
			side := (turn + i) % 2
			if err := b.flush(w); err != nil {
				return all, err
			}
			order := b.order(w, ours)
			order.Fill = true
			s, err := fleet.Run(sides[side], max(w.processes, 1), order)
			if err != nil {
				return all, err
			}
			if lost := s.Count[load.Denied]; lost > 0 {
				return all, fmt.Errorf("%d calls were denied where all should pass", lost)
			}
			rate[side] = s.Rate()
		}
		all.this.Runs = append(all.this.Runs, rate[0])
		all.other.Runs = append(all.other.Runs, rate[1])
		all.ratio.Runs = append(all.ratio.Runs, rate[0]/rate[1])
	}
	return all, nil
}

// flush empties the servers of a workload.
func (b *bench) flush(w workload) error {
	b.order(w, ours) // starts the servers
	nodes := b.primaries
	if w.place == server {
		nodes = []*redis.Client{b.admin}
	}
	for _, n := range nodes {
		if err := n.FlushAll(ctx).Err(); err != nil {
			return err
		}
	}
	return nil
}

// print returns 1 if the workload is slower than it may be.
func (r rates) print(w workload) int {
	bound, says, missed := keptAlone, "holds", 0
	if w.processes > 0 {
		bound = keptInFleet
	}
	if r.ratio.Median() < bound {
		says, missed = "**does not hold**", 1
	}
	least, greatest := report.Figure(slices.Min(r.ratio.Runs)), report.Figure(slices.Max(r.ratio.Runs))
	fmt.Printf(layout+" ≥ %v %s\n", w.name, report.Figure(r.this.Median()), report.Figure(r.other.Median()),
		report.Figure(r.ratio.Median()), least+" … "+greatest, bound, says)
	return missed
}
