// Package peers makes the limiters that are measured: Headgate, and what people
// use today. Each is made as its own README makes it. Tuning one of them would
// be a claim about the tuning.
package peers

import (
	"time"

	"github.com/headgate-go/headgate/bench/load"
)

// Limit is what a subject enforces. A limiter by rate and burst takes Rate,
// Period and Burst. A limiter by windows takes Burst per Window. The two differ
// in what they admit in the long run, but under Roomy both admit everything.
type Limit struct {
	Rate   int
	Period time.Duration
	Burst  int
	Window time.Duration
	Fill   int // what Subject.Fill takes, of limiters whose keys leave when they have refilled
}

var (
	// Roomy lets every call of a measurement pass, since a denial is cheaper
	// than a pass for some limiters. After Fill, a key takes an hour to refill,
	// so no key runs idle and leaves during a measurement.
	Roomy = Limit{Rate: 1, Period: time.Second, Burst: 1 << 30, Window: time.Hour, Fill: 3600}

	// Refilling gives a key back within 10 ms what a call takes. So a key is
	// idle again at its next call unless it is called often. This is the
	// store's other duty: to remove keys and to take them in again. Calls
	// beyond the rate are denied, which is a decision.
	Refilling = Limit{Rate: 100, Period: time.Second, Burst: 100, Window: time.Second, Fill: 1}
)

// Subject is a limiter in use. Allow and Fill are safe for concurrent use.
type Subject struct {
	Allow load.Call // one unit
	Fill  load.Call // Limit.Fill units
	Close func()
}

// Kind is what a subject is to Headgate.
type Kind uint8

// A Peer limits. A Floor only does what a limiter on Redis can't do without:
// it shows what is possible, and denies no call.
const (
	Ours Kind = iota
	Peer
	Floor
)

// Maker makes a subject. Name stands in the document, so it is the same for the
// same limiter on every store.
type Maker struct {
	Name string
	Kind Kind
	Make func(Limit) (*Subject, error)
}

// answer converts what most limiters return.
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
