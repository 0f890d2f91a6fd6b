package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// Spread runs what holds of a store that spreads each key over k sub-keys, 2
// or more. It is the contract without what spreading gives up: Remaining and
// RetryAfter are estimates unless the whole key was read, a call may be denied
// that lost a race, and a cost above the smallest share is refused.
func Spread(t *testing.T, h Harness, k int) {
	for _, c := range spreads {
		t.Run(c.name, func(t *testing.T) {
			for _, s := range shapes {
				s.shards = k
				t.Run(s.name, func(t *testing.T) { c.run(h.probe(t, c.sentence, s)) })
			}
		})
	}
}

var spreads = []sentence{
	{"WholeLimit", "A take that fits every policy's limit passes and is charged to every policy.", wholeLimit},
	{"Peek", "A peek answers what a take would and stores nothing.", spreadPeeks},
	{"RetryAfter", "RetryAfter is the earliest of the sub-keys', exact after a peek.", spreadRetries},
	{"ResetAfter", "ResetAfter is the latest of the sub-keys', exact after a peek.", spreadFades},
	{"Exact", "What a decision does not mark as Estimated is exact.", spreadExact},
	{"Reset", "A reset makes the key as new for the policies it lists, and for no others.", spreadResets},
	{"Name", "A count belongs to a policy's name and its algorithm's Identity: requests that agree on both share it, whatever else they list, and others count apart.", spreadNames},
	{"Each", "Each is filled with the state of every policy, in the order listed.", spreadEach},
	{"Keys", "Two keys never share a count, whatever bytes they hold.", spreadKeys},
	{"Share", "A cost above the smallest share is ErrNeverAdmissible, which names both, and no count changes.", aboveShare},
	{"Context", "A context that has ended before anything was sent is its error, and nothing was counted.", spreadEnded},
	{"Lost", "A take is charged at most once, whatever is lost on the way.", spreadLoses},
	{"Expires", "Everything stored expires by itself.", spreadExpires},
	{"Storm", "No trailing window ever holds more than the algorithm's worst.", spreadStorm},
	{"Crowd", "Store keeps counts and decides on them atomically. Its methods are safe for concurrent use.", spreadCrowd},
	{"Close", "After Close every request is ErrClosed.", spreadCloses},
	{"Kept", nothingIsKept, keepsNothing},
}

func (p *probe) k() int64 { return int64(p.shape.shards) }

// wholeLimit takes unit by unit all that there is, of limits that k divides
// and that it does not.
func wholeLimit(p *probe) {
	for i, limit := range []int64{p.k(), 10 * p.k(), 10*p.k() + 1, 7*p.k() - 1} {
		list, key := p.list(algo.PerDay(limit)), fmt.Sprint(i)
		for n := range limit {
			d := p.passes(key, list, 1)
			p.must(d.Limit == limit && d.Granted == 1 && d.Remaining <= limit-n-1+p.k(), "the %d-th of %d: %+v", n+1, limit, d)
		}
		p.used(key, list, limit)
		stored := p.stored()
		for range 5 {
			d := p.denied(key, list, 1)
			p.must(d.Remaining == 0 && d.Used == limit && d.RetryAfter > 0, "a spent key says %+v", d.State)
		}
		p.storedLess(stored)
		p.used(key, list, limit)
	}
}

func spreadPeeks(p *probe) {
	limit := 5 * p.k()
	list := p.list(algo.PerDay(limit))
	for n := range limit + 1 {
		stored := p.stored()
		d := p.peek("a", list, 1)
		p.must(d.Allowed == (n < limit) && d.Used == n && d.Remaining == limit-n && !d.Estimated, "%d of %d used: %+v", n, limit, d)
		p.storedLess(stored)
		p.must(p.take("a", list, 1).Allowed == d.Allowed, "a peek said %v, the take otherwise", d.Allowed)
	}
}

