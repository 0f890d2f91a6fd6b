// Package peers are the limiters that are measured: Headgate, and what people
// use today, each made as its own README makes it.
package peers

import (
	"time"

	"github.com/headgate-go/headgate/bench/load"
)

// Limit is what a subject enforces. A limiter that takes rate and burst has
// both; one that counts a window has Burst in each Window.
type Limit struct {
	Rate   int
	Period time.Duration
	Burst  int
	Window time.Duration
	Fill   int // what Subject.Fill takes, of limiters whose keys leave when they have refilled
}

var (
	// Roomy lets every call of a measurement pass, and no key refills during it.
	Roomy = Limit{Rate: 1, Period: time.Second, Burst: 1 << 30, Window: time.Hour, Fill: 3600}

	// Refilling gives a key back what a call takes within 10 ms, so that a key is
	// idle again when it is called next, unless it is called often. Calls beyond
	// the rate are denied, which is a decision.
	Refilling = Limit{Rate: 100, Period: time.Second, Burst: 100, Window: time.Second, Fill: 1}
)

// Subject is a limiter at work.
type Subject struct {
	Allow load.Call // one unit
	Fill  load.Call // Limit.Fill units
	Close func()
}

// Kind is what a subject is to Headgate.
type Kind uint8

// A Peer limits. A Floor only does what a limiter on Redis can't do without:
// it shows what is possible, and denies nobody.
const (
	Ours Kind = iota
	Peer
	Floor
)

// Maker makes a subject.
type Maker struct {
	Name string
	Kind Kind
	Make func(Limit) (*Subject, error)
}

// answer is for limiters that say whether a call may pass, or an error.
func answer(allowed bool, err error) load.Answer {
	switch {
	case err != nil:
		return load.Failed
	case allowed:
		return load.Passed
	}
	return load.Denied
}

// plain is a subject that has nothing to close, and whose keys stay anyway.
func plain(allow load.Call) *Subject {
	return &Subject{Allow: allow, Fill: allow, Close: func() {}}
}
