// Package storetest holds the contract of backend.Store as tests, for every
// store that there is: Headgate's own and those of other authors.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Harness{New: func(t *testing.T) storetest.Subject {
//			var now atomic.Int64
//			s := mystore.New(now.Load)
//			return storetest.Subject{Store: s, SetNow: now.Store}
//		}})
//	}
//
// A failing case quotes the sentence of the contract that it checks. Beside
// the case an oracle rides along: whatever a case is about, the charges that
// were admitted in it are held to the worst that their algorithms state. And
// every request and decision is used for something else as soon as its call is
// over: under -race a store that still reads or writes them is found out.
//
// The suite never sleeps. Cases that need time to pass are skipped where the
// harness can't set the clock, and cases that need a fault where it can't
// make one; everything else runs on the real clock too.
package storetest

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Harness makes the subjects of the suite.
type Harness struct {
	// New returns a store that holds no counts. Every case asks for one of
	// its own, some hundred in a run; t is the case. The suite closes the
	// store; what the harness opened beside it is for t.Cleanup to close.
	New func(t *testing.T) Subject
}

// Subject is a store under test and what the harness can do to it. A nil
// hook skips the cases that need it.
type Subject struct {
	Store backend.Store

	// Cached says that Store may answer a take that it knows to be denied from
	// a deny cache, as FromDenyCache and Estimated. Nothing else is excused:
	// what it says is held to the contract as the store's own word is. (Of a
	// take that costs more than the one that was denied it knows only the least
	// RetryAfter. No case asks one where it would matter.)
	Cached bool

	// Apart says that Store counts algorithms of another identity apart.
	Apart bool

	// SetNow sets the store's clock to microseconds of the Unix epoch, where
	// it stands still until the next call. The suite sets it before the
	// first request, and only ever forward from there.
	SetNow func(us int64)

	// Expiries returns everything that the store holds, by the name that it
	// is stored under, and how long from now it will be held: negative for
	// what would stay forever. What no longer counts may be left out.
	Expiries func() map[string]time.Duration

	// Corrupt overwrites what is stored of these policies for a key, so that
	// it is no longer the store's own: garbage, or of another type.
	Corrupt func(key string, policies []backend.Policy)

	// LoseReply makes the next request be decided, and its answer be lost.
	LoseReply func()

	// Refuse makes the next request find nobody who decides it.
	Refuse func()
}

// oddCalls is how many calls a rate Run spends on OddRates.
const oddCalls = 2000

// Run runs everything that this package knows of a store.
func Run(t *testing.T, h Harness) {
	t.Run("Contract", func(t *testing.T) { Contract(t, h) })
	t.Run("Concurrent", func(t *testing.T) { Concurrent(t, h) })
	t.Run("Examples", func(t *testing.T) { Examples(t, h) })
	t.Run("BadInput", func(t *testing.T) { BadInput(t, h) })
	t.Run("Bounds", func(t *testing.T) { Bounds(t, h) })
	t.Run("OddRates", func(t *testing.T) { OddRates(t, h, oddCalls) })
	t.Run("SharedCounts", func(t *testing.T) { SharedCounts(t, h) })
	t.Run("Identity", func(t *testing.T) { Identity(t, h) })
}

// Contract runs a case for each sentence of the comment on backend.Store, on
// each algorithm alone and on all of them in one list.
func Contract(t *testing.T, h Harness) {
	for _, c := range contract {
		t.Run(c.name, func(t *testing.T) { h.each(t, c.sentence, c.run) })
	}
}

// each runs a case once a shape, each time on a subject of its own.
func (h Harness) each(t *testing.T, rule string, run func(*probe)) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) { run(h.probe(t, rule, s)) })
	}
}