func spreadRetries(p *probe) {
	p.needsClock()
	l := algo.Per(3*p.k()+1, 10*time.Second+7*tick)
	list := p.list(l)
	for range 3 {
		for p.take("a", list, 1).Allowed {
			p.advance(time.Duration(p.dice.Int64N(int64(l.Period / 100))))
		}
		for !p.peek("a", list, 1).Allowed {
			p.exact("a", list, 1, p.peek("a", list, 1))
		}
		p.passes("a", list, 1)
	}
}

func spreadFades(p *probe) {
	p.needsClock()
	l := algo.Per(4*p.k()+1, 10*time.Second+7*tick)
	list := p.list(l)
	for range 5 {
		for range 3 * p.k() {
			p.take("a", list, 1)
			p.advance(time.Duration(p.dice.Int64N(int64(l.Period / 50))))
		}
		p.fades("a", list)
	}
}

// spreadExact holds what a take says against a peek.
func spreadExact(p *probe) {
	limit := 6*p.k() + 1
	list := p.list(algo.PerDay(limit))
	each := make([]backend.State, len(list))
	for range 2 * limit {
		p.pause()
		n := 1 + p.dice.Int64N(2)
		d := p.ask(backend.Take, backend.Group{Key: "a", Policies: list, Cost: n, Each: each})
		if d.Estimated {
			continue
		}
		said, cost := slices.Clone(each), int64(0)
		if !d.Allowed {
			cost = n
		}
		p.ask(backend.Peek, backend.Group{Key: "a", Policies: list, Cost: cost, Each: each})
		p.must(slices.EqualFunc(said, each, p.same), "a take of %d said\n\t%+v\nand a peek\n\t%+v", n, said, each)
	}
}

func spreadResets(p *probe) {
	limit := 4 * p.k()
	list, kept := p.list(algo.PerDay(limit)), p.list(algo.PerDay(limit))
	for i := range kept {
		kept[i].Name += "-kept"
	}
	for p.take("a", join(list, kept), 1).Allowed {
	}
	p.passes("b", list, 1)
	p.reset("a", list)
	asNew(p, "a", list)
	p.used("a", kept, limit)
	p.used("b", list, 1)
	for range limit {
		p.passes("a", list, 1)
	}
	p.denied("a", list, 1)
	p.reset("nobody", list)
}

func spreadNames(p *probe) {
	limit := 6 * p.k()
	quota, other := p.list(algo.PerDay(limit)), p.list(algo.PerDay(2*limit))
	for i := range other {
		other[i].Name = fmt.Sprint("other", i)
	}
	lists := [][]backend.Policy{quota, join(quota, other), join(other, quota)}
	for i := range limit {
		p.passes("a", lists[i%3], 1)
		p.used("a", quota, i+1)
	}
	for _, list := range lists {
		p.denied("a", list, 1)
	}
	p.used("a", other, limit/3*2)
	p.passes("a", other, 1)
}

func spreadEach(p *probe) {
	tight, wide := p.list(algo.PerDay(3*p.k())), p.list(algo.Per(5*p.k(), 48*time.Hour))
	for i := range wide {
		wide[i].Name = fmt.Sprint("wide", i)
	}
	list := join(wide, tight)
	each := make([]backend.State, len(list))
	for n := range 3*p.k() + 2 {
		d := p.ask(backend.Take, backend.Group{Key: "a", Policies: list, Cost: 1, Each: each})
		p.must(d.Allowed == (n < 3*p.k()), "take %d: %+v", n+1, d)
		p.must(d.State == binding(each), "of\n\t%+v\nthe take was answered by\n\t%+v", each, d.State)
		for i := range each {
			limit := list[i].Algorithm.Max()
			p.must(each[i].Counted && each[i].Policy == list[i].Name && each[i].Limit == limit && each[i].Used+each[i].Remaining == limit, "%+v", each[i])
		}
	}
}

func spreadKeys(p *probe) {
	list, all := p.list(algo.PerDay(1000*p.k())), trickyKeys()
	for i, key := range all {
		p.passes(key, list, int64(i+1))
	}
	for i, key := range all {
		p.used(key, list, int64(i+1))
	}
}

