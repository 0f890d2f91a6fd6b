//go:build go1.25

package headgate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/assert"
)

const (
	fleetLimit  = 20_000 // per second
	fleetBorrow = 50 * time.Millisecond
	fleetTrip   = fleetBorrow / 25
)

// fleetLimits are the limits of TestBorrowFigures. Above the load that each has, it has no
// room for loans that last: what comes free comes in small portions. The first bucket's burst
// is what its rate makes in one term, so it has none below either.
var fleetLimits = []struct {
	algo.Algorithm
	over func([]span) int64
	load int // percent
}{
	{algo.TokenBucket(algo.PerSecond(fleetLimit), fleetLimit/20), func(s []span) int64 { return mostAboveRate(s, fleetLimit) - fleetLimit/20 }, 0},
	{algo.FixedWindow(algo.PerSecond(fleetLimit)), func(s []span) int64 { return mostInWindow(s, time.Second) - fleetLimit }, 200},
	{algo.TokenBucket(algo.PerSecond(fleetLimit), fleetLimit), func(s []span) int64 { return mostAboveRate(s, fleetLimit) - fleetLimit }, 102},
	{algo.SlidingWindow(algo.PerSecond(fleetLimit)), func(s []span) int64 { return mostInWindow(s, time.Second) - fleetLimit }, 90},
	{algo.BucketedWindow(algo.Per(fleetLimit*5, 5*time.Second), 5), func(s []span) int64 { return mostTrailing(s, 5*time.Second) - 5*fleetLimit }, 200},
	{algo.BucketedWindow(algo.PerSecond(fleetLimit), 10), func(s []span) int64 { return mostTrailing(s, time.Second) - fleetLimit }, 85},
}

// TestBorrowFigures calls one key from eight processes, each more than a hundred times per
// term, under virtual time. Few round trips are needed, nearly as many calls are admitted as a
// limiter without a way to its store admits, and few are denied that have a unit left.
func TestBorrowFigures(t *testing.T) {
	redistest.Plain(t)
	for _, limit := range fleetLimits[:redistest.Steps(2, len(fleetLimits))] {
		for _, load := range []int{85, 90, 102, 200} {
			t.Run(fmt.Sprint(&limit.Algorithm, " ", load), func(t *testing.T) {
				t.Parallel()
				f := fleet{
					Algorithm: limit.Algorithm, borrow: fleetBorrow, trip: fleetTrip,
					lasts: time.Duration(redistest.Steps(1_500, 10_000)) * time.Millisecond, callers: callers(8, fleetLimit*float64(load)/100),
				}
				run := f.run(t)
				lent := f.figures(run)
				merged := f
				merged.borrow = 0
				without := merged.figures(merged.run(t))
				t.Logf("%v at %d %%: %.1f round trips per 1,000 calls (%.1f without, at least %.1f if none is denied in vain), %.4f admitted of strict (%.4f), %.2f %% wrong denials (%.2f %%), for %v at most (%v)",
					&limit.Algorithm, load, lent.trips, without.trips, f.fewest(run.calls, without.perTrip()), lent.ofStrict, without.ofStrict,
					lent.percentWrong(), without.percentWrong(), lent.longest, without.longest)
				assert.LessOrEqual(t, limit.over(spansOf(run.calls)), int64(0))
				if load <= limit.load {
					assert.LessOrEqual(t, lent.trips, 25.0)
				}
				assert.GreaterOrEqual(t, lent.ofStrict, 0.995)
				assert.LessOrEqual(t, lent.longest, fleetBorrow)
				if f.strict(run.calls) == len(run.calls) {
					assert.Zero(t, lent.wrong)
				}
				assert.LessOrEqual(t, lent.percentWrong(), without.percentWrong()+0.5)
			})
		}
	}
}

// TestBorrowOfALog is TestBorrowFigures for logs, of which each call leaves at an instant of
// its own.
func TestBorrowOfALog(t *testing.T) {
	redistest.Plain(t)
	const limit, term = 60_000, 500 * time.Millisecond
	for _, a := range []algo.Algorithm{algo.SlidingLog(algo.PerMinute(limit)), algo.CompactLog(algo.PerMinute(limit))} {
		for _, load := range []int{90, 102, 200} {
			t.Run(fmt.Sprint(&a, " ", load), func(t *testing.T) {
				t.Parallel()
				f := fleet{
					Algorithm: a, borrow: term, trip: term / 25,
					lasts: time.Duration(redistest.Steps(70, 180)) * time.Second, callers: callers(8, limit/60*float64(load)/100),
				}
				run := f.run(t)
				lent, over := f.figures(run), mostTrailing(spansOf(run.calls), time.Minute)-limit
				t.Logf("%v at %d %%: %.1f round trips per 1,000 calls, %.4f admitted of strict, %d over, %.2f %% wrong denials, for %v at most",
					&a, load, lent.trips, lent.ofStrict, max(over, 0), lent.percentWrong(), lent.longest)
				assert.LessOrEqual(t, over, int64(0))
				assert.GreaterOrEqual(t, lent.ofStrict, 0.99)
				assert.LessOrEqual(t, lent.longest, term)
			})
		}
	}
}

