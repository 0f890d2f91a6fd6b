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

const aboutMemory = `Two callers decide in this process, on one key or on a million: Zipf's (the k-th is called in proportion to 1/k^1.1) or each as likely.
Under ` + "`memory/refill`" + ` a bucket refills at 100 per second, so most keys are idle again 10 ms after their call; elsewhere no key runs idle.
The peers are go-limiter, x/time/rate in a sync.Map, throttled, ulule/limiter and httprate; under ` + "`refill`" + ` the first two.
Bytes per key are the live heap that a million keys add, without their strings.`

func memoryWorkloads() []workload {
	var all []workload
	for _, set := range []struct {
		name     string
		limit    peers.Limit
		subjects func(*bench) []peers.Maker
		least    map[string]float64
	}{
		{"memory/", peers.Roomy, cast(peers.Memory()...), map[string]float64{"hot": 1.5, "zipf": 1.1, "uniform": 1.0}},
		{"memory/refill/", peers.Refilling, cast(peers.Memory()[:2]...), map[string]float64{"hot": 1.5, "zipf": 1.0, "uniform": 0.9}},
	} {
		for _, keys := range []string{"hot", "zipf", "uniform"} {
			all = append(all, inMemory(set.name+keys, keys, set.limit, set.subjects, closed,
				metric(decisions, beats(set.least[keys], report.Fastest))))
		}
	}
	counted := inMemory("memory/allocations", "zipf", peers.Roomy, bothHeadgates, counted,
		metric(allocations, within(0, ""), atMost(0, observed, "")))
	weighed := inMemory("memory/bytes", "uniform", peers.Roomy, cast(peers.GoLimiter), weigh,
		metric(bytesKey, within(0.6, peers.GoLimiter.Name)))
	weighed.life, weighed.fill = own, 0
	return append(all, counted, weighed)
}

func inMemory(name, keys string, limit peers.Limit, subjects func(*bench) []peers.Maker,
	turn func(*bench, *subject) (figures, error), m report.Metric) workload {
	return workload{
		place: memory, name: name, keys: keys, limit: limit, subjects: subjects, callers: memoryCallers,
		life: fresh, fill: memoryCallers, turn: turn, metrics: []report.Metric{m},
	}
}

// cast is Headgate and its peers.
func cast(others ...peers.Maker) func(*bench) []peers.Maker {
	all := append([]peers.Maker{peers.HeadgateMemory(ours, nil)}, others...)
	return func(*bench) []peers.Maker { return all }
}

// events counts what an observer is told.
type events struct{ atomic.Int64 }

func (e *events) options() *headgate.Options {
	return &headgate.Options{Observer: func(headgate.Event) { e.Add(1) }}
}

func bothHeadgates(*bench) []peers.Maker {
	return []peers.Maker{peers.HeadgateMemory(ours, nil), peers.HeadgateMemory(observed, new(events).options())}
}

// counted is in thousandths: the runtime allocates now and then, too.
func counted(b *bench, s *subject) (figures, error) {
	f, err := closed(b, s)
	f.by[allocations] = math.Round(1000*f.by[allocations]) / 1000
	return f, err
}

// weigh fills a subject and counts what stays of it.
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

// live collects twice: what a finalizer held is gone only then.
func live() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
