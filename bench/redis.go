package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/bench/fleet"
	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/peers"
	"github.com/headgate-go/headgate/bench/report"
)

const (
	server    = "redis"
	ours      = "headgate"
	lent      = "headgate, borrowing for 50ms"
	longer    = "headgate, borrowing for 500ms"
	redisRate = "redis_rate"
	pipelined = "redis_rate, AutoPipeline"
	rueidis   = "rueidis EVALSHA"
)

// serverWorkloads compare closed loops with redis_rate, and the largest ones
// with rueidis too. A fleet of eight processes has bounds; the other shapes are
// published, since two cores run 16 processes by chance.
func serverWorkloads() []workload {
	var all []workload
	for _, w := range []struct {
		keys                     string
		rueidis, redisRate, by32 float64
	}{{"hot", 5, 15, 3}, {"zipf", 2.4, 7, 2}, {"uniform", 1.8, 5, 1.8}} {
		all = append(all,
			onServer(w.keys+"/512", w.keys, 512, 1, beats(w.redisRate, redisRate), beats(w.rueidis, rueidis)),
			onServer(w.keys+"/32", w.keys, 32, 1, beats(w.by32, redisRate)))
	}
	for _, shape := range []struct {
		processes, callers int
		hot, uniform       report.Target
	}{
		{8, 16, beats(3.5, redisRate), beats(2, redisRate)},
		{16, 4, published(redisRate), published(redisRate)},
		{4, 64, published(redisRate), published(redisRate)},
	} {
		all = append(all, inProcesses("hot", shape.processes, shape.callers, shape.hot),
			inProcesses("uniform", shape.processes, shape.callers, shape.uniform))
	}
	for _, shape := range []struct {
		processes, callers int
		zipf               float64
	}{{16, 4, 1.5}, {8, 16, 3}, {64, 2, 1.1}} {
		for _, w := range []struct {
			keys   string
			target report.Target
		}{{"hot", beats(10, redisRate)}, {"zipf", beats(shape.zipf, redisRate)}, {"uniform", beats(0.95, ours)}} {
			w.target.Of = lent
			borrows := inProcesses(w.keys, shape.processes, shape.callers, w.target)
			borrows.metrics[0].Targets = []report.Target{w.target, {Of: longer, Against: redisRate, Published: true}}
			borrows.name = strings.Replace(borrows.name, "redis/", "redis/borrow/", 1)
			borrows.subjects = borrowing
			all = append(all, borrows)
		}
	}
	all = append(all, slices.Concat(loneWorkloads(), scriptWorkloads())...)
	return append(all, onServer("three-policies/512", "uniform", 512, 3, beats(10, redisRate)))
}

// onServer is a workload in this process. A second target is the one against
// rueidis.
func onServer(name, keys string, callers, policies int, targets ...report.Target) workload {
	w := workload{
		place: server, name: "redis/" + name, subjects: trio, keys: keys, limit: peers.Roomy,
		callers: callers, policies: policies, fill: 64, turn: closed,
		metrics: []report.Metric{metric(decisions, append(targets, published(pipelined))...)},
	}
	switch {
	case policies == 3:
		w.subjects = threePolicies
		w.metrics = []report.Metric{metric(decisions, targets...)}
	case len(targets) > 1:
		w.subjects = func(b *bench) []peers.Maker { return append(trio(b), peers.Rueidis(b.addr())) }
	}
	return w
}

// pair is Headgate and its nearest peer, each with a client of its own.
func pair(b *bench) []peers.Maker {
	dial := peers.Own(b.addr())
	return []peers.Maker{peers.Headgate(dial, 1), peers.RedisRate(dial)}
}

// trio is the pair, and the peer as go-redis merges its commands.
func trio(b *bench) []peers.Maker {
	return append(pair(b), peers.RedisRatePipelined(peers.Own(b.addr())))
}

func borrowing(b *bench) []peers.Maker {
	dial := peers.Own(b.addr())
	return []peers.Maker{
		peers.Borrowing(dial, 50*time.Millisecond), peers.Borrowing(dial, 500*time.Millisecond), peers.Headgate(dial, 1), peers.RedisRate(dial),
	}
}

func threePolicies(b *bench) []peers.Maker {
	dial := peers.Own(b.addr())
	return []peers.Maker{peers.Headgate(dial, 3), peers.RedisRateThree(dial)}
}

// inProcesses is a workload of a fleet. Its subject lives in the children (life
// own): this process only fills the keys.
func inProcesses(keys string, processes, callers int, target report.Target) workload {
	w := onServer(fmt.Sprintf("%s/%dx%d", keys, processes, callers), keys, callers, 1, target)
	w.processes, w.life, w.turn = processes, own, inFleet
	return w
}

// inFleet measures in child processes. It has no figure of allocations, which
// are the children's.
func inFleet(b *bench, s *subject) (figures, error) {
	sample, err := fleet.Run(self("caller"), b.members(s.workload), b.order(s.workload, s.Name))
	if err != nil {
		return figures{}, err
	}
	failed, err := s.undecided(&sample)
	return figures{map[string]float64{decisions: sample.Rate()}, failed}, err
}

// members returns how many processes a workload has.
func (b *bench) members(w workload) int {
	if b.fleet > 0 {
		return min(w.processes, b.fleet)
	}
	return w.processes
}

// order is what one process of a workload does. It starts the servers that it
// names.
func (b *bench) order(w workload, subject string) fleet.Order {
	o := fleet.Order{
		Subject: subject, Policies: w.policies, Keys: w.keys, N: b.number(w),
		Callers: b.crowd(w), For: b.length, Cluster: w.place == cluster,
	}
	if o.Cluster {
		o.Addrs = b.nodes()
	} else {
		o.Addrs = []string{b.addr()}
	}
	return o
}

// role tells this program, in its environment, that it is a child.
const role = "HEADGATE_BENCH_CHILD"

// self is a command that runs this program again in a role. An environment
// variable carries the role, so that the flags stay those of the user.
func self(as string) func() *exec.Cmd {
	return func() *exec.Cmd {
		path, err := os.Executable()
		cmd := exec.Command(path)
		cmd.Err = err
		cmd.Env = append(os.Environ(), role+"="+as)
		return cmd
	}
}

// child does what the environment says, and reports whether it said anything. A
// child ends when its input does, and so with its parent, even if the parent is
// killed.
func child() bool {
	var err error
	switch os.Getenv(role) {
	case "":
		return false
	case "caller":
		err = fleet.Serve(os.Stdin, os.Stdout)
	case "link":
		err = load.ServeDelay(os.Stdin, os.Stdout, linkDelay)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench child:", err)
		os.Exit(1)
	}
	return true
}

// linkDelay is a round trip between two zones of a cloud region, in order of
// magnitude.
const linkDelay = 500 * time.Microsecond
