package main

import (
	"math"
	"runtime"
	"sync/atomic"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/peers"
	"github.com/headgate-go/headgate/bench/report"
)

const (
	memory        = "memory"
	memoryCallers = 2
	observed      = "headgate, observed"
)

// memoryWorkloads have two callers on two processors. More callers than
// processors would measure the scheduler. Bytes per key are compared only with
// go-limiter, the nearest peer that also removes idle keys.
func memoryWorkloads() []workload {
	var all []workload
	for _, set := range []struct {
		name     string
		limit    peers.Limit
		subjects makers
		least    [3]float64
	}{
		{"memory/", peers.Roomy, with(peers.Memory()...), [3]float64{1.5, 1.1, 1.0}},
		{"memory/refill/", peers.Refilling, with(peers.Memory()[:2]...), [3]float64{1.5, 1.0, 0.9}},
	} {
		for i, keys := range []string{"hot", "zipf", "uniform"} {
			all = append(all, inMemory(set.name+keys, keys, set.limit, set.subjects, closed,
				metric(decisions, beats(set.least[i], report.Fastest))))
		}
	}
	counted := inMemory("memory/allocations", "zipf", peers.Roomy, bothHeadgates, counted,
		metric(allocations, within(0, ""), atMost(0, observed, "")))
	counted.life = kept
	weighed := inMemory("memory/bytes", "uniform", peers.Roomy, with(peers.GoLimiter), weigh,
		metric(bytesKey, within(0.6, peers.GoLimiter.Name)))
	weighed.life, weighed.fill = own, 0
	return append(all, counted, weighed)
}

// inMemory is a workload of one metric, with a subject made anew for each turn.
func inMemory(name, keys string, limit peers.Limit, subjects makers, turn turn, m report.Metric) workload {
	return workload{
		place: memory, name: name, keys: keys, limit: limit, subjects: subjects, callers: memoryCallers,
		life: fresh, fill: memoryCallers, turn: turn, metrics: []report.Metric{m},
	}
}

// with is Headgate and its peers, Headgate first: a ratio is taken from the
// first row that is Headgate's.
func with(others ...peers.Maker) makers {
	all := append([]peers.Maker{peers.HeadgateMemory(ours, nil)}, others...)
	return func(*bench) []peers.Maker { return all }
}

// events counts what an observer receives, the least that an observer can do.
type events struct{ atomic.Int64 }

func (e *events) options() *headgate.Options {
	return &headgate.Options{Observer: func(headgate.Event) { e.Add(1) }}
}

// bothHeadgates are Headgate with and without an observer: neither may
// allocate.
func bothHeadgates(*bench) []peers.Maker {
	return []peers.Maker{peers.HeadgateMemory(ours, nil), peers.HeadgateMemory(observed, new(events).options())}
}

// counted rounds to thousandths of an allocation per decision. The runtime's
// own few allocations vanish, and one allocation in a thousand calls still
// shows.
func counted(b *bench, s *subject) (figures, error) {
	f, err := closed(b, s)
	f.by[allocations] = math.Round(1000*f.by[allocations]) / 1000
	return f, err
}

// weigh fills a subject and counts what stays of it. The keys' strings exist
// before, so a subject that keeps them adds nothing for them.
func weigh(_ *bench, s *subject) (figures, error) {
	before := live()
	made, err := s.Make(s.limit)
	if err != nil {
		return figures{}, err
	}
	defer made.Close()
	if err := load.Fill(memoryCallers, s.names, made.Fill); err != nil {
		return figures{}, err
	}
	grown := live() - before
	runtime.KeepAlive(made)
	return figures{by: map[string]float64{bytesKey: grown / float64(len(s.names.Names()))}}, nil
}

// live is the heap after two collections: what a finalizer holds is freed by
// the second.
func live() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
