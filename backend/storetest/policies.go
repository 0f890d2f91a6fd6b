package storetest

import (
	"fmt"
	"slices"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// kind makes an algorithm of a limit, which is also what it can grant at once.
type kind func(algo.Limit) algo.Algorithm

func bucketedWindow(l algo.Limit) algo.Algorithm { return algo.BucketedWindow(l, 10) }
func tokenBucket(l algo.Limit) algo.Algorithm    { return algo.TokenBucket(l, l.Events) }

// shape is the list of policies that a case runs on: one policy per kind.
type shape struct {
	name   string
	kinds  []kind
	shards int // the number of sub-keys that each key is spread over; 0: not spread
}

// The shape All is in an order that differs from that of the kinds: a store that
// sorts policies, or keeps one kind elsewhere, mixes up their states there.
var shapes = []shape{
	{"FixedWindow", []kind{algo.FixedWindow}, 0},
	{"SlidingWindow", []kind{algo.SlidingWindow}, 0},
	{"BucketedWindow", []kind{bucketedWindow}, 0},
	{"SlidingLog", []kind{algo.SlidingLog}, 0},
	{"TokenBucket", []kind{tokenBucket}, 0},
	{"All", []kind{algo.SlidingLog, tokenBucket, algo.FixedWindow, bucketedWindow, algo.SlidingWindow}, 0},
}

// kind returns the i-th kind. Past the end it starts over, so that a case can
// ask for a second policy of a shape that has one.
func (s shape) kind(i int) kind { return s.kinds[i%len(s.kinds)] }

func policy(name string, a algo.Algorithm) backend.Policy {
	return backend.Policy{Name: name, Algorithm: a, OnFailure: backend.FailClosed}
}

// join returns the lists as one, in memory of its own.
func join(lists ...[]backend.Policy) []backend.Policy { return slices.Concat(lists...) }

// day returns a limit per day of n units per sub-key. Cases that don't move the
// clock use a day: no count leaves while they run on the real clock.
func (p *probe) day(n int64) algo.Limit { return algo.PerDay(n * p.k) }

// policy returns a policy of the shape's i-th kind.
func (p *probe) policy(name string, i int, l algo.Limit) backend.Policy {
	q := policy(name, p.shape.kind(i)(l))
	q.Shards = p.shape.shards
	return q
}

// list returns the shape's policies with one limit for all, named p0, p1 …
func (p *probe) list(l algo.Limit) []backend.Policy {
	p.t.Helper()
	return p.named("", l)
}

// named returns the shape's policies under names that end in a suffix.
func (p *probe) named(suffix string, l algo.Limit) []backend.Policy {
	p.t.Helper()
	var list []backend.Policy
	for i := range p.shape.kinds {
		list = append(list, p.policy(fmt.Sprint("p", i, suffix), i, l))
	}
	return p.carried(list...)
}
