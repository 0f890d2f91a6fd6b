package storetest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// BadInput passes policies and requests that are out of range. Each has to give
// a typed error that names the value, and to leave every count as it was.
// backend.CheckPolicies and backend.Request.Check do that for a store that calls
// them. It needs no hook.
func BadInput(t *testing.T, h Harness) {
	const rule = "bad input gives a typed error that says what is wrong and with which value, " +
		"and leaves every count as it was"
	t.Run("Policies", func(t *testing.T) { badLists(h.probe(t, rule, shapes[0])) })
	t.Run("InRange", func(t *testing.T) { goodLists(h.probe(t, rule, shapes[0])) })
	t.Run("Requests", func(t *testing.T) { h.each(t, rule, refuses) })
}

// bad is an algorithm that is out of range, and the value that the error names.
type bad struct {
	a     algo.Algorithm
	value string
}

// badAlgorithms holds one step past each end of each range, and the ends of the
// integers, where a check that computes before it compares overflows. It holds
// periods of a fraction of a microsecond too: the store would count in another
// period than the one that the user wrote.
func badAlgorithms() []bad {
	list := []bad{
		{algo.Algorithm{}, "none"},
		{algo.SlidingLog(algo.PerDay(algo.MaxLogLimit + 1)), "1000001"},
		{algo.TokenBucket(algo.PerDay(1), 0), "0"},
		{algo.TokenBucket(algo.PerDay(1), -1), "-1"},
		{algo.TokenBucket(algo.PerDay(1), algo.MaxLimit+1), "68719476737"},
		{algo.TokenBucket(algo.PerDay(1), math.MaxInt64), "9223372036854775807"},
	}
	for _, n := range []int64{math.MinInt64, -1, 0, 1, algo.MaxBuckets + 1, math.MaxInt64} {
		list = append(list, bad{algo.BucketedWindow(algo.PerDay(1), n), fmt.Sprint(n)})
	}
	list = append(list, bad{algo.BucketedWindow(algo.Per(1, time.Millisecond), 1001), "1001"})
	for _, k := range shapes[len(shapes)-1].kinds {
		for _, n := range []int64{math.MinInt64, -1, 0, algo.MaxLimit + 1, math.MaxInt64} {
			list = append(list, bad{k(algo.PerDay(n)), fmt.Sprint(n)})
		}
		for _, d := range []time.Duration{math.MinInt64, -sec, 0, 1, time.Millisecond - tick, sec + 1,
			algo.MaxPeriod + tick, math.MaxInt64} {
			list = append(list, bad{k(algo.Per(1, d)), d.String()})
		}
	}
	return list
}

// badNames are what stores use as separators, and the neighbours of the ranges
// A-Z, a-z and 0-9 in ASCII.
var badNames = []string{
	"", " ", "a b", "a:b", "a{b", "a}b", "a.b", "a/b", "a\x00", "\n", "é", "\xff", "@", "[", "`", "{", "a,",
	strings.Repeat("a", 65),
}

// badLists puts the bad policy second: a check of the first alone misses it.
func badLists(p *probe) {
	p.invalid(p.Store.Check(nil), "no policy", "0")
	fine := policy("fine", p.shape.kind(0)(algo.PerDay(10)))
	for _, b := range badAlgorithms() {
		p.invalid(p.Store.Check([]backend.Policy{fine, policy("bad", b.a)}), b.a.String(), b.value)
	}
	for _, name := range badNames {
		shown := fmt.Sprintf("%.64q", name)
		err := p.Store.Check([]backend.Policy{fine, policy(name, fine.Algorithm)})
		p.invalid(err, "the name "+shown, shown[:len(shown)-1])
	}
	p.invalid(p.Store.Check([]backend.Policy{fine, policy("a", fine.Algorithm), fine}), "two of one name", "fine")
}

// goodLists checks the ends of what is in range. A store need not support all of
// it, but must not call it invalid: the same policies move between stores.
func goodLists(p *probe) {
	list := []algo.Algorithm{
		algo.SlidingLog(algo.PerDay(algo.MaxLogLimit)), algo.TokenBucket(algo.PerDay(1), algo.MaxLimit),
		algo.BucketedWindow(algo.Per(1, time.Millisecond), algo.MaxBuckets), algo.BucketedWindow(algo.PerDay(1), 2),
		algo.BucketedWindow(algo.PerDay(1), algo.MaxBuckets), algo.FixedWindow(algo.PerDay(algo.MaxLimit)),
		algo.SlidingWindow(algo.PerDay(algo.MaxLimit)), algo.TokenBucket(algo.Per(algo.MaxLimit, time.Millisecond), 1),
	}
	for _, k := range shapes[len(shapes)-1].kinds {
		list = append(list, k(algo.Per(1, time.Millisecond)), k(algo.Per(1, algo.MaxPeriod)))
	}
	for _, a := range list {
		for _, name := range []string{"a", "-", "_", "Az09_-", strings.Repeat("Z", 64)} {
			err := p.Store.Check([]backend.Policy{policy(name, a)})
			p.must(err == nil || errors.Is(err, backend.ErrUnsupported), "%v is in range: %v", &a, err)
		}
	}
}
