package load

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// Arrivals are the instants of a Poisson process within d: so arrive calls of
// people who don't know of each other. The same seed is the same arrivals.
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

// Open is calls that come when they come, whether or not those before them
// have their answer. A call's wait counts from when it should have begun: a
// subject that stalls can't hold the clock.
type Open struct {
	Rate float64 // arrivals a second
	For  time.Duration
	Seed uint64
}

// Run warms up as Closed does and measures.
func (o Open) Run(keys Keys, call Call) Sample {
	o.round(keys, call, Arrivals(o.Rate, o.For/4, o.Seed+1))
	runtime.GC()
	return o.round(keys, call, Arrivals(o.Rate, o.For, o.Seed))
}

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
			answers[i] = call(key)
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

// Paced is callers that together make so many calls a second, at even
// distances. A wait counts from the call, since a caller that is late has not
// asked yet.
type Paced struct {
	Callers int
	Rate    float64
	For     time.Duration
}

// Run warms up as Closed does and measures.
func (p Paced) Run(keys Keys, call Call) Sample {
	p.round(keys, call, p.For/4)
	runtime.GC()
	return p.round(keys, call, p.For)
}

func (p Paced) round(keys Keys, call Call, d time.Duration) Sample {
	step := time.Duration(float64(time.Second) / p.Rate)
	turns := int(d / (step * time.Duration(p.Callers)))
	tallies := make([]tally, p.Callers)
	m := gather(p.Callers, func(i int) func(time.Time) {
		w, t, bell := keys.walk(i, p.Callers), &tallies[i], newAlarm()
		t.waits = make([]time.Duration, 0, turns)
		return func(begin time.Time) {
			defer bell.close()
			for n := range turns {
				bell.until(begin.Add(step * time.Duration(n*p.Callers+i)))
				asked := time.Now()
				t.count[call(w.next())]++
				t.waits = append(t.waits, time.Since(asked))
			}
		}
	}, func() {})
	var s Sample
	m.stop(&s)
	for i := range tallies {
		s.add(&tallies[i])
	}
	return s
}
