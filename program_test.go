package headgate_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
)

// TestPairs runs random programs of all pairVerbs on random lists of policies, and
// compares every answer with a model that is written from the specification. What holds
// of each verb also holds of their combinations. HEADGATE_SEED=n runs one program.
func TestPairs(t *testing.T) {
	redistest.Plain(t)
	t.Run("memory", func(t *testing.T) { pairs(t, &ground{}, redistest.Steps(10_000, 1_000_000)) })
	t.Run("server", func(t *testing.T) { pairs(t, serverGround(t), redistest.Steps(2_000, 200_000)) })
}

// pairsSteps is the length of a program.
const pairsSteps = 60

func pairs(t *testing.T, g *ground, steps int) {
	seed, programs := uint64(1), steps/pairsSteps
	switch {
	case os.Getenv("HEADGATE_SEED") != "":
		seed, programs = redistest.Seed(t), 1
	case redistest.Long(): // other programs each time
		seed = redistest.Seed(t)
	}
	begin := time.Now()
	for i := range uint64(programs) {
		p := newProgram(seed + i)
		if at, err := p.run(g); err != nil {
			short, err := p.shorten(g, at, err)
			t.Fatalf("HEADGATE_SEED=%d\n%v%v", seed+i, short, err)
		}
	}
	t.Logf("%d programs, %d steps, %.0f per second", programs, g.steps, float64(g.steps)/time.Since(begin).Seconds())
}

// ground is what programs run on: a store each in memory, or one server.
type ground struct {
	server backend.Store // nil: memory
	beside backend.Store // on the same server, and remembers nothing of it
	proxy  *redistest.Proxy
	now    atomic.Int64 // µs
	runs   int
	steps  int
}

func (g *ground) time() time.Time { return time.UnixMicro(g.now.Load()) }

func serverGround(t *testing.T) *ground {
	g, server := &ground{}, redistest.Start(t)
	g.proxy = redistest.NewProxy(t, server.Addr())
	client := server.Client(t, func(o *redis.Options) { o.Addr = g.proxy.Addr() })
	on := func() backend.Store {
		return standalone.New(clock.Client{Processor: client, Now: g.time}, &standalone.Options{Budget: 10 * time.Second})
	}
	g.server, g.beside = on(), on()
	g.now.Store(1745000145_000000)
	requireCount(t, limiter(t, g.server, nil, daily("script", 1)), "loaded", 0) // or the answer that is lost may be NOSCRIPT
	return g
}

// open returns the store of one run, another one on the same counts, and a function that begins
// or ends the loss of its answers. The function returns how many were lost before.
//
// With a deny cache the store in memory counts as remote: limiters remember no denial of a
// local one.
func (g *ground) open(p *pairProgram) (s, beside backend.Store, lose func(lose bool) int) {
	if g.server != nil {
		return g.server, g.beside, func(lose bool) int {
			n, fault := g.proxy.Hit(), redistest.Pass
			if lose {
				fault = redistest.ResetAfterRequest
			}
			g.proxy.Set(fault)
			return n
		}
	}
	m := memory.New(&memory.Options{Now: g.time})
	w, lost := lossyOf(m), 0
	w.shared = &layer.Shared{Clock: g.time}
	if p.apart {
		w.can = oneKey(m).can
	}
	beside = &fake{Store: m}
	switch {
	case !p.lossy && !p.cache && !p.apart:
		return m, beside, nil
	case !p.lossy:
		return w, beside, nil
	}
	return w, beside, func(lose bool) int {
		if !lose {
			w.lose(0, 0)
			return lost
		}
		w.lose(0, onAll)
		lost++ // nothing but the store answers
		return lost - 1
	}
}

// pairProgram is a configuration and what is done with it, the same for the same seed.
type pairProgram struct {
	lists  [][]headgate.Policy // of the limiters, on the same counts
	shards []int               // of the limiters
	keys   int
	lossy  bool
	cache  bool
	apart  bool  // the store decides one key per request
	keyed  bool  // tokens are authenticated
	start  int64 // µs
	steps  []step
}

// step is one call, or a step of the clock. What its numbers mean depends on what the
// steps before did, so that a program from which steps were taken still runs.
type step struct {
	verb    pairVerb
	id      int // its place in the whole program
	limiter int
	key     int
	of      int // the id of the step that reserved
	lose    bool
	draw    [8]uint64
}

