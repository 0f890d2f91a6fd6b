package main

import (
	"time"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/peers"
	"github.com/headgate-go/headgate/bench/report"
)

const (
	server    = "redis"
	redisRate = "redis_rate"
	rueidis   = "rueidis EVALSHA"
)

func serverTrials() []trial {
	crowd := func(name, about string, keys func(*bench) load.Keys, makers func(*bench) []peers.Maker, metrics ...report.Metric) trial {
		return onServer(name+"/512", about+" 512 callers.", keys, makers, closed(crowdSize), metrics...)
	}
	few := func(name, about string, keys func(*bench) load.Keys, metrics ...report.Metric) trial {
		return onServer(name+"/32", about+" 32 callers.", keys, ours, closed(fewCallers), metrics...)
	}
	rate := func(targets ...report.Target) report.Metric { return drawn(server, metric(decisions, targets...)) }
	const oneKey, zipfKeys, allKeys = "One key.", "100,000 keys, the k-th called in proportion to 1/k^1.1.", "100,000 keys, each as likely."
	return []trial{
		crowd("hot", oneKey, hot, andAwaited, rate(beats(15, redisRate), beats(6, rueidis)),
			metric(serverCPU), metric(clientCPU)),
		crowd("zipf", zipfKeys, zipf, andFlights, rate(beats(7, redisRate), beats(3.5, rueidis)),
			metric(serverCPU), metric(clientCPU)),
		crowd("uniform", allKeys, uniform, andFlights, rate(beats(5, redisRate), beats(2, rueidis)),
			metric(serverCPU, within(0.35, redisRate)), metric(clientCPU, within(0.5, redisRate)),
			metric(allocations, within(0.3, ""))),
		few("hot", oneKey, hot, rate(beats(3, redisRate))),
		few("zipf", zipfKeys, zipf, rate(beats(2, redisRate))),
		few("uniform", allKeys, uniform, rate(beats(1.8, redisRate)), metric(allocations, within(2, ""))),
	}
}

func crowdSize(b *bench) int { return b.crowd }
func fewCallers(*bench) int  { return 32 }

func onServer(name, about string, keys func(*bench) load.Keys, makers func(*bench) []peers.Maker,
	turn func(*bench, *guest) (figures, error), metrics ...report.Metric) trial {
	return trial{
		place: server, name: "redis/" + name, about: about, metrics: metrics,
		makers: makers, keys: keys, fill: 64, turn: turn,
	}
}

// everybody takes part, each with a client of its own.
func everybody(b *bench) []peers.Maker {
	dial := peers.Own(b.addr())
	return append(ours(b), peers.Rueidis(b.addr()), peers.Ulule(dial), peers.Throttled(dial))
}

// andAwaited adds what server and client allow at most where round trips are
// shared.
func andAwaited(b *bench) []peers.Maker {
	return append(everybody(b), peers.Awaited(peers.Own(b.addr())))
}

// andFlights adds what the server alone allows there.
func andFlights(b *bench) []peers.Maker {
	return append(andAwaited(b), peers.Flights(peers.Own(b.addr())))
}

// ours are Headgate and its nearest peer.
func ours(b *bench) []peers.Maker {
	dial := peers.Own(b.addr())
	return []peers.Maker{peers.Headgate(dial, 1), peers.RedisRate(dial)}
}

// closed measures callers in closed loops on the server.
func closed(callers func(*bench) int) func(*bench, *guest) (figures, error) {
	return func(b *bench, g *guest) (figures, error) {
		var cpu float64
		s := load.Closed{Callers: callers(b), For: b.length, Between: func() { cpu = b.serverCPU() }}.Run(g.keys, g.Allow)
		cpu = b.serverCPU() - cpu
		failed, err := passing(&s)
		return figures{map[string]float64{
			decisions:   s.Rate(),
			serverCPU:   cpu * 1e6 / s.Decisions(),
			clientCPU:   s.CPU.Seconds() * 1e6 / s.Decisions(),
			allocations: float64(s.Mallocs) / s.Decisions(),
		}, failed}, err
	}
}

func otherServerTrials() []trial {
	rate := func(t report.Target) report.Metric { return drawn(server, metric(decisions, t)) }
	processes := onServer("hot/8x16", "One key, eight processes with 16 callers each.", hot, ours, inProcesses, rate(beats(2.5, redisRate)))
	processes.life = own
	three := onServer("three-policies/512", "100,000 keys, each as likely, three policies on each: one call of Headgate's, or three of redis_rate's. 512 callers.",
		uniform, threePolicies, closed(crowdSize), rate(beats(10, redisRate)))
	three.stored = "three"
	together := onServer("three-policies/hot/512", "One key with three policies: one call of Headgate's, or three of redis_rate's. 512 callers.",
		hot, threePolicies, closed(crowdSize), rate(beats(10, redisRate)))
	together.stored = "three"
	refused := onServer("denied/512", "One key, whose limit is used up. 512 callers, one process: what still reaches the server.",
		func(*bench) load.Keys { return load.Hot("denied:0") }, ours, denied, metric(scripts, within(2, "")), metric(decisions))
	refused.limit, refused.fill = peers.Limit{Rate: 1, Period: time.Hour, Burst: 1}, 0
	held := onServer("connections", "100,000 keys, each as likely. 1,000 callers: the connections that the server sees.",
		uniform, ours, counted, metric(connections, within(0.5, redisRate)))
	held.life = own
	return []trial{processes, together, three, refused, held}
}

func threePolicies(b *bench) []peers.Maker {
	dial := peers.Own(b.addr())
	return []peers.Maker{peers.Headgate(dial, 3), peers.RedisRateThree(dial)}
}

// denied: only the first call ever may have passed.
func denied(b *bench, g *guest) (figures, error) {
	var sent float64
	s := load.Closed{Callers: b.crowd, For: b.length, Between: func() { sent = b.scripts() }}.Run(g.keys, g.Allow)
	sent = b.scripts() - sent
	s.Count[load.Failed] += s.Count[load.Passed]
	s.Count[load.Passed] = 0
	return figures{map[string]float64{decisions: s.Rate(), scripts: sent / s.Took.Seconds()}, s.Failed()}, nil
}

// counted looks at the server in the middle of the measurement.
func counted(b *bench, g *guest) (figures, error) {
	others := b.info("clients", "connected_clients")
	s, err := g.Make(g.limit)
	if err != nil {
		return figures{}, err
	}
	defer func() {
		s.Close()
		b.await(others)
	}()
	seen := make(chan float64, 1)
	sample := load.Closed{Callers: b.crowded, For: b.length, Between: func() {
		time.AfterFunc(b.length/2, func() { seen <- b.info("clients", "connected_clients") })
	}}.Run(g.keys, s.Allow)
	failed, err := passing(&sample)
	return figures{map[string]float64{connections: <-seen - others}, failed}, err
}

// await waits until the server has noticed that a client is gone.
func (b *bench) await(clients float64) {
	for end := time.Now().Add(5 * time.Second); b.info("clients", "connected_clients") > clients; {
		if time.Now().After(end) {
			b.stage.Fatal("a subject's connections stay after its Close")
		}
		time.Sleep(time.Millisecond)
	}
}
