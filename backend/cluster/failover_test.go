package cluster_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/stretchr/testify/require"
)

// runs is how often each failover is measured.
var runs = redistest.Steps(1, 5)

// The processes that stand for a fleet, and what each does.
const (
	fleet   = 4
	workers = 4
	before  = 500 * time.Millisecond
)

var (
	every = time.Duration(redistest.Steps(20, 4)) * time.Millisecond // a worker's calls
	after = time.Duration(redistest.Steps(2, 3)) * time.Second       // from the promotion on
)

var modes = []headgate.Policy{
	{Name: "open", Algorithm: algo.TokenBucket(algo.PerSecond(1_000_000), 1_000_000), OnFailure: headgate.FailOpen},
	{Name: "closed", Algorithm: algo.TokenBucket(algo.PerSecond(1_000_000), 1_000_000), OnFailure: headgate.FailClosed},
}

// sample is one decision as a process reports it.
type sample struct {
	at     time.Time
	took   time.Duration
	mode   int
	slot   int
	source string
	ok     bool // allowed
}

// TestFailover takes a primary away under load from four processes, in three
// ways and not at all, and measures what the keys of the others and its own
// meet.
func TestFailover(t *testing.T) {
	redistest.Plain(t)
	if _, ok := redistest.Child(); ok {
		load(t)
		return
	}
	var rows []outcome
	for _, how := range []string{"control", "SIGKILL", "SIGSTOP", "takeover"}[redistest.Steps(1, 0):] {
		var of []outcome
		for range runs {
			of = append(of, failover(t, how))
		}
		rows = append(rows, median(of))
	}
	fmt.Println("fault      others: errors   p99        own: served again   wrong modes   longest call")
	for _, r := range rows {
		fmt.Printf("%-10s %14d   %-9v  %17v   %11d   %v\n", r.how, r.errors, r.p99.Round(10*time.Microsecond), r.back.Round(time.Millisecond), r.wrong, r.longest.Round(time.Millisecond))
		require.Zero(t, r.errors, "%s: errors of other nodes' keys", r.how)
		require.Zero(t, r.wrong, "%s: decisions against the policy's own mode", r.how)
		if redistest.Long() { // one run's times on a busy machine say little
			require.LessOrEqual(t, r.back, 1500*time.Millisecond+servedBudget(), "%s: served again after the promotion", r.how)
			require.LessOrEqual(t, r.p99, rows[0].p99+time.Millisecond, "%s: p99 of other nodes' keys", r.how)
		}
	}
}

// servedBudget is the default at full length, and else one that other nodes' keys
// keep on a busy machine.
func servedBudget() time.Duration {
	if redistest.Long() {
		return cluster.DefaultBudget
	}
	return time.Second
}

// outcome is what one failover showed.
type outcome struct {
	how           string
	errors, wrong int
	p99, back     time.Duration
	longest       time.Duration
}

func median(of []outcome) outcome {
	m := outcome{how: of[0].how}
	mid := func(f func(outcome) time.Duration) time.Duration {
		var ds []time.Duration
		for _, o := range of {
			ds = append(ds, f(o))
		}
		slices.Sort(ds)
		return ds[len(ds)/2]
	}
	m.p99 = mid(func(o outcome) time.Duration { return o.p99 })
	m.back = mid(func(o outcome) time.Duration { return o.back })
	m.longest = mid(func(o outcome) time.Duration { return o.longest })
	for _, o := range of { // these may not happen once
		m.errors += o.errors
		m.wrong += o.wrong
	}
	return m
}

func failover(t *testing.T, how string) outcome {
	c := redistest.StartCluster(t, redistest.Elections...)
	victim := c.Primary(0)
	stop := c.Client(t)
	var fault, promoted time.Time
	go func() {
		for n := 0; n < fleet; time.Sleep(20 * time.Millisecond) { // a busy machine takes seconds to start them
			n, _ = stop.Get(context.Background(), loadedKey).Int()
		}
		fault, promoted = strike(t, c, victim, how)
		time.Sleep(time.Until(promoted.Add(after)))
		// The load ends for all processes at once, by a key of a living node.
		require.NoError(t, stop.Set(context.Background(), stopKey, 1, time.Hour).Err())
	}()
	own := func(s int) bool { return s <= 5460 }
	var samples []sample
	for _, lines := range redistest.Processes(t, fleet, "TestFailover", "ADDRS="+strings.Join(c.Addrs(), ",")) {
		for _, line := range strings.Split(lines, "\n") {
			samples = append(samples, parse(t, line))
		}
	}
	return assess(how, samples, own, fault, promoted)
}

