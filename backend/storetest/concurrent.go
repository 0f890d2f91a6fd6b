package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// crowd is how many goroutines call at once. That is more than a store has processors,
// and more than a batch needs to hold several calls of one key.
const crowd = 64

const atomically = "Store keeps counts and decides on them atomically. Its methods are safe for concurrent use."

// concurrent are calls from many goroutines. They need no hook, and find most
// under -race.
var concurrent = []sentence{
	{"OneKey", oneKey, atomically}, {"Costs", func(p *probe) { p.crowded(500, 7, 6) }, atomically},
	{"Lists", mixedLists, atomically}, {"Operations", mixedOps, atomically}, {"Close", closesAmid, atomically},
}

// together runs f in n goroutines, each with dice of its own.
func together(n int, f func(i int, dice *rand.Rand)) {
	var all sync.WaitGroup
	for i := range n {
		all.Add(1)
		go func() {
			defer all.Done()
			f(i, rand.New(rand.NewPCG(2, uint64(i))))
		}()
	}
	all.Wait()
}

// oneKey asks for more than the limit, by units: exactly the limit passes.
func oneKey(p *probe) { p.crowded(100*p.k, 1, 5*100*p.k/(2*crowd)) }

// crowded asks for more than the limit, by costs up to most. It checks the denials
// too: what was denied must not fit in the end, since nothing leaves the count
// meanwhile. A store that reserves before it decides denies calls that fit. On a
// spread key a take may be denied that lost a race; what is left passes after.
func (p *probe) crowded(limit, most, calls int64) {
	list := p.list(algo.PerDay(limit))
	var passed atomic.Int64
	least := slices.Repeat([]int64{limit}, crowd) // that was denied
	together(crowd, func(i int, dice *rand.Rand) {
		for range calls {
			if n := 1 + dice.Int64N(most); p.grab("a", list, n) {
				passed.Add(n)
			} else {
				least[i] = min(least[i], n)
			}
		}
	})
	for p.k > 1 && p.take("a", list, 1).Allowed {
		passed.Add(1)
	}
	n, fits := passed.Load(), slices.Min(least)
	p.must(n <= limit && n+fits > limit, "at a limit of %d %d passed, and a take of %d was denied", limit, n, fits)
	p.used("a", list, n)
}

// mixedLists has one policy in two lists, in either order. A store that locks
// policy by policy, in the order listed, comes to a deadlock here.
func mixedLists(p *probe) {
	quota, search := p.list(algo.PerDay(60)), p.list(algo.PerDay(30), "-search")
	lists := [][]backend.Policy{quota, join(quota, search), join(search, quota)}
	var passed, searched atomic.Int64
	together(crowd, func(i int, _ *rand.Rand) {
		for j := range 6 {
			list := lists[(i+j)%len(lists)]
			if p.grab("a", list, 1) {
				passed.Add(1)
				searched.Add(int64(len(list)/len(quota) - 1))
			}
		}
	})
	p.must(passed.Load() == 60, "of a quota of 60 that three lists share %d passed", passed.Load())
	p.used("a", quota, 60)
	p.used("a", search, searched.Load())
}

// mixedOps sends all operations to a few keys. Only what holds in every order
// can be required. The ledger is left out: it can't tell whether a take was
// decided before or after a reset.
func mixedOps(p *probe) {
	list := p.list(algo.PerDay(20))
	ops := []backend.Op{backend.Take, backend.Take, backend.Take, backend.Peek, backend.Reset}
	together(crowd, func(_ int, dice *rand.Rand) {
		for range 6 {
			r := request(ops[dice.IntN(len(ops))], fmt.Sprint(dice.IntN(4)), list, 1+dice.Int64N(20))
			r.Each = make([]backend.State, len(list))
			if _, err := p.send(p.t.Context(), r); err != nil {
				p.errorf("a %v among %d goroutines: %v", r.Op, crowd, err)
			}
			for _, s := range r.Each {
				if r.Op != backend.Reset && (s.Used > 20 || s.Used+s.Remaining != 20) {
					p.errorf("a %v among %d goroutines said %+v", r.Op, crowd, s)
				}
			}
		}
	})
	for i := range 4 {
		p.reset(fmt.Sprint(i), list)
		p.asNew(fmt.Sprint(i), list)
	}
}

// closesAmid closes while others call: each is decided or refused, and none
// waits for an answer that no longer comes.
func closesAmid(p *probe) {
	list := p.list(algo.PerDay(1000))
	together(crowd, func(i int, _ *rand.Rand) {
		for j := range 4 {
			if i == crowd/2 && j == 1 && p.Store.Close() != nil {
				p.errorf("Close failed among %d goroutines", crowd)
			}
			d, err := p.do(request(backend.Take, "a", list, 1))
			if err != nil && d.Allowed {
				p.errorf("a take passed with the error %v", err)
			}
		}
	})
}
