package load

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Closed is a number of callers in closed loops: each calls again when it has
// its answer. A slow subject therefore gets fewer calls, so a closed loop
// measures capacity. Latency under a given load needs Open.
type Closed struct {
	Callers int
	For     time.Duration
	Time    bool   // each call is timed
	Between func() // called after the warm-up; nil is nothing
}

// Run warms the subject up for a quarter of the time: connections, batches and
// caches reach their usual size. It collects garbage, so that what the warm-up
// left is not charged to the measurement, and then measures.
func (c Closed) Run(keys Keys, call Call) Sample {
	c.round(keys, call, c.For/4)
	runtime.GC()
	if c.Between != nil {
		c.Between()
	}
	return c.round(keys, call, c.For)
}

// round lets the callers run for d. They stop by a flag, not by a context: a
// context that ends would make calls in flight fail.
func (c Closed) round(keys Keys, call Call, d time.Duration) Sample {
	var stop atomic.Bool
	tallies := make([]tally, c.Callers)
	m := gather(c.Callers, func(i int) func(time.Time) {
		w, t := keys.walk(i, c.Callers), &tallies[i]
		if !c.Time {
			return func(time.Time) { count(&w, t, call, &stop) }
		}
		t.waits = make([]time.Duration, 0, int(d.Seconds()*1e6)+1024) // never grown while we measure
		return func(time.Time) { clock(&w, t, call, &stop) }
	}, func() {
		time.Sleep(d)
		stop.Store(true)
	})
	var s Sample
	m.stop(&s)
	for i := range tallies {
		s.add(&tallies[i])
	}
	return s
}

// gather prepares all callers, starts them at once, passes them the instant of
// the start, and waits for them. Their goroutines exist before the meter
// starts: the stacks of a thousand of them would show as allocations.
func gather(callers int, prepare func(i int) func(begin time.Time), meanwhile func()) meter {
	var m meter
	gate := make(chan struct{})
	var ready, done sync.WaitGroup
	ready.Add(callers)
	done.Add(callers)
	for i := range callers {
		go func() {
			defer done.Done()
			run := prepare(i)
			ready.Done()
			<-gate
			run(m.begin)
		}()
	}
	ready.Wait()
	m = start()
	close(gate)
	meanwhile()
	done.Wait()
	return m
}

// count and clock are two loops, since two more readings of the clock would
// distort decisions in memory.
func count(w *walk, t *tally, call Call, stop *atomic.Bool) {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	for !stop.Load() {
		t.count[call(ctx, w.next())]++
	}
}

func clock(w *walk, t *tally, call Call, stop *atomic.Bool) {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	for !stop.Load() {
		key, begin := w.next(), time.Now()
		t.count[call(ctx, key)]++
		t.waits = append(t.waits, time.Since(begin))
	}
}

// fillTimeout is how long Fill repeats a call for one key.
const fillTimeout = 10 * time.Second

// Fill calls for every key until it is decided, so that what is measured after
// it is a service that has run for a while. The first failure of a caller ends
// its share: a subject that fails for ten seconds is broken, and the run with
// it.
func Fill(callers int, keys Keys, call Call) error {
	var failed atomic.Int64
	gather(callers, func(i int) func(time.Time) {
		return func(time.Time) {
			ctx, end := context.WithCancel(context.Background())
			defer end()
			for ; i < len(keys.names); i += callers {
				if !insist(ctx, call, keys.names[i]) {
					failed.Add(1)
					return
				}
			}
		}
	}, func() {})
	if failed.Load() > 0 {
		return fmt.Errorf("a key had no decision for %v", fillTimeout)
	}
	return nil
}

// insist repeats a failed call, since the first calls of a process may fail
// while its connections are dialled.
func insist(ctx context.Context, call Call, key string) bool {
	if call(ctx, key) != Failed {
		return true
	}
	for end := time.Now().Add(fillTimeout); time.Now().Before(end); {
		if call(ctx, key) != Failed {
			return true
		}
		time.Sleep(10 * time.Millisecond) // its circuit may be open
	}
	return false
}
