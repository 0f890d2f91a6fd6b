// Package storetest holds the contract of backend.Store as tests, for Headgate's
// own stores and for those of other authors. The smallest harness is a store:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Harness{New: func(t *testing.T) storetest.Subject {
//			return storetest.Subject{Store: mystore.New()}
//		}})
//	}
//
// With a clock that the suite can set, it also checks that times are exact:
//
//	var now atomic.Int64
//	return storetest.Subject{Store: mystore.New(now.Load), SetNow: now.Store}
//
// A failing case quotes the sentence of the contract that it checks. Two
// further checks run in every case. Each policy's admitted charges must stay
// within the bound that its algorithm states. And the suite reuses each request
// and decision as soon as the call returns. So -race reports a store that
// still reads or writes them.
//
// Random cases and storms are several times as long where HEADGATE_LONG is set in
// the environment, as a nightly run does.
//
// The suite never sleeps. A case that needs a hook which the harness does not
// set is skipped, and says which hook it needs. Everything else runs on the
// real clock too. A store need not support every algorithm: lists that its
// Check answers with ErrUnsupported are skipped.
package storetest

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Harness makes the subjects of the suite.
type Harness struct {
	// New returns a store that holds no counts. It is required. Every case calls
	// it once, some two hundred times in a run, never concurrently; t is the
	// case. The suite closes the store. The harness closes the rest with
	// t.Cleanup.
	New func(t *testing.T) Subject

	shards int     // the number of sub-keys per key, in Spread
	shapes []shape // what the cases run on; nil: all shapes
}

// Subject is a store under test, and the hooks that let the suite control its
// surroundings. Store is required. A nil hook skips the cases that need it.
// The suite calls no hook concurrently with another hook or with a request.
type Subject struct {
	Store backend.Store

	// Cached says that Store may answer a take from a deny cache, as
	// FromDenyCache and Estimated. The cached denial must still keep the
	// contract. Only the State of a take that costs more than the denied one
	// may be that of the cheaper one; no case compares it. Set it for a
	// wrapper that caches denials; leave it false for a store.
	Cached bool

	// SetNow sets the store's clock to microseconds of the Unix epoch, where
	// it stands still until the next call. The suite sets it before the
	// first request, and never back. Without it the cases RetryAfter and
	// ResetAfter, Bounds, OddRates, and most of Examples and Identity are
	// skipped.
	SetNow func(us int64)

	// Expiries returns the names of everything that the store holds, each with
	// the time until it expires: negative for what never expires. Entries that
	// no longer count may be left out. Without it the cases Expires and
	// Identity/Leaves are skipped, and no case can see whether a denial or a
	// peek stores an entry.
	Expiries func() map[string]time.Duration

	// Corrupt overwrites what is stored of these policies for a key with a value
	// that the store did not write: garbage, or another type. Without it the
	// case Corrupt is skipped. A store in this process has no use for it.
	Corrupt func(key string, policies []backend.Policy)

	// LoseReply lets the store decide the next request, and loses its answer.
	// Without it the case AtMostOnce is skipped, and half of Unavailable.
	LoseReply func()

	// Refuse fails the next request before anything decides it, as a refused
	// connection does. Without it half of the case Unavailable is skipped.
	Refuse func()
}

// Run runs all parts of the suite except Spread, each as a subtest of its name.
// A store in memory takes seconds. Run it under -race as well: the cases of
// Concurrent and Contract/Kept find more there.
func Run(t *testing.T, h Harness) {
	for _, part := range []struct {
		name   string
		alone  []sentence // cases with lists of their own, which need no shape
		shaped []sentence
	}{
		{"Contract", nil, everyRule()}, {"Concurrent", nil, concurrent},
		{"Examples", worked, examples}, {"BadInput", nil, badInput}, {"Bounds", saturated, bounds},
		{"OddRates", oddRates(), nil}, {"Identity", pairs(), identities}, {"Together", randomPrograms, nil},
	} {
		t.Run(part.name, func(t *testing.T) {
			for _, c := range part.alone {
				t.Run(c.name, func(t *testing.T) { c.run(h.probe(t, c.sentence, shape{})) })
			}
			h.cases(t, part.shaped)
		})
	}
}

// Brief runs Contract and Concurrent, on the list of all algorithms only. It is
// for a second mode of a store, and for a layer over a store, where the store
// itself passes Run. Where HEADGATE_LONG is set, Brief is Run.
func Brief(t *testing.T, h Harness) {
	if long() {
		Run(t, h)
		return
	}
	h.shapes = allInOne
	t.Run("Contract", func(t *testing.T) { Contract(t, h) })
	t.Run("Concurrent", func(t *testing.T) { h.cases(t, concurrent) })
}

// Raced runs the cases in which the race detector finds more: Contract/Kept and Concurrent,
// on the list of all algorithms only. It is for a store that passes Run without the detector.
func Raced(t *testing.T, h Harness) {
	h.shapes = allInOne
	t.Run("Contract", func(t *testing.T) {
		h.cases(t, slices.DeleteFunc(everyRule(), func(c sentence) bool { return c.sentence != nothingIsKept }))
	})
	t.Run("Concurrent", func(t *testing.T) { h.cases(t, concurrent) })
}

func long() bool { return os.Getenv("HEADGATE_LONG") != "" }

// steps returns short, or most where the suite runs at full length.
func steps(short, most int) int {
	if long() {
		return most
	}
	return short
}

// cases runs each case once per shape, each time on a subject of its own: a count
// that one run leaves behind can't decide another.
func (h Harness) cases(t *testing.T, cases []sentence) {
	for _, c := range cases {
		on := h.shapes
		if on == nil {
			on = shapes
		}
		if c.name == "Keys" && !long() { // a hundred keys, which the algorithms don't read
			on = allInOne
		}
		t.Run(c.name, func(t *testing.T) {
			for _, s := range on {
				s.shards = h.shards
				t.Run(s.name, func(t *testing.T) { c.run(h.probe(t, c.sentence, s)) })
			}
		})
	}
}
