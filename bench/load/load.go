// Package load calls a limiter as services do, and counts the answers. Closed
// is callers in closed loops, which measures capacity. Open is calls that
// arrive on their own, which measures latency.
package load

import (
	"context"
	"runtime"
	"time"
)

// Answer is what a caller got.
type Answer uint8

// The answers. Failed is any call that the limiter did not decide: an error, a
// spent budget, a race lost too often. It is never counted as a decision.
const (
	Failed Answer = iota
	Passed
	Denied
)

// Call asks a limiter about one key. Each caller has its own context that can
// end, as the handlers of an HTTP server have. With only context.Background, a
// limiter could skip the work that such a context causes.
type Call func(ctx context.Context, key string) Answer

// Sample is what one measurement saw.
type Sample struct {
	Count   [3]int64 // by Answer
	Took    time.Duration
	Mallocs uint64        // of the whole process
	CPU     time.Duration // of the whole process
	Waits   []time.Duration
	Late    []time.Duration // how late the calls of an open loop were begun
}

// Decisions is how many calls were decided.
func (s *Sample) Decisions() float64 { return float64(s.Count[Passed] + s.Count[Denied]) }

// Rate is decisions per second.
func (s *Sample) Rate() float64 { return s.Decisions() / s.Took.Seconds() }

// Failed is the share of the calls that were not decided.
func (s *Sample) Failed() float64 {
	if all := s.Decisions() + float64(s.Count[Failed]); all > 0 {
		return float64(s.Count[Failed]) / all
	}
	return 0
}

// add merges what one caller saw.
func (s *Sample) add(t *tally) {
	for a, n := range t.count {
		s.Count[a] += n
	}
	s.Waits = append(s.Waits, t.waits...)
}

// tally is one caller's counts. Callers share nothing that they write: a common
// counter would be hotter than what is measured. The padding keeps two tallies
// out of one cache line.
type tally struct {
	count [3]int64
	waits []time.Duration
	_     [64]byte // no cache line with a neighbour's
}

// meter reads the process before and after a measurement. Mallocs and CPU are
// the whole process's, so nothing else may run beside it.
type meter struct {
	begin   time.Time
	cpu     time.Duration
	mallocs uint64
}

// start reads the clock last, stop reads it first: reading the memory
// statistics stops the world, which must not count as time of the subject.
func start() meter {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return meter{mallocs: mem.Mallocs, cpu: CPU(), begin: time.Now()}
}

func (m meter) stop(s *Sample) {
	s.Took = time.Since(m.begin)
	s.CPU = CPU() - m.cpu
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	s.Mallocs = mem.Mallocs - m.mallocs
}
