package statuspage

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Status is what the page shows, and what status.json has.
type Status struct {
	Time       time.Time     `json:"time"`
	Began      time.Time     `json:"began"` // when the page began to count
	Build      Build         `json:"build"`
	Origin     *Origin       `json:"origin,omitempty"`
	Limits     []LimitStatus `json:"limits"`                // the most denied first, then the busiest
	MoreLimits int           `json:"more_limits,omitempty"` // that are not shown
	Denied     []Key         `json:"denied"`                // the keys that were denied most in the last five to ten minutes
	Near       []Key         `json:"near"`                  // the keys with the most calls that passed near a limit, of the same time
	Stores     []StoreStatus `json:"stores"`
}

// Build is the program that serves the page.
type Build struct {
	Path     string `json:"path"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
}

// Key is a key with how often it occurred.
type Key struct {
	Key    string `json:"key,omitempty"`  // if Page.Keys is set
	Hash   string `json:"hash,omitempty"` // else
	Count  int64  `json:"count"`
	Excess int64  `json:"excess,omitempty"` // how much Count may be too high
}

// LimitStatus is a limit with what became of its calls.
type LimitStatus struct {
	Name      string `json:"name"`
	Rule      string `json:"rule"`
	PerSecond Rates  `json:"per_second"`  // over the last ten seconds
	Minutes   Counts `json:"ten_minutes"` // in the last ten minutes
	Series    Series `json:"series"`
}

// Rates are calls per second.
type Rates struct {
	Passed    float64 `json:"passed"`
	Denied    float64 `json:"denied"`
	Undecided float64 `json:"undecided"` // no store decided them, and failure modes did
}

// Counts are numbers of calls.
type Counts struct {
	Passed    int64 `json:"passed"`
	Denied    int64 `json:"denied"`
	Undecided int64 `json:"undecided"`
}

// Series are counts of steps of time, the oldest first. The last step is not over.
type Series struct {
	Step   float64  `json:"step_seconds"`
	Counts []Counts `json:"counts"`
}

// StoreStatus is a store, with what limiters on it have met since they were made.
type StoreStatus struct {
	Kind       string      `json:"kind"` // "memory" or "remote"
	Circuits   []Circuit   `json:"circuits,omitempty"`
	RoundTrips *RoundTrips `json:"round_trips,omitempty"`
	Loans      *Loans      `json:"loans,omitempty"`
	Memory     *Memory     `json:"memory,omitempty"`
	DenyCache  int64       `json:"deny_cache"` // calls that were denied from this process's memory
	FailOpen   int64       `json:"fail_open"`
	FailClosed int64       `json:"fail_closed"`
	FailLocal  int64       `json:"fail_local"`
}

// Circuit is the state of a node's circuit.
type Circuit struct {
	Node  string `json:"node"`
	State string `json:"state"`
}

// RoundTrips are those of a store.
type RoundTrips struct {
	PerSecond    float64 `json:"per_second"` // over the last ten seconds
	CallsPerTrip float64 `json:"calls_per_trip"`
	MeanSeconds  float64 `json:"mean_seconds"`
	Total        int64   `json:"total"`
	Sizes        []int64 `json:"sizes"` // of 1 call, of 2 and 3, of 4 to 7, …, of 512 and more
}

// Loans are units that this process holds in advance.
type Loans struct {
	Keys      int   `json:"keys"` // that hold units, or did a moment ago
	Requests  int64 `json:"requests"`
	Lost      int64 `json:"lost"`
	Lent      int64 `json:"lent"`
	GivenBack int64 `json:"given_back"`
	Used      int64 `json:"used"`
}

// Memory is the fill of a store in memory.
type Memory struct {
	Counts int   `json:"counts"`
	Max    int   `json:"max"`
	Shared int64 `json:"shared"` // decisions by a count that keys share, since there was no free one
}

// shownLimits is how many limits the page shows.
const shownLimits = 100

// shownKeys is how many keys each list has.
const shownKeys = 10

// Status returns what the page shows now.
func (p *Page) Status() *Status {
	now := time.Now()
	p.sample(now)
	s := &Status{Time: now.UTC().Truncate(time.Millisecond), Began: p.began.UTC().Truncate(time.Second), Build: build(),
		Limits: []LimitStatus{}, Stores: []StoreStatus{}}
	if p.Origin != nil {
		o := p.Origin()
		s.Origin = &o
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.mu.rows {
		s.Limits = append(s.Limits, r.status(now))
	}
	slices.SortFunc(s.Limits, func(a, b LimitStatus) int {
		return cmp.Or(cmp.Compare(b.Minutes.Denied, a.Minutes.Denied), cmp.Compare(b.Minutes.Passed, a.Minutes.Passed), cmp.Compare(a.Name, b.Name))
	})
	s.MoreLimits = p.mu.more + max(0, len(s.Limits)-shownLimits)
	s.Limits = s.Limits[:min(shownLimits, len(s.Limits))]
	for _, t := range p.mu.stores {
		s.Stores = append(s.Stores, t.status(now))
	}
	s.Denied, s.Near = p.keys(now)
	return s
}

// Total returns how many calls became what.
func (s *Status) Total() (c Counts) {
	for _, l := range s.Limits {
		c.Passed += l.Minutes.Passed
		c.Denied += l.Minutes.Denied
		c.Undecided += l.Minutes.Undecided
	}
	return c
}

var build = sync.OnceValue(func() Build {
	b := Build{Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Path, b.Version = info.Path, info.Main.Version
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Revision = s.Value
			}
		}
	}
	return b
})

func (t *storeRow) status(now time.Time) StoreStatus {
	s := t.stats()
	out := StoreStatus{Kind: "remote", DenyCache: s.DenyCache, FailOpen: s.FailOpen, FailClosed: s.FailClosed, FailLocal: s.FailLocal}
	if s.Circuits == nil {
		out.Kind = "memory"
		out.Memory = &Memory{s.Memory.Counts, s.Memory.MaxCounts, s.Memory.Shared}
		return out
	}
	for _, node := range slices.Sorted(maps.Keys(s.Circuits)) {
		out.Circuits = append(out.Circuits, Circuit{node, s.Circuits[node]})
	}
	b, seconds := s.Batches, t.trips.seconds(now)
	out.RoundTrips = &RoundTrips{PerSecond: float64(t.trips.sum(now, recent).Passed) / seconds, Total: b.RoundTrips, Sizes: b.Sizes[:]}
	if b.RoundTrips > 0 {
		out.RoundTrips.CallsPerTrip = float64(b.Calls) / float64(b.RoundTrips)
		out.RoundTrips.MeanSeconds = b.Time.Seconds() / float64(b.RoundTrips)
	}
	if l := s.Borrow; l.Borrows > 0 {
		out.Loans = &Loans{l.Homes, l.Borrows, l.Lost, l.Lent, l.GivenBack, l.Used}
	}
	return out
}

// SizeNames are what the numbers of RoundTrips.Sizes stand for.
func (r *RoundTrips) SizeNames() (names []string) {
	for i := range r.Sizes {
		switch from := 1 << i; {
		case i == len(r.Sizes)-1:
			names = append(names, fmt.Sprint(from, "+"))
		case from == 1:
			names = append(names, "1")
		default:
			names = append(names, fmt.Sprint(from, "–", 2*from-1))
		}
	}
	return names
}