func newProgram(seed uint64) *pairProgram {
	r := rand.New(rand.NewPCG(seed, 0))
	p := &pairProgram{keys: 1 + r.IntN(3), lossy: r.IntN(2) == 0, cache: r.IntN(2) == 0,
		apart: r.IntN(6) == 0, keyed: r.IntN(2) == 0, start: 1745000145_000000 + r.Int64N(100_000_000_000)}
	shards := 0
	if r.IntN(4) == 0 {
		shards = []int{2, 4, 16}[r.IntN(3)]
	}
	base := randomList(r, shards)
	queued(rand.New(rand.NewPCG(seed, 1)), base, shards)
	p.lists, p.shards = [][]headgate.Policy{base}, []int{shards}
	if r.IntN(10) > 0 {
		base[0].Shadow = false
	}
	some := someVerbs(r)
	reserves := slices.Contains(some, callReserve) || slices.Contains(some, callReserveAll) || slices.Contains(some, callJob) || slices.Contains(some, callAll) && p.apart
	for range r.IntN(3) {
		k := shards
		if k > 2 && r.IntN(4) == 0 { // counts of their own
			k = r.IntN(2) * 2
		}
		p.lists, p.shards = append(p.lists, varied(r, base, k, reserves)), append(p.shards, k)
	}
	slow := false
	if r.IntN(8) == 0 { // the level of one bucket
		slow = r.IntN(2) == 0
		p.shards = []int{0}
		p.lists = [][]headgate.Policy{{{Name: "p", Algorithm: randomAlgorithm(r, 6, 1+r.Int64N(200), 1, time.Minute), OnFailure: headgate.FailOpen}}}
		p.keys, some = 1, []pairVerb{moveClock, moveClock, callReserve, callReserve, callCancel, callCancel, callCommit, callDo, peekAtRetry}
		if slow {
			some = []pairVerb{moveClock, moveClock, callReserve, callCancel, callCancel}
		}
	}
	var reserved []int
	for i := range pairsSteps {
		s := step{id: i, verb: some[r.IntN(len(some))], limiter: r.IntN(len(p.lists)), key: r.IntN(p.keys), of: -1, lose: r.IntN(12) == 0}
		for j := range s.draw {
			s.draw[j] = r.Uint64()
		}
		if slow { // the clock moves by less than a fraction of a unit
			s.draw[0] %= 2
		}
		if s.verb == callReserve || s.verb == callReserveAll {
			reserved = append(reserved, i)
		} else if len(reserved) > 0 {
			s.of = reserved[max(0, len(reserved)-1-r.IntN(4))]
			if slow {
				s.of = reserved[len(reserved)-1]
			}
		}
		p.steps = append(p.steps, s)
	}
	return p
}

// someVerbs leaves out some, so that the program does more of the others.
func someVerbs(r *rand.Rand) (some []pairVerb) {
	for len(some) == 0 {
		without := map[pairVerb]bool{}
		for _, v := range pairVerbs {
			if _, drawn := without[v]; !drawn {
				without[v] = r.IntN(3) == 0
			}
			if !without[v] {
				some = append(some, v)
			}
		}
	}
	return some
}

func randomList(r *rand.Rand, shards int) (list []headgate.Policy) {
	slots, kind := shards == 0 && r.IntN(5) == 0, r.IntN(8)
	same := r.IntN(3) == 0
	for i := range 1 + r.IntN(4) {
		if !same {
			kind = r.IntN(8)
		}
		limit := 1 + r.Int64N([]int64{5, 12, 200}[r.IntN(3)])
		if shards > 0 {
			limit = int64(shards) * (1 + r.Int64N(8))
			limit += r.Int64N(int64(shards))
		}
		period := []time.Duration{time.Second, 7 * time.Second, 10 * time.Second, time.Minute, time.Hour, 1_000_003 * time.Microsecond}[r.IntN(6)]
		if slots && r.IntN(2) == 0 {
			kind = -1
		}
		list = append(list, headgate.Policy{
			Name: fmt.Sprint("p", i), Algorithm: randomAlgorithm(r, kind, limit, max(1, int64(shards)), period),
			OnFailure: []headgate.FailureMode{headgate.FailOpen, headgate.FailClosed}[r.IntN(2)], Shadow: r.IntN(10) < 3,
		})
	}
	return list
}

// queued makes a LeakyQueue of some policies, in a fifth of the programs. It has dice of its own.
func queued(r *rand.Rand, list []headgate.Policy, shards int) {
	if shards > 0 || r.IntN(5) > 0 {
		return
	}
	for i := range list {
		if a := &list[i].Algorithm; !a.Kind().Leased() && r.IntN(2) == 0 {
			*a = randomQueue(r, algo.Per(1+r.Int64N([]int64{3, 60, 3000}[r.IntN(3)]), []time.Duration{time.Second, 10 * time.Second, time.Hour}[r.IntN(3)]), min(a.Max(), 200))
		}
	}
}

// randomQueue draws how long units of a queue may wait.
func randomQueue(r *rand.Rand, l algo.Limit, burst int64) algo.Algorithm {
	delay := l.Period * time.Duration(1+r.Int64N(40)) / time.Duration(4*l.Events)
	return algo.LeakyQueue(l, burst, max(time.Millisecond, delay.Truncate(time.Microsecond)))
}

