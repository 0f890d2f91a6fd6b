package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/peers"
	"github.com/headgate-go/headgate/bench/report"
)

const (
	latency    = "latency"
	bareScript = "plain EVALSHA"

	// Poisson arrivals are measured often and shortly: a pause of the host is
	// most of a long run's tail, and few short ones meet it. Between two equal
	// limiters, medians of five seconds put one in three ratios of p99.9 above
	// 1.1. Medians of sixty quarters of a second put one in ten there.
	often   = 12
	quarter = 4
)

// latencyWorkloads compare a lone caller with the plain script through the same
// client, as the round trip is what it pays for. Poisson arrivals are compared
// with redis_rate, at a load that redis_rate carries: beyond it, its queue
// would grow without end.
func latencyWorkloads() []workload {
	all := []workload{
		waiting("lone", sameClient((*bench).addr), alone, metric(p50, within(1.5, bareScript)), metric(p99)),
		waiting("lone-link", sameClient((*bench).behindLink), alone, metric(p50, within(1.1, bareScript)), metric(p99)),
	}
	for _, percent := range []int{30, 60, 90} {
		w := waiting(fmt.Sprintf("poisson/%d", percent), pair, poisson(percent),
			metric(p50, within(1.1, redisRate)), metric(p99, within(1.2, redisRate)))
		w.runs = often
		all = append(all, w)
	}
	return all
}

// waiting is a workload whose figures are quantiles. Its keys are uniform, so
// hardly any two calls in flight have the same key, and merging does not hide
// the latency.
func waiting(name string, subjects makers, turn turn, metrics ...report.Metric) workload {
	return workload{
		place: latency, name: "latency/" + name, subjects: subjects, keys: "uniform", limit: peers.Roomy,
		callers: 1, policies: 1, fill: 64, turn: turn, metrics: metrics,
	}
}

// sameClient gives both subjects one client with go-redis's defaults, so that
// they share connections and differ only in the calls.
func sameClient(addr func(*bench) string) makers {
	return func(b *bench) []peers.Maker {
		client, hangUp := peers.Own(addr(b))()
		b.tb.Cleanup(hangUp)
		dial := peers.Shared(client)
		return []peers.Maker{peers.Headgate(dial, 1), peers.Plain(dial)}
	}
}

// alone is one caller in a closed loop: nothing to batch with, nothing to wait
// for.
func alone(b *bench, s *subject) (figures, error) {
	sample := load.Closed{Callers: 1, For: b.length, Time: true}.Run(s.names, s.Allow)
	failed, err := s.undecided(&sample)
	return figures{waits(&sample), failed}, err
}

// poisson is a load in percent of redis_rate's capacity. The seed is the turn's
// number, so both subjects get the same arrivals in a turn.
func poisson(percent int) turn {
	return func(b *bench, s *subject) (figures, error) {
		rate, err := b.carried()
		if err != nil {
			return figures{}, err
		}
		open := load.Open{Rate: rate * float64(percent) / 100, For: b.length / quarter, Seed: uint64(s.run)}
		sample := open.Run(s.names, s.Allow)
		b.late = append(b.late, sample.Late...)
		failed, err := s.undecided(&sample)
		return figures{waits(&sample), failed}, err
	}
}

// carried is redis_rate's capacity: the median of three measurements in closed
// loops. It is measured once per run, so that all loads of a run refer to the
// same number.
func (b *bench) carried() (float64, error) {
	if b.capacity > 0 {
		return b.capacity, nil
	}
	s, err := peers.RedisRate(peers.Own(b.addr())).Make(peers.Roomy)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	var rates []float64
	for range 3 {
		sample := load.Closed{Callers: b.most, For: b.length}.Run(load.Named("uniform", b.keys), s.Allow)
		rates = append(rates, sample.Rate())
	}
	slices.Sort(rates)
	b.capacity = rates[1]
	return b.capacity, nil
}

// behindLink is the server's address through a proxy that delays. The proxy is
// a process of its own, since its goroutines would be scheduled among the
// callers'.
func (b *bench) behindLink() string {
	if b.link != "" {
		return b.link
	}
	cmd := self("link")()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.tb.Fatal(err)
	}
	b.tb.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	fmt.Fprintln(in, b.addr())
	if _, err := fmt.Fscanln(out, &b.link); err != nil {
		b.tb.Fatal(err)
	}
	return b.link
}