// strike waits for the load, takes the victim away, and returns when, and when
// another node served its slots.
func strike(t *testing.T, c *redistest.Cluster, victim *redistest.Server, how string) (fault, promoted time.Time) {
	time.Sleep(before)
	fault = time.Now()
	switch how {
	case "SIGKILL":
		victim.Kill()
	case "SIGSTOP":
		victim.Stop()
		t.Cleanup(victim.Cont)
	case "takeover":
		promote(t, c.Replica(victim), "TAKEOVER")
	default:
		return fault, fault
	}
	return fault, c.Promoted(t, 0, victim)
}

func assess(how string, samples []sample, own func(int) bool, fault, promoted time.Time) outcome {
	o := outcome{how: how}
	var others []time.Duration
	last := promoted
	for _, s := range samples {
		o.longest = max(o.longest, s.took)
		switch {
		case s.source != "store" && !own(s.slot):
			o.errors++
		case s.source != "store":
			if s.ok != (s.mode == 0) {
				o.wrong++
			}
			if s.at.After(last) {
				last = s.at
			}
		case !own(s.slot) && s.at.After(fault):
			others = append(others, s.took)
		}
	}
	slices.Sort(others)
	if len(others) > 0 {
		o.p99 = others[len(others)*99/100]
	}
	o.back = last.Sub(promoted)
	return o
}

// The keys by which the processes count themselves, and end.
const (
	loadedKey = "loaded"
	stopKey   = "stop"
)

// load is what a process of the fleet does: keys of all slots, each mode.
func load(t *testing.T) {
	store := open(strings.Split(os.Getenv("ADDRS"), ","), &cluster.Options{Budget: servedBudget()})
	var limiters []*headgate.Limiter
	for _, p := range modes {
		l, err := headgate.New(store, []headgate.Policy{p}, nil)
		require.NoError(t, err)
		limiters = append(limiters, l)
	}
	for i := range 300 { // connections and script are there when the clock starts
		_, _ = limiters[0].Allow(context.Background(), fmt.Sprint("warm", i))
	}
	redistest.Ready()
	c := client(strings.Split(os.Getenv("ADDRS"), ","))
	defer c.Close()
	require.NoError(t, c.Incr(context.Background(), loadedKey).Err())
	stop := make(chan struct{})
	samples := make([][]sample, workers)
	wait := faulttest.Go(workers, func(w int) {
		samples[w] = calls(limiters, w, stop)
	})
	for c.Exists(context.Background(), stopKey).Val() == 0 {
		time.Sleep(20 * time.Millisecond)
	}
	close(stop)
	wait()
	for _, w := range samples {
		for _, s := range w {
			redistest.Result("%d %d %d %d %s %t", s.at.UnixMicro(), s.took.Microseconds(), s.mode, s.slot, s.source, s.ok)
		}
	}
}

func calls(limiters []*headgate.Limiter, worker int, stop <-chan struct{}) (samples []sample) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return samples
		case <-tick.C:
		}
		key := fmt.Sprintf("user:%d:%d", worker, i%997)
		begin := time.Now()
		d, err := limiters[i%2].Allow(context.Background(), key)
		s := sample{at: begin, took: time.Since(begin), mode: i % 2, slot: slot.Of(key), source: d.Source.String(), ok: d.Allowed}
		if err != nil {
			s.source = "error"
		}
		samples = append(samples, s)
	}
}

func parse(t *testing.T, line string) sample {
	var s sample
	var at, took int64
	_, err := fmt.Sscan(line, &at, &took, &s.mode, &s.slot, &s.source, &s.ok)
	require.NoError(t, err, line)
	s.at, s.took = time.UnixMicro(at), time.Duration(took)*time.Microsecond
	return s
}
