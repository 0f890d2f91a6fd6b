package storetest

import (
	"fmt"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// kind makes an algorithm of a limit, which is also what it can grant at once.
type kind func(algo.Limit) algo.Algorithm

func bucketedWindow(l algo.Limit) algo.Algorithm { return algo.BucketedWindow(l, 10) }
func tokenBucket(l algo.Limit) algo.Algorithm    { return algo.TokenBucket(l, l.Events) }

// shape is what a case's list of policies looks like: one policy a kind.
type shape struct {
	name   string
	kinds  []kind
	shards int // over how many sub-keys each key is spread
}

var shapes = []shape{
	{"FixedWindow", []kind{algo.FixedWindow}, 0},
	{"SlidingWindow", []kind{algo.SlidingWindow}, 0},
	{"BucketedWindow", []kind{bucketedWindow}, 0},
	{"SlidingLog", []kind{algo.SlidingLog}, 0},
	{"TokenBucket", []kind{tokenBucket}, 0},
	{"All", []kind{algo.SlidingLog, tokenBucket, algo.FixedWindow, bucketedWindow, algo.SlidingWindow}, 0},
}

// list returns the shape's policies with one limit for all, named p0, p1 …
func (s shape) list(l algo.Limit) []backend.Policy {
	var list []backend.Policy
	for i, k := range s.kinds {
		p := policy(fmt.Sprint("p", i), k(l))
		p.Shards = s.shards
		list = append(list, p)
	}
	return list
}

// kind returns the i-th kind, and starts over at the end.
func (s shape) kind(i int) kind { return s.kinds[i%len(s.kinds)] }

func policy(name string, a algo.Algorithm) backend.Policy {
	return backend.Policy{Name: name, Algorithm: a, OnFailure: backend.FailClosed}
}

// join returns the lists as one, in memory of its own.
func join(lists ...[]backend.Policy) []backend.Policy {
	var all []backend.Policy
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}
