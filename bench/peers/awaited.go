package peers

import (
	"runtime"
	"sync"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/redis/go-redis/v9"
)

// Awaited is Flights with callers that wait for their script: a call leaves at
// once while fewer scripts are out than may be, else with those that gather
// until one is back. What it lacks of Flights is what it costs to park callers
// and to wake them; what Headgate lacks of it is the decision.
func Awaited(dial Dial) Maker {
	return Maker{"HGET and HSET, in flights, awaited", Floor, func(Limit) (*Subject, error) {
		client, hangUp := dial()
		sha, err := client.ScriptLoad(ctx, least).Result()
		a := &awaited{client: client, sha: sha}
		a.mu.next = gather()
		return closing(plain(a.call), hangUp), err
	}}
}

// wakes is how many wake each other one by one: on an Intel Xeon a tenth more
// calls than where the flight wakes each.
const wakes = 4

type awaited struct {
	client redis.UniversalClient
	sha    string

	mu struct {
		sync.Mutex
		next *gathering
		out  int
	}
}

// gathering is a flight that has not left.
type gathering struct {
	seen  map[string]struct{}
	keys  []string
	calls []*waiter
}

func gather() *gathering { return &gathering{seen: make(map[string]struct{}, flightCalls)} }

type waiter struct {
	back   chan struct{}
	answer load.Answer
	next   *waiter // whom to wake
}

var waiters = sync.Pool{New: func() any { return &waiter{back: make(chan struct{}, 1)} }}

func (a *awaited) call(key string) load.Answer {
	w := waiters.Get().(*waiter)
	if full := a.board(key, w); full != nil {
		go a.fly(full)
	}
	<-w.back
	answer, next := w.answer, w.next
	waiters.Put(w)
	if next != nil {
		next.back <- struct{}{}
	}
	return answer
}

// board returns the flight if it leaves now.
func (a *awaited) board(key string, w *waiter) *gathering {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.mu.next
	if _, ok := g.seen[key]; !ok {
		g.seen[key] = struct{}{}
		g.keys = append(g.keys, "flights:"+key)
	}
	g.calls = append(g.calls, w)
	if a.mu.out == flightsOut {
		return nil
	}
	a.mu.out++
	a.mu.next = gather()
	return g
}

func (a *awaited) fly(g *gathering) {
	for ; g != nil; g = a.landed() {
		said := answer(true, a.client.EvalSha(ctx, a.sha, g.keys, "0123456789abcdef").Err())
		for i, w := range g.calls {
			w.answer, w.next = said, nil
			if i%wakes > 0 {
				g.calls[i-1].next = w
			}
		}
		for i := 0; i < len(g.calls); i += wakes {
			g.calls[i].back <- struct{}{}
		}
		runtime.Gosched() // who was answered calls again, and is on the next
	}
}

// landed returns what leaves in the place of a flight.
func (a *awaited) landed() *gathering {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.mu.next
	if len(g.calls) == 0 {
		a.mu.out--
		return nil
	}
	a.mu.next = gather()
	return g
}
