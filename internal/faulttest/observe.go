package faulttest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// Observed counts what the callers of its limiters got. The zero value is ready.
// It is safe for concurrent use.
type Observed struct {
	Store, Undecided, Openings atomic.Int64 // decisions by the store, other decisions, circuits that opened
	first, last                atomic.Int64 // instants of undecided calls, in Unix nanoseconds
	cause                      atomic.Value // a string, of the first undecided call
}

// Bucket allows every call of a test.
var Bucket = closed("bucket", algo.TokenBucket(algo.PerSecond(1<<20), 1<<20))

// Key is one of n keys of a caller.
func Key(caller, i, n int) string { return fmt.Sprintf("c%d/%d", caller, i%n) }

// Limiter returns a limiter on s after its first decisions, with all counts at
// zero: connections, scripts and slots are there, and are not the subject.
func (o *Observed) Limiter(t testing.TB, s backend.Store, ps ...headgate.Policy) *headgate.Limiter {
	l, err := headgate.New(s, ps, &headgate.Options{Observer: o.Observe})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		for i := range 20 { // keys of all nodes
			if d, err := l.Allow(context.Background(), Key(0, i, 20)); err != nil || d.Err != nil {
				return false
			}
		}
		return true
	}, 20*time.Second, time.Millisecond)
	for _, n := range []*atomic.Int64{&o.Store, &o.Undecided, &o.Openings, &o.first} {
		n.Store(0)
	}
	return l
}

// Observe is the headgate.Options.Observer.
func (o *Observed) Observe(e headgate.Event) {
	switch {
	case e.Type == headgate.EventCircuit && e.Circuit.To == "open":
		o.Openings.Add(1)
	case e.Type == headgate.EventDecision && e.Err == nil:
		o.decided(&e.Decision)
	}
}

func (o *Observed) decided(d *headgate.Decision) {
	if d.Source == headgate.FromStore || d.Source == headgate.FromDenyCache {
		o.Store.Add(1)
		return
	}
	o.Undecided.Add(1)
	at := time.Now().UnixNano()
	o.last.Store(at)
	if o.first.CompareAndSwap(0, at) {
		o.cause.Store(fmt.Sprint(d.Err))
	}
}

// Why is the error of the first undecided call, empty if there is none.
func (o *Observed) Why() string {
	s, _ := o.cause.Load().(string)
	return s
}

// outage is the time from the first to the last undecided call.
func (o *Observed) outage() time.Duration { return time.Duration(o.last.Load() - o.first.Load()) }

// share is the share of calls that the store decided.
func (o *Observed) share() float64 {
	s, u := float64(o.Store.Load()), float64(o.Undecided.Load())
	return s / max(s+u, 1)
}