func randomAlgorithm(r *rand.Rand, kind int, limit, least int64, period time.Duration) algo.Algorithm {
	l := algo.Per(limit, period)
	switch kind {
	case -1:
		return algo.InFlight(1 + limit%4)
	case 0:
		return algo.FixedWindow(l)
	case 1:
		return algo.SlidingWindow(l)
	case 2:
		return algo.BucketedWindow(l, 2+r.Int64N(9))
	case 3:
		return algo.SlidingLog(l)
	case 4:
		return algo.CompactLog(l)
	case 5:
		zone := []string{"UTC", "Europe/Berlin", "America/Sao_Paulo"}[r.IntN(3)]
		where, err := time.LoadLocation(zone)
		if err != nil {
			where = time.UTC
		}
		return algo.Calendar(limit, []algo.CivilPeriod{algo.Day(), algo.Week(time.Weekday(r.IntN(7))), algo.Month(1 + r.IntN(31))}[r.IntN(3)], where)
	default:
		return algo.TokenBucket(algo.Per(least+r.Int64N([]int64{3, 60, 3000}[r.IntN(3)]), period), limit)
	}
}

// varied returns another list on the same counts: other numbers, another order, fewer
// policies, another period.
func varied(r *rand.Rand, base []headgate.Policy, shards int, reserves bool) []headgate.Policy {
	list := slices.Clone(base)
	if r.IntN(2) == 0 {
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	if r.IntN(3) == 0 {
		list = list[:1+r.IntN(len(list))]
	}
	for i := range list {
		p := &list[i]
		limit, kind := p.Algorithm.Limit(), p.Algorithm.Kind()
		most := p.Algorithm.Max()
		switch c := r.IntN(6); {
		case c == 0: // other numbers on the same count
			most = max(1, int64(shards), r.Int64N(2*most+1))
			p.Algorithm = p.Algorithm.WithMax(most)
		case c == 1 && kind == rule.KindTokenBucket:
			p.Algorithm = algo.TokenBucket(algo.Per(anotherRate(r, limit.Events, int64(shards), reserves), limit.Period), most)
		case c == 1 && kind == rule.KindLeakyQueue:
			p.Algorithm = randomQueue(r, algo.Per(anotherRate(r, limit.Events, int64(shards), reserves), limit.Period), most)
		case c == 2 && kind == rule.KindFixedWindow: // another count
			p.Algorithm = algo.FixedWindow(algo.Per(most, 2*limit.Period))
		case c == 3 && kind == rule.KindSlidingLog:
			p.Algorithm = algo.SlidingLog(algo.Per(most, 2*limit.Period))
		}
	}
	return list
}

// anotherRate returns the rate of another limiter of the same bucket. Where calls are
// reserved, none is more than three times another; see docs/failures.md, "Buckets of two
// rates".
func anotherRate(r *rand.Rand, events, shards int64, reserves bool) int64 {
	switch {
	case !reserves:
		return max(1, shards) + r.Int64N(2*events)
	case shards > 1: // whose shares differ by more
		return events
	}
	return (events+1)/2 + r.Int64N(events+1)
}

// run runs the program, and returns the first step that was answered wrongly.
func (p *pairProgram) run(g *ground) (at int, err error) {
	w, err := newWorld(p, g)
	if err != nil {
		return -1, err
	}
	defer w.close()
	for i := range p.steps {
		g.steps++
		if err := w.step(&p.steps[i]); err != nil {
			return i, fmt.Errorf("%s: %w", strings.Join(w.said, "\n"), err)
		}
	}
	if e := w.model.Check(); e != nil {
		return len(p.steps) - 1, fmt.Errorf("%s\n%w", strings.Join(w.said, "\n"), e)
	}
	return len(p.steps) - 1, nil
}

// shorten returns the program without what its failure does not need.
func (p *pairProgram) shorten(g *ground, at int, err error) (*pairProgram, error) {
	short := *p
	short.steps = slices.Clone(p.steps[:at+1])
	for again := true; again; {
		again = false
		for i := len(short.steps) - 1; i >= 0; i-- {
			less := short
			less.steps = slices.Delete(slices.Clone(short.steps), i, i+1)
			if n, e := less.run(g); e != nil {
				less.steps = less.steps[:n+1]
				short, err, again = less, e, true
				i = min(i, len(short.steps))
			}
		}
		for i := range short.lists { // and of the list what no step needs
			for j := 0; j < len(short.lists[i]) && len(short.lists[i]) > 1; j++ {
				less := short
				less.lists = slices.Clone(short.lists)
				less.lists[i] = slices.Delete(slices.Clone(short.lists[i]), j, j+1)
				if n, e := less.run(g); e != nil {
					less.steps = less.steps[:n+1]
					short, err, again = less, e, true
					j--
				}
			}
		}
	}
	return &short, err
}

func (p *pairProgram) String() string {
	var b strings.Builder
	for i, list := range p.lists {
		fmt.Fprintf(&b, "limiter %d:", i)
		for _, q := range list {
			fmt.Fprintf(&b, " %s %v", q.Name, &q.Algorithm)
			if q.Shadow {
				b.WriteString(" shadow")
			}
			b.WriteString(map[headgate.FailureMode]string{headgate.FailOpen: " (fails open);", headgate.FailClosed: " (fails closed);"}[q.OnFailure])
		}
		fmt.Fprintf(&b, " over %d\n", max(1, p.shards[i]))
	}
	fmt.Fprintf(&b, "answers can be lost: %v, deny cache: %v, one key per request: %v, authenticated tokens: %v\n", p.lossy, p.cache, p.apart, p.keyed)
	return b.String()
}