// TestBorrowOfALongTerm: units are counted when they are reported. If a term is no small
// part of a bucket, or of a log's period, they leave late, and calls are denied below the limit.
func TestBorrowOfALongTerm(t *testing.T) {
	redistest.Plain(t)
	for _, c := range []struct {
		algo.Algorithm
		rate, load float64 // calls per second that the limit allows, and the part of them that comes
	}{
		{algo.BucketedWindow(algo.Per(fleetLimit*5, 5*time.Second), 5), fleetLimit, 0.85},
		{algo.BucketedWindow(algo.PerSecond(fleetLimit), 10), fleetLimit, 0.85},
		{algo.CompactLog(algo.PerSecond(6_000)), 6_000, 1},
	} {
		for _, term := range []time.Duration{fleetBorrow, 4 * fleetBorrow, 10 * fleetBorrow} {
			t.Run(fmt.Sprint(&c.Algorithm, term), func(t *testing.T) {
				t.Parallel()
				f := fleet{
					Algorithm: c.Algorithm, borrow: term, trip: fleetTrip,
					lasts: 12 * time.Second, callers: callers(8, c.rate*c.load),
				}
				admitted := f.figures(f.run(t)).ofStrict
				t.Logf("%v, %v: %.3f admitted of strict", &c.Algorithm, term, admitted)
				assert.GreaterOrEqual(t, admitted, 0.95)
			})
		}
	}
}

// TestBorrowOverAVirtualLink is TestBorrowOverALink under virtual time, in which a processor
// takes no time: it shows how long calls wait for the link.
func TestBorrowOverAVirtualLink(t *testing.T) {
	redistest.Plain(t)
	took := map[time.Duration][]time.Duration{}
	for _, term := range []time.Duration{0, fleetBorrow} {
		f := fleet{
			Algorithm: algo.TokenBucket(algo.PerSecond(1<<30), 1<<30), borrow: term, trip: linkTrip,
			lasts: time.Duration(redistest.Steps(500, 5_000)) * time.Millisecond, callers: callers(32, 64_000),
		}
		for _, c := range f.run(t).calls {
			if c.begin >= f.lasts/3 { // homes begin
				took[term] = append(took[term], c.answer-c.begin)
			}
		}
		all := took[term]
		slices.Sort(all)
		t.Logf("32 processes with 2,000 calls per second each, borrowed for %v: %d calls, p50 %v, p99 %v",
			term, len(all), all[len(all)/2], all[len(all)*99/100])
	}
	with, without := took[fleetBorrow], took[0]
	assert.Zero(t, with[len(with)/2])
	assert.GreaterOrEqual(t, without[len(without)/2], linkTrip*3/4)
	assert.LessOrEqual(t, float64(with[len(with)*99/100]), 1.2*float64(without[len(without)*99/100]))
}

// perTrip returns the admitted calls per round trip.
func (g *figures) perTrip() float64 {
	return float64(g.admitted) * 1000 / (g.trips * float64(g.calls))
}

func (g *figures) percentWrong() float64 { return float64(g.wrong) * 100 / float64(g.calls) }

// TestBorrowIsFair lets one process take everything for a time. Others come then, with as
// many calls: each gets its share within three terms.
func TestBorrowIsFair(t *testing.T) {
	redistest.Plain(t)
	const limit = 10_000
	others := redistest.Steps(7, 31)
	for _, a := range []algo.Algorithm{
		algo.TokenBucket(algo.PerSecond(limit), limit/20), algo.TokenBucket(algo.PerSecond(limit), limit), algo.FixedWindow(algo.PerSecond(limit)),
	} {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			alone := time.Duration(redistest.Steps(1, 10)) * time.Second
			f := fleet{Algorithm: a, borrow: fleetBorrow, trip: fleetTrip, lasts: alone + 2*time.Second}
			f.callers = []caller{{rate: limit}}
			for range others {
				f.callers = append(f.callers, caller{limit, alone})
			}
			got, all := make([]float64, others+1), 0.0
			for _, c := range f.run(t).calls {
				if c.allowed && c.answer >= alone+3*fleetBorrow {
					got[c.process]++
					all++
				}
			}
			for i := range got {
				got[i] *= float64(len(got)) / all
			}
			t.Logf("%v: shares of a fair one: %.2f", &a, got)
			for i := range got {
				assert.InDelta(t, 1, got[i], 0.2, "process %d", i)
			}
		})
	}
}