func aboveShare(p *probe) {
	list := p.list(algo.PerDay(10*p.k() + 1))
	p.passes("a", list, 10)
	for _, op := range []backend.Op{backend.Take, backend.Peek} {
		_, err := p.do(backend.Request{Op: op, Group: backend.Group{Key: "a", Policies: list, Cost: 11}})
		var bad *backend.InvalidError
		p.must(errors.Is(err, backend.ErrNeverAdmissible) && errors.As(err, &bad), "a %v of 11 with shares of 10 gave %v", op, err)
		p.must(strings.Contains(err.Error(), "11") && strings.Contains(err.Error(), "10"), "the error does not name cost and share: %v", err)
	}
	p.used("a", list, 10)
}

func spreadEnded(p *probe) {
	list := p.list(algo.PerDay(5 * p.k()))
	p.passes("a", list, 1)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, op := range []backend.Op{backend.Take, backend.Peek, backend.Reset} {
		_, err := p.send(gone, backend.Request{Op: op, Group: backend.Group{Key: "a", Policies: list, Cost: 1}})
		p.must(errors.Is(err, context.Canceled), "a %v with a cancelled context gave %v", op, err)
	}
	p.used("a", list, 1)
}

func spreadLoses(p *probe) {
	p.needs(p.LoseReply != nil, "LoseReply")
	list := p.list(algo.PerDay(100 * p.k()))
	p.passes("a", list, 1)
	for range 2 {
		p.loses("a", list)
	}
}

func spreadExpires(p *probe) {
	p.needs(p.Expiries != nil, "Expiries")
	list := p.list(algo.PerHour(3 * p.k()))
	for p.take("a", list, 1).Allowed {
	}
	lasting(p)
}

// spreadStorm leaves the judgement to the oracle.
func spreadStorm(p *probe) {
	p.needsClock()
	l := algo.Per(17*p.k()/2+1, 7*sec+13*tick)
	list, passed := p.list(l), 0
	for range stormCalls {
		d := p.take("a", list, 1+p.dice.Int64N(l.Events/p.k()))
		if d.Allowed {
			passed++
		}
		if !d.Allowed || p.dice.IntN(3) == 0 {
			p.advance(p.wait(l.Period, d))
		}
	}
	p.must(passed > stormCalls/20, "%d of %d passed: the storm is none", passed, stormCalls)
}

// spreadCrowd asks for three times the limit. Who lost races was denied while
// there was room; one after the other all of it passes, and no more.
func spreadCrowd(p *probe) {
	limit := 20*p.k() + 3
	list := p.list(algo.PerDay(limit))
	var passed atomic.Int64
	p.crowd(func(int, *rand.Rand) {
		for range 3*limit/crowd + 1 {
			d, err := p.do(backend.Request{Op: backend.Take, Group: backend.Group{Key: "a", Policies: list, Cost: 1}})
			if err != nil {
				p.errorf("a take among %d: %v", crowd, err)
			}
			if d.Allowed {
				passed.Add(1)
			}
		}
	})
	for range limit {
		if p.take("a", list, 1).Allowed {
			passed.Add(1)
		}
	}
	p.must(passed.Load() == limit, "at a limit of %d %d passed", limit, passed.Load())
	p.used("a", list, limit)
}

// spreadCloses closes over a key that is known to be spent, and one that is
// not.
func spreadCloses(p *probe) {
	list := p.list(algo.PerDay(p.k()))
	for range p.k() {
		p.passes("spent", list, 1)
	}
	p.denied("spent", list, 1)
	p.must(p.Store.Close() == nil, "Close failed")
	for _, key := range []string{"spent", "fresh"} {
		for _, op := range []backend.Op{backend.Take, backend.Peek, backend.Reset} {
			_, err := p.do(backend.Request{Op: op, Group: backend.Group{Key: key, Policies: list, Cost: 1}})
			p.must(errors.Is(err, backend.ErrClosed), "a %v after Close gave %v", op, err)
		}
	}
}
