package storetest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

const typed = "bad input gives a typed error that says what is wrong and with which value"

// badInput is policies that are out of range, and that are just in it; for requests
// see the case Refused. backend.CheckPolicies refuses them for a store that calls it.
// It needs no hook.
var badInput = []sentence{{"Policies", badLists, typed}, {"InRange", goodLists, typed}}

// badNames are what stores use as separators, and the neighbours of the ranges
// A-Z, a-z and 0-9 in ASCII.
var badNames = []string{
	"", " ", "a b", "a:b", "a{b", "a}b", "a.b", "a/b", "a\x00", "\n", "é", "\xff", "@", "[", "`", "{", "a,",
	strings.Repeat("a", 65),
}

// badLists puts the bad policy second: a check of only the first misses it. It
// takes one step past each end of each range, and the ends of the integers, where a
// check that computes before it compares overflows. It takes periods of a fraction of
// a microsecond too: the store would count in another period than the one that the
// user wrote.
func badLists(p *probe) {
	p.invalid(p.Store.Check(nil), "no policy", "0")
	fine := p.carried(p.policy("fine", 0, algo.PerDay(10)))[0]
	bad := func(a algo.Algorithm, value any) {
		p.t.Helper()
		p.invalid(p.Store.Check([]backend.Policy{fine, policy("bad", a)}), a.String(), fmt.Sprint(value))
	}
	bad(algo.Algorithm{}, "none")
	bad(algo.SlidingLog(algo.PerDay(algo.MaxLogLimit+1)), 1000001)
	for _, n := range []int64{0, -1, algo.MaxLimit + 1, math.MaxInt64} {
		bad(algo.TokenBucket(algo.PerDay(1), n), n)
	}
	for _, n := range []int64{math.MinInt64, -1, 0, 1, algo.MaxBuckets + 1, math.MaxInt64} {
		bad(algo.BucketedWindow(algo.PerDay(1), n), n)
	}
	bad(algo.BucketedWindow(algo.Per(1, time.Millisecond), 1001), 1001)
	for _, n := range []int64{math.MinInt64, -1, 0, algo.MaxCount + 1, math.MaxInt64} {
		bad(p.shape.kind(0)(algo.PerDay(n)), n)
	}
	for _, d := range []time.Duration{math.MinInt64, -sec, 0, 1, time.Millisecond - tick, sec + 1,
		algo.MaxPeriod + tick, math.MaxInt64} {
		bad(p.shape.kind(0)(algo.Per(1, d)), d)
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
		algo.BucketedWindow(algo.PerDay(1), algo.MaxBuckets), algo.FixedWindow(algo.PerDay(algo.MaxCount)),
		algo.SlidingWindow(algo.PerDay(algo.MaxLimit)), algo.TokenBucket(algo.Per(algo.MaxLimit, time.Millisecond), 1),
	}
	k := p.shape.kind(0)
	list = append(list, k(algo.Per(1, time.Millisecond)), k(algo.Per(1, algo.MaxPeriod)))
	for _, a := range list {
		for _, name := range []string{"a", "-", "_", "Az09_-", strings.Repeat("Z", 64)} {
			err := p.Store.Check([]backend.Policy{policy(name, a)})
			p.must(err == nil || errors.Is(err, backend.ErrUnsupported), "%v is in range: %v", &a, err)
		}
	}
}
