package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/peers"
)

// onOpened is Headgate with the client that Open makes.
const onOpened = "headgate, by Open"

// loneWorkloads are a process of few callers, which merge with no other. Each call costs what a
// call costs alone, of the client and of the server, on one processor each.
func loneWorkloads() []workload {
	var all []workload
	for _, callers := range []int{1, 2, 4} {
		w := onServer(fmt.Sprint("lone/", callers), "uniform", callers, 1)
		w.subjects, w.turn = lone, onOneProcessorEach
		w.metrics = w.metrics[:0]
		for _, m := range []struct {
			name  string
			bound float64
		}{{clientCPU, 1.25}, {serverCPU, 1.15}, {p50, 1.3}} {
			of := metric(m.name)
			for _, t := range []string{bareScript, redisRate} {
				target := within(m.bound, t)
				target.Of, target.Published = onOpened, t == redisRate
				of.Targets = append(of.Targets, target)
			}
			w.metrics = append(w.metrics, of)
		}
		all = append(all, w)
	}
	return all
}

func lone(b *bench) []peers.Maker {
	dial := peers.Own(b.addr())
	return []peers.Maker{peers.Opened(b.addr()), peers.Headgate(dial, 1), peers.RedisRate(dial), peers.Plain(dial)}
}

// onOneProcessorEach measures this process on the last processor and the server on the first.
func onOneProcessorEach(b *bench, s *subject) (figures, error) {
	last := runtime.NumCPU() - 1
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if err := b.pin(fmt.Sprint(last), "0"); err != nil {
		return figures{}, err
	}
	all := fmt.Sprint("0-", last)
	defer func() { _ = b.pin(all, all) }()
	var before time.Duration
	sample := load.Closed{Callers: b.crowd(s.workload), For: b.length, Time: true, Between: func() { before = b.serverCPU() }}.Run(s.names, s.Allow)
	f := waits(&sample)
	f[serverCPU] = float64((b.serverCPU() - before).Nanoseconds()) / 1e3 / sample.Decisions()
	f[clientCPU] = float64(sample.CPU.Nanoseconds()) / 1e3 / sample.Decisions()
	failed, err := s.undecided(&sample)
	return figures{f, failed}, err
}

// pin binds this process and the server to processors.
func (b *bench) pin(client, server string) error {
	for pid, to := range map[string]string{fmt.Sprint(os.Getpid()): client, b.info("server", "process_id"): server} {
		if out, err := exec.Command("taskset", "-a", "-p", "-c", to, pid).CombinedOutput(); err != nil {
			return fmt.Errorf("taskset: %w: %s", err, out)
		}
	}
	return nil
}

// serverCPU is the processor time that the server has used.
func (b *bench) serverCPU() (all time.Duration) {
	for _, of := range []string{"used_cpu_user", "used_cpu_sys"} {
		s, err := strconv.ParseFloat(b.info("cpu", of), 64)
		if err != nil {
			b.tb.Fatal(err)
		}
		all += time.Duration(s * float64(time.Second))
	}
	return all
}

// info returns a field of the server's INFO.
func (b *bench) info(section, field string) string {
	text, err := b.admin.Info(ctx, section).Result()
	if err != nil {
		b.tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(text, "\n"+field+":")
	value, _, _ := strings.Cut(rest, "\r")
	return value
}
