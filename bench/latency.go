package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/peers"
	"github.com/headgate-go/headgate/bench/report"
)

const (
	latency    = "latency"
	bareScript = "plain EVALSHA"
	wireDelay  = time.Millisecond

	// Poisson arrivals are measured often and shortly: what the host does for some
	// milliseconds is most of a long run's p99.9, but few short ones meet it.
	// Of two limiters that are the same (redis_rate, twice) one in three ratios
	// was above 1.1 by medians of five seconds each; by medians of sixty quarters
	// it is one in 25 of p99, one in ten of p99.9.
	often   = 12
	quarter = 4
)

func latencyTrials() []trial {
	all := []trial{
		inTime("lone", "100,000 keys, each as likely. One caller; Headgate and the plain script through the same client.",
			sameClient, alone, drawn(latency, metric(p50, within(1.1, bareScript))), metric(p99, within(1.3, bareScript)), metric(allocations, within(6, ""))),
		inTime("paced", "100,000 keys, each as likely. 32 callers, together 5,000 calls a second at even distances; Headgate and the plain script through the same client.",
			sameClient, paced, drawn(latency, metric(p50, within(1.2, bareScript))), metric(p99)),
	}
	for _, link := range []string{"loopback", "1ms"} {
		for _, load := range []int{30, 60, 90} {
			all = append(all, poisson(link, load))
		}
	}
	return all
}

func inTime(name, about string, makers func(*bench) []peers.Maker, turn func(*bench, *guest) (figures, error), metrics ...report.Metric) trial {
	return trial{
		place: latency, name: "latency/" + name, about: about, metrics: metrics,
		makers: makers, keys: uniform, fill: 64, turn: turn,
	}
}

// sameClient: one client with the defaults for all three.
func sameClient(b *bench) []peers.Maker {
	client, hangUp := peers.Own(b.addr())()
	b.stage.Cleanup(hangUp)
	dial := peers.Shared(client)
	return []peers.Maker{peers.Headgate(dial, 1), peers.Plain(dial), peers.RedisRate(dial)}
}

func alone(b *bench, g *guest) (figures, error) {
	s := load.Closed{Callers: 1, For: b.length, Time: 1}.Run(g.keys, g.Allow)
	failed, err := passing(&s)
	f := figures{waits(&s), failed}
	f.by[allocations] = float64(s.Mallocs) / s.Decisions()
	return f, err
}

func paced(b *bench, g *guest) (figures, error) {
	s := load.Paced{Callers: 32, Rate: 5000, For: b.length}.Run(g.keys, g.Allow)
	failed, err := passing(&s)
	return figures{waits(&s), failed}, err
}

// poisson is a load in percent of what redis_rate carries over the same link.
func poisson(link string, percent int) trial {
	about := fmt.Sprintf("100,000 keys, each as likely. Calls arrive by a Poisson process at %d %% of redis_rate's capacity, each on a goroutine of its own; a wait counts from the instant of arrival.", percent)
	name := fmt.Sprintf("poisson/%d", percent)
	if link != "loopback" {
		about += " Through a proxy that makes a round trip one millisecond longer."
		name = fmt.Sprintf("poisson-%s/%d", link, percent)
	}
	at := func(b *bench) string {
		if link == "loopback" {
			return b.addr()
		}
		return b.behindWire()
	}
	t := inTime(name, about,
		func(b *bench) []peers.Maker {
			dial := peers.Own(at(b))
			return []peers.Maker{peers.Headgate(dial, 1), peers.RedisRate(dial), again(peers.RedisRate(dial))}
		},
		func(b *bench, g *guest) (figures, error) {
			rate, err := b.carried(link, at(b))
			if err != nil {
				return figures{}, err
			}
			s := load.Open{Rate: rate * float64(percent) / 100, For: b.length / quarter, Seed: uint64(g.run)}.Run(g.keys, g.Allow)
			failed, err := passing(&s)
			b.lateness(&s)
			return figures{waits(&s), failed}, err
		},
		drawn(latency, metric(p50, within(1.1, redisRate))), drawn(latency, metric(p99, within(1.1, redisRate))), metric(p999, within(1.1, redisRate)))
	t.often = often
	return t
}

// again is the same subject a second time: what stands between the two is
// chance.
func again(m peers.Maker) peers.Maker {
	m.Name += ", again"
	return m
}

// carried is redis_rate's capacity over a link: the median of three
// measurements of callers in closed loops, once in a run.
func (b *bench) carried(link, addr string) (float64, error) {
	if b.capacity[link] > 0 {
		return b.capacity[link], nil
	}
	s, err := peers.RedisRate(peers.Own(addr)).Make(peers.Roomy)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	var rates []float64
	for range 3 {
		sample := load.Closed{Callers: b.crowd, For: b.length}.Run(uniform(b), s.Allow)
		rates = append(rates, sample.Rate())
	}
	slices.Sort(rates)
	b.capacity[link] = rates[1]
	b.notes = append(b.notes, fmt.Sprintf("redis_rate's capacity, 512 callers in closed loops (%s): %s decisions a second.", link, report.Figure(rates[1])))
	return rates[1], nil
}

// behindWire is the server's address through the proxy, which is a process of
// its own: its goroutines would stand in one queue with the callers'.
func (b *bench) behindWire() string {
	if b.wire != "" {
		return b.wire
	}
	p, err := spawn("wire")
	if err != nil {
		b.stage.Fatal(err)
	}
	b.stage.Cleanup(func() { _ = p.close() })
	fmt.Fprintln(p.in, b.addr(), int64(wireDelay))
	if _, err := fmt.Fscanln(p.out, &b.wire); err != nil {
		b.stage.Fatal(err)
	}
	return b.wire
}

// lateness keeps how late arrivals were begun: it is part of every wait.
func (b *bench) lateness(s *load.Sample) { b.late = append(b.late, s.Late...) }
