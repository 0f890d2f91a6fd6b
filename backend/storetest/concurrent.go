package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// crowd is how many goroutines ask at once.
const crowd = 64

// Concurrent has a crowd ask one store at once; it is worth most under -race.
func Concurrent(t *testing.T, h Harness) {
	const rule = "Store keeps counts and decides on them atomically. Its methods are safe for concurrent use."
	t.Run("OneKey", func(t *testing.T) { h.each(t, rule, oneKey) })
	t.Run("Costs", func(t *testing.T) { h.each(t, rule, mixedCosts) })
	t.Run("Lists", func(t *testing.T) { h.each(t, rule, mixedLists) })
	t.Run("Operations", func(t *testing.T) { h.each(t, rule, mixedOps) })
	t.Run("Close", func(t *testing.T) { h.each(t, rule, closesAmid) })
}

// crowd runs f in as many goroutines, each with dice of its own.
func (p *probe) crowd(f func(i int, dice *rand.Rand)) {
	var all sync.WaitGroup
	for i := range crowd {
		all.Add(1)
		go func() {
			defer all.Done()
			f(i, rand.New(rand.NewPCG(2, uint64(i))))
		}()
	}
	all.Wait()
}

func oneKey(p *probe) {
	list := p.list(algo.PerDay(100))
	var passed atomic.Int64
	p.crowd(func(int, *rand.Rand) {
		for range 4 {
			d, err := p.do(backend.Request{Op: backend.Take, Group: backend.Group{Key: "a", Policies: list, Cost: 1}})
			if err != nil {
				p.errorf("a take among %d: %v", crowd, err)
			}
			if d.Allowed {
				passed.Add(1)
			}
		}
	})
	p.must(passed.Load() == 100, "of %d takes at a limit of 100 %d passed", 4*crowd, passed.Load())
	p.used("a", list, 100)
}

// mixedCosts holds the denials to account too: what was denied must not fit
// in the end, since nothing leaves the count meanwhile.
func mixedCosts(p *probe) {
	list := p.list(algo.PerDay(500))
	var passed atomic.Int64
	least := make([]int64, crowd)
	p.crowd(func(i int, dice *rand.Rand) {
		least[i] = 1 << 40
		for range 6 {
			n := 1 + dice.Int64N(7)
			d, err := p.do(backend.Request{Op: backend.Take, Group: backend.Group{Key: "a", Policies: list, Cost: n}})
			switch {
			case err != nil:
				p.errorf("a take of %d among %d: %v", n, crowd, err)
			case d.Allowed:
				passed.Add(n)
			default:
				least[i] = min(least[i], n)
			}
		}
	})
	p.used("a", list, passed.Load())
	for _, n := range least {
		p.must(passed.Load()+n > 500, "a take of %d was denied, though only %d of 500 passed", n, passed.Load())
	}
}

// mixedLists has one policy in two lists, in either order.
func mixedLists(p *probe) {
	quota, search := p.list(algo.PerDay(60)), p.list(algo.PerDay(30))
	for i := range search {
		search[i].Name = fmt.Sprint("search", i)
	}
	lists := [][]backend.Policy{quota, join(quota, search), join(search, quota)}
	var passed, searched atomic.Int64
	p.crowd(func(i int, _ *rand.Rand) {
		for j := range 6 {
			list := lists[(i+j)%len(lists)]
			each := make([]backend.State, len(list))
			d, err := p.do(backend.Request{Op: backend.Take, Group: backend.Group{Key: "a", Policies: list, Cost: 1, Each: each}})
			if err != nil {
				p.errorf("a take among %d: %v", crowd, err)
			}
			if d.Allowed {
				passed.Add(1)
				searched.Add(int64(len(list)/len(quota) - 1))
			}
		}
	})
	p.must(passed.Load() == 60, "of a quota of 60 that three lists share %d passed", passed.Load())
	p.used("a", quota, 60)
	p.used("a", search, searched.Load())
}

// mixedOps asks everything of a few keys; only what holds whatever came
// first can be required of the answers.
func mixedOps(p *probe) {
	list := p.list(algo.PerDay(20))
	ops := []backend.Op{backend.Take, backend.Take, backend.Take, backend.Peek, backend.Reset}
	p.crowd(func(_ int, dice *rand.Rand) {
		each := make([]backend.State, len(list))
		for range 6 {
			r := backend.Request{Op: ops[dice.IntN(len(ops))], Group: backend.Group{
				Key: fmt.Sprint(dice.IntN(4)), Policies: list, Cost: 1 + dice.Int64N(20), Each: each}}
			if _, err := p.send(p.t.Context(), r); err != nil { // past the ledger: a reset overtakes takes
				p.errorf("a %v among %d: %v", r.Op, crowd, err)
			}
			for i := range each {
				if s := &each[i]; r.Op != backend.Reset && (s.Used > 20 || s.Used+s.Remaining != 20) {
					p.errorf("a %v among %d was told %+v", r.Op, crowd, *s)
				}
			}
		}
	})
	for i := range 4 {
		p.reset(fmt.Sprint(i), list)
		asNew(p, fmt.Sprint(i), list)
	}
}

// closesAmid closes while others ask: each is answered or refused.
func closesAmid(p *probe) {
	list := p.list(algo.PerDay(1000))
	p.crowd(func(i int, _ *rand.Rand) {
		for j := range 4 {
			if i == crowd/2 && j == 1 && p.Store.Close() != nil {
				p.errorf("Close failed among %d", crowd)
			}
			d, err := p.do(backend.Request{Op: backend.Take, Group: backend.Group{Key: "a", Policies: list, Cost: 1}})
			if err != nil && d.Allowed {
				p.errorf("a take passed with the error %v", err)
			}
		}
	})
}
