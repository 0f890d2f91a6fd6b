// Package peers are the limiters that are measured: Headgate, and what people
// use today, each made as its own README makes it.
package peers

import (
	"context"
	"time"

	"github.com/headgate-go/headgate/bench/load"
)

// Limit is what a subject enforces. A limiter that knows rate and burst has
// both; one that counts a window has Burst in each hour.
type Limit struct {
	Rate   int
	Period time.Duration
	Burst  int
}

// Window is the period of limiters that count one.
const Window = time.Hour

// Roomy lets every call of a measurement pass, and still has each of them
// counted: a higher rate would be drained between two calls, and some limiters
// then store nothing.
var Roomy = Limit{Rate: 1, Period: time.Second, Burst: 1 << 30}

// fill is how much is taken of a key before it is measured, by limiters whose
// keys leave when they are drained: at Roomy's rate it lives for an hour.
const fill = 3600

// Subject is a limiter at work.
type Subject struct {
	Allow load.Call // one unit
	Fill  load.Call // enough that the key stays
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

// ctx can end, as the context of an HTTP handler can.
var ctx, _ = context.WithCancel(context.Background())

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
