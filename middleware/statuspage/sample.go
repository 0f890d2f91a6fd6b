package statuspage

import (
	"slices"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/internal/adapter"
)

const (
	step   = 5 * time.Second
	steps  = 120 // ten minutes
	recent = 2   // steps that a rate is of, of which the last is not over
)

// maxLimits is how many limits are followed.
const maxLimits = 1000

// rowID tells limits apart. Limits of one name and rule, such as those of two limiters, are one row.
type rowID struct{ name, rule string }

// row is a limit with its history.
type row struct {
	rowID
	series series
	last   Counts // at the last sample
	seen   bool
}

// series are counts by their step, in a ring.
type series struct {
	counts [steps]Counts
	begin  time.Time // of the first sample
	at     int64     // the latest step
}

// add adds counts to the step of now, and empties the steps since the latest.
func (s *series) add(now time.Time, c Counts) {
	if s.begin.IsZero() {
		s.begin, s.at = now, stepOf(now)
	}
	for at := stepOf(now); s.at < at; {
		//mutant:gap-of-steps
		s.at = max(s.at+1, at-steps+1)
		s.counts[s.at%steps] = Counts{}
	}
	s.counts[s.at%steps].add(c)
}

func (c *Counts) add(d Counts) {
	c.Passed += d.Passed
	c.Denied += d.Denied
	c.Undecided += d.Undecided
}

func stepOf(now time.Time) int64 { return now.UnixNano() / int64(step) }

// sum returns the counts of the latest n steps.
func (s *series) sum(now time.Time, n int) (c Counts) {
	for i := range n {
		c.add(s.of(stepOf(now) - int64(i)))
	}
	return c
}

// of returns the counts of a step.
func (s *series) of(at int64) Counts {
	if at > s.at || at <= s.at-steps || at < 0 {
		return Counts{}
	}
	return s.counts[at%steps]
}

// seconds returns how much time the recent steps have, at least a second of it.
func (s *series) seconds(now time.Time) float64 {
	begin := time.Unix(0, (stepOf(now)-recent+1)*int64(step))
	if begin.Before(s.begin) {
		begin = s.begin
	}
	return max(1, now.Sub(begin).Seconds())
}

func (r *row) status(now time.Time) LimitStatus {
	last, seconds := r.series.sum(now, recent), r.series.seconds(now)
	l := LimitStatus{Name: r.name, Rule: r.rule, Minutes: r.series.sum(now, steps), Series: Series{Step: step.Seconds(), Counts: make([]Counts, steps)},
		PerSecond: Rates{float64(last.Passed) / seconds, float64(last.Denied) / seconds, float64(last.Undecided) / seconds}}
	for i := range l.Series.Counts {
		l.Series.Counts[i] = r.series.of(stepOf(now) - int64(steps-1-i))
	}
	return l
}

// LimitsOf returns the limits of limiters, for Page.Limits. Nil ones have none, and one that is listed
// twice has its limits once. The limiters count their calls from then on.
func LimitsOf(limiters ...*headgate.Limiter) (all []Limit) {
	for i, l := range limiters {
		a := adapter.Of(l)
		//mutant:limiter-listed-once
		if slices.Contains(limiters[:i], l) {
			continue
		}
		a.Begin() // that of a zero limiter has no policies
		for i := range a.Policies {
			p := &a.Policies[i]
			rule := p.Algorithm.String()
			if p.Shadow {
				rule += ", shadow"
			}
			all = append(all, Limit{p.Name, rule, func() (passed, denied, undecided int64) {
				t := a.Totals()
				return t.Passed, t.Denied[i], t.Undecided
			}})
		}
	}
	return all
}

// sample adds what has come since the last sample to the histories.
func (p *Page) sample(now time.Time) {
	p.sampling.Lock()
	defer p.sampling.Unlock()
	var all []Limit
	if p.Limits != nil {
		all = p.Limits()
	} else {
		all = LimitsOf(p.limiters...)
	}
	sums := map[rowID]Counts{}
	for _, l := range all {
		passed, denied, undecided := l.Counts()
		c := sums[rowID{l.Name, l.Rule}]
		c.add(Counts{passed, denied, undecided})
		sums[rowID{l.Name, l.Rule}] = c
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sampleLimits(now, sums)
	for _, t := range p.mu.stores {
		t.sample(now)
	}
}

// sampleLimits adds what has come since the last sample. The lock is held.
func (p *Page) sampleLimits(now time.Time, sums map[rowID]Counts) {
	if p.mu.rows == nil {
		p.mu.rows = map[rowID]*row{}
	}
	for id := range p.mu.rows {
		if _, ok := sums[id]; !ok {
			delete(p.mu.rows, id)
		}
	}
	p.mu.more = 0
	for id, c := range sums {
		r := p.mu.rows[id]
		if r == nil {
			if len(p.mu.rows) >= maxLimits {
				p.mu.more++
				continue
			}
			r = &row{rowID: id}
			p.mu.rows[id] = r
		}
		r.sample(now, c)
	}
}

// sample adds what has come since the last sample. Counts that are lower than they were are those of
// a limiter that has taken the place of another one.
func (r *row) sample(now time.Time, c Counts) {
	since := Counts{since(c.Passed, r.last.Passed), since(c.Denied, r.last.Denied), since(c.Undecided, r.last.Undecided)}
	r.last = c
	r.series.add(now, since)
}

func since(now, before int64) int64 {
	//mutant:counts-begin-anew
	if now < before {
		return now
	}
	return now - before
}

// storeRow is a store, with a limiter of each New on it.
type storeRow struct {
	store    any
	limiters []*headgate.Limiter
	keys     *adapter.Keys
	trips    series // Passed is the round trips
	last     int64
}

func storesOf(limiters []*headgate.Limiter) (all []*storeRow) {
	layers := map[any]bool{}
	for _, l := range limiters {
		a := adapter.Of(l)
		if a.Store == nil || layers[a.Layers] {
			continue
		}
		layers[a.Layers] = true
		var of *storeRow
		for _, t := range all {
			if t.keys == a.Keys {
				of = t
			}
		}
		if of == nil {
			of = &storeRow{store: a.Store, keys: a.Keys}
			all = append(all, of)
		}
		of.limiters = append(of.limiters, l)
	}
	return all
}

// stats adds up those of the limiters. Circuits, round trips and memory are the store's.
func (t *storeRow) stats() (s headgate.Stats) {
	for i, l := range t.limiters {
		one := l.Stats()
		if i == 0 {
			s = one
			continue
		}
		s.DenyCache += one.DenyCache
		s.FailOpen += one.FailOpen
		s.FailClosed += one.FailClosed
		s.FailLocal += one.FailLocal
		s.Borrow.Homes += one.Borrow.Homes
		s.Borrow.Borrows += one.Borrow.Borrows
		s.Borrow.Lost += one.Borrow.Lost
		s.Borrow.Lent += one.Borrow.Lent
		s.Borrow.GivenBack += one.Borrow.GivenBack
		s.Borrow.Used += one.Borrow.Used
	}
	return s
}

func (t *storeRow) sample(now time.Time) {
	n := t.limiters[0].Stats().Batches.RoundTrips
	t.trips.add(now, Counts{Passed: since(n, t.last)})
	t.last = n
}
