package main

import (
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/peers"
	"github.com/headgate-go/headgate/bench/report"
)

const (
	memory        = "memory"
	memoryCallers = 2
	token         = "headgate TokenBucket"
	sliding       = "headgate SlidingWindow"
)

var (
	tokens  = peers.HeadgateMemory(token, peers.TokenBucket, 0)
	windows = peers.HeadgateMemory(sliding, peers.SlidingWindow, 0)
)

func memoryTrials() []trial {
	rate := func(targets ...report.Target) report.Metric { return drawn(memory, metric(decisions, targets...)) }
	return []trial{
		inMemory("hot", "One key, two callers.", hot, rate(
			atLeast(1.3, token, report.Fastest), atLeast(1.3, sliding, report.Fastest)),
			withPeers(tokens, windows)),
		inMemory("zipf", "A million keys, the k-th called in proportion to 1/k^1.1, two callers.", func(b *bench) load.Keys { return load.Zipf(users, b.many, 1.1) },
			rate(atLeast(1.25, token, report.Fastest)), withPeers(tokens)),
		inMemory("uniform", "A million keys, each as likely, two callers.", manyKeys,
			rate(atLeast(1.1, token, report.Fastest)), withPeers(tokens)),
		{
			place: memory, name: "memory/bytes", life: own, runs: 3,
			about:   "The live heap after a collection that a million keys add, over their number. The key strings are the caller's and count for nobody.",
			metrics: []report.Metric{metric(bytesKey, atMost(0.6, token, "go-limiter"))},
			makers:  withPeers(tokens, windows), keys: manyKeys, turn: weigh,
		},
		inMemory("many-policies", "One key, two callers: 20 policies in one decision beside one, and limits of 2^31. Published without a target.", hot, metric(decisions),
			cast(peers.HeadgateMany("20 × TokenBucket", peers.TokenBucket, 0, 20), tokens,
				peers.HeadgateMemory("TokenBucket 2^31", highToken, 0), peers.HeadgateMemory("SlidingWindow 2^31", highWindow, 0))),
		{
			place: memory, name: "memory/10M", life: fresh, fill: memoryCallers, runs: 2,
			about:   "Ten million keys, each as likely, two callers, a forced collection a second. Each 16th call is timed. Published without a target.",
			metrics: []report.Metric{metric(decisions), metric(p999), metric(gcShare)},
			makers: func(b *bench) []peers.Maker {
				return []peers.Maker{peers.HeadgateMemory(token, peers.TokenBucket, b.most+b.most/8), peers.GoLimiter}
			},
			keys: func(b *bench) load.Keys { return load.Uniform(users, b.most) }, turn: crowdedHeap,
		},
	}
}

func inMemory(name, about string, keys func(*bench) load.Keys, m report.Metric, makers func(*bench) []peers.Maker) trial {
	return trial{
		place: memory, name: "memory/" + name, about: about, life: fresh, fill: memoryCallers,
		metrics: []report.Metric{m}, makers: makers, keys: keys, turn: inProcess,
	}
}

func manyKeys(b *bench) load.Keys { return load.Uniform(users, b.many) }

func cast(makers ...peers.Maker) func(*bench) []peers.Maker {
	return func(*bench) []peers.Maker { return makers }
}

func withPeers(ours ...peers.Maker) func(*bench) []peers.Maker {
	return cast(append(ours, peers.Memory()...)...)
}

// The highest limits there are; Check's small ones stay as they are.
func highToken(l peers.Limit) algo.Algorithm  { return peers.TokenBucket(high(l)) }
func highWindow(l peers.Limit) algo.Algorithm { return peers.SlidingWindow(high(l)) }

func high(l peers.Limit) peers.Limit {
	if l == peers.Roomy {
		l.Rate, l.Burst = algo.MaxLimit, algo.MaxLimit
	}
	return l
}

func inProcess(b *bench, g *guest) (figures, error) {
	s := load.Closed{Callers: memoryCallers, For: b.length / 2}.Run(g.keys, g.Allow)
	failed, err := passing(&s)
	return figures{map[string]float64{decisions: s.Rate()}, failed}, err
}

// weigh fills a subject and counts what stays of it.
func weigh(_ *bench, g *guest) (figures, error) {
	before := live()
	s, err := g.Make(g.limit)
	if err != nil {
		return figures{}, err
	}
	defer s.Close()
	if err := load.Fill(memoryCallers, g.keys, s.Fill); err != nil {
		return figures{}, err
	}
	grown := live() - before
	runtime.KeepAlive(s)
	return figures{by: map[string]float64{bytesKey: grown / float64(len(g.keys.Names()))}}, nil
}

// live collects twice: what a finalizer held is gone only then.
func live() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// crowdedHeap measures with a collection a second under way, as in a service
// that makes garbage. The collector's share is from the end of the one before
// the measurement to the end of the last that it began; the callers go on until
// then, since without them it would take all that is idle.
func crowdedHeap(b *bench, g *guest) (figures, error) {
	var before, after cpuTaken
	stop, stopped := make(chan struct{}), make(chan struct{})
	closed := load.Closed{Callers: memoryCallers, For: 2 * b.length, Time: 16, Between: func() {
		before = collector()
		go func() {
			defer close(stopped)
			after = collect(stop)
		}()
	}}
	s := closed.Run(g.keys, g.Allow)
	close(stop)
	load.Until(stopped, memoryCallers, g.keys, g.Allow)
	failed, err := passing(&s)
	f := figures{waits(&s), failed}
	f.by[decisions] = s.Rate()
	f.by[gcShare] = 100 * (after.collecting - before.collecting) / (after.all - before.all)
	return f, err
}

// collect forces a collection now and every second until it is stopped, and
// returns what had been taken when the last ended.
func collect(stop chan struct{}) cpuTaken {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		runtime.GC()
		taken := collector()
		select {
		case <-stop:
			return taken
		case <-tick.C:
		}
	}
}

// cpuTaken is in seconds; the runtime reckons it at the end of a collection.
type cpuTaken struct{ collecting, all float64 }

func collector() cpuTaken {
	samples := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/total:cpu-seconds"}}
	metrics.Read(samples)
	return cpuTaken{samples[0].Value.Float64(), samples[1].Value.Float64()}
}
