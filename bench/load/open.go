package load

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// Arrivals are the instants of a Poisson process within d: calls of many
// independent clients arrive so. The same seed gives the same arrivals.
func Arrivals(rate float64, d time.Duration, seed uint64) []time.Duration {
	r := rand.New(rand.NewPCG(seed, 3))
	var all []time.Duration
	for at := 0.0; ; {
		at += r.ExpFloat64() / rate
		if at >= d.Seconds() {
			return all
		}
		all = append(all, time.Duration(at*float64(time.Second)))
	}
}

// Open is calls that arrive on their own, whether or not those before them have
// been answered. A call's latency counts from the instant at which it should
// have begun. Otherwise a subject that stalls would also stop the clock of the
// calls behind it ("coordinated omission").
type Open struct {
	Rate float64 // arrivals a second
	For  time.Duration
	Seed uint64
}

// Run warms up as Closed does, by other arrivals, and measures.
func (o Open) Run(keys Keys, call Call) Sample {
	o.round(keys, call, Arrivals(o.Rate, o.For/4, o.Seed+1))
	runtime.GC()
	return o.round(keys, call, Arrivals(o.Rate, o.For, o.Seed))
}

// round has one goroutine that starts the calls, each on a goroutine of its
// own, as an HTTP server does. All slices have their final length before, so
// that nothing grows while it measures.
func (o Open) round(keys Keys, call Call, arrivals []time.Duration) Sample {
	s := Sample{Waits: make([]time.Duration, len(arrivals)), Late: make([]time.Duration, len(arrivals))}
	answers := make([]Answer, len(arrivals))
	w, bell := keys.walk(0, 1), newAlarm()
	defer bell.close()
	var done sync.WaitGroup
	done.Add(len(arrivals))
	m := start()
	for i, at := range arrivals {
		due, key := m.begin.Add(at), w.next()
		bell.until(due)
		s.Late[i] = time.Since(due)
		go func() {
			defer done.Done()
			ctx, end := context.WithCancel(context.Background())
			defer end()
			answers[i] = call(ctx, key)
			s.Waits[i] = time.Since(due)
		}()
	}
	done.Wait()
	m.stop(&s)
	for _, a := range answers {
		s.Count[a]++
	}
	return s
}
