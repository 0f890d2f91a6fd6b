package shard

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/slot"
)

// How long what was heard of a sub-key stands at most, and for how long one
// that nobody answered for is left alone while others live.
const (
	longest = time.Second
	deadFor = 100 * time.Millisecond
)

// entry is what is known of one key by one plan.
type entry struct {
	key     string
	plan    *plan
	salts   slot.Salts
	home    int // slots; see name
	offset  int
	recent  atomic.Bool
	rooms   []atomic.Int64 // what remained when last seen, one a policy for each share
	left    []atomic.Int64 // their sums, one a policy
	subs    []sub
	verdict atomic.Pointer[verdict] // while it is not nil every sub-key is spent, or dead
	mu      struct {
		sync.Mutex
		reading *reading // the sum under way
	}
}

// sub is what is known against asking one sub-key.
type sub struct {
	shut atomic.Pointer[shut]
	dead atomic.Pointer[death]
}

// shut is a denial: nothing that costs as much passes there before until.
type shut struct {
	at, until time.Duration
	states    []backend.State
	costs     []int64
}

type death struct {
	at  time.Duration
	err error
}

func newEntry(key string, p *plan) *entry {
	k, n := len(p.parts), len(p.policies)
	e := &entry{key: key, plan: p, salts: slot.Names(), home: slot.Home(key), offset: int(xxhash.Sum64String(key) % slot.Count)}
	e.rooms, e.left, e.subs = make([]atomic.Int64, k*n), make([]atomic.Int64, n), make([]sub, k)
	for i := range e.subs {
		for j := range n {
			e.room(i, j, e.plan.parts[i][j].Algorithm.Max())
		}
	}
	return e
}

// name returns the name of the i-th sub-key. Its slot is i K-ths of the range
// from a place that the key's hash says, in every process: points that lie
// evenly put as many on a node as its part of the range holds, but for one,
// whatever the key is.
func (e *entry) name(i int) string {
	return e.salts.Salt(e.home, (e.offset+e.plan.steps[i])%slot.Count)
}

// room notes what remains of a policy in a share.
func (e *entry) room(i, j int, n int64) (was int64) {
	was = e.rooms[i*len(e.left)+j].Swap(n)
	e.left[j].Add(n - was)
	return was
}

// spare returns how much more than g asks was last seen in a share, in the
// policy that has the least.
func (e *entry) spare(i int, g *backend.Group) int64 {
	n := len(e.left)
	least := e.rooms[i*n].Load() - g.CostOf(0)
	for j := 1; j < n; j++ {
		least = min(least, e.rooms[i*n+j].Load()-g.CostOf(j))
	}
	return least
}

// draw returns a sub-key to ask: of two at random the one that was seen with
// more room, which keeps shares spent alike though nobody counts them; of one
// at random, a share in a hundred would be spent at 90 % of the limit. -1
// where something is known against it, and all have to be looked at.
func (e *entry) draw(g *backend.Group) int {
	n, k := rand.Uint64(), uint64(len(e.subs))
	i, j := int((n>>32)*k>>32), int((n&(1<<32-1))*k>>32)
	most := e.spare(i, g)
	if other := e.spare(j, g); other > most {
		i, most = j, other
	}
	if s := &e.subs[i]; most < 0 || s.shut.Load() != nil || s.dead.Load() != nil {
		return -1
	}
	return i
}

// sight is what a look at all sub-keys shows.
type sight struct {
	best  int  // drawn among those that may be asked, by the room that was seen in them; -1: none
	some  bool // best was seen with room
	stale bool // one is spent, but that was heard too long ago, or of a larger cost
}

func (e *entry) look(g *backend.Group, now time.Duration) sight {
	s, sum := sight{best: -1}, int64(0)
	from := rand.IntN(len(e.subs))
	for n := range e.subs {
		i := (from + n) % len(e.subs)
		switch e.class(i, g, now) {
		case stale:
			s.stale = true
		case open:
			spare := e.spare(i, g)
			if s.best < 0 {
				s.best = i
			}
			if spare < 0 {
				continue
			}
			s.some = true
			if sum += spare + 1; rand.Int64N(sum) <= spare {
				s.best = i
			}
		}
	}
	return s
}

// best draws among shares by the room that was seen in them, and returns it
// and the others that have some; -1 where none has.
func (e *entry) best(shares []int, g *backend.Group) (int, []int) {
	at, sum, some := -1, int64(0), shares[:0]
	for _, i := range shares {
		spare := e.spare(i, g)
		if spare < 0 {
			continue
		}
		some = append(some, i)
		if sum += spare + 1; rand.Int64N(sum) <= spare {
			at = len(some) - 1
		}
	}
	if at < 0 {
		return -1, nil
	}
	i, last := some[at], len(some)-1
	some[at] = some[last]
	return i, some[:last]
}

// claim takes what g is about to ask for from what is known of a share, so
// that the callers of this process who share a sum don't race each other for
// it. The answer sets it right.
func (e *entry) claim(i int, g *backend.Group) {
	for j := range e.left {
		n := g.CostOf(j)
		e.rooms[i*len(e.left)+j].Add(-n)
		e.left[j].Add(-n)
	}
}

type class uint8

const (
	open   class = iota // may be asked
	stale               // spent when it was last heard of
	spent               // denies what costs as much
	absent              // nobody answered for it
)

func (e *entry) class(i int, g *backend.Group, now time.Duration) class {
	s := &e.subs[i]
	if d := s.dead.Load(); d != nil {
		if now >= d.at && now < d.at+deadFor {
			return absent
		}
		s.dead.CompareAndSwap(d, nil)
	}
	h := s.shut.Load()
	switch {
	case h == nil:
		return open
	case now >= h.until || now < h.at:
		if s.shut.CompareAndSwap(h, nil) {
			e.revive(i, h, now)
		}
		return open
	case e.spare(i, g) >= 0: // less than what was denied
		return open
	case now < h.at+longest && atLeast(g, h.costs):
		return spent
	}
	return stale
}

// revive notes what a share that was spent has at least, now that the denied
// cost would pass.
func (e *entry) revive(i int, h *shut, now time.Duration) {
	for j := range h.states {
		s := &h.states[j]
		n := max(s.Remaining, h.costs[j])
		if now >= h.at+s.ResetAfter {
			n = e.plan.parts[i][j].Algorithm.Max()
		}
		e.room(i, j, n)
	}
}

// learn notes what a sub-key answered to g, with one state a policy.
func (e *entry) learn(i int, d *backend.Decision, states []backend.State, g *backend.Group, now time.Duration) {
	for j := range states {
		n, share := states[j].Remaining, e.plan.parts[i][j].Algorithm.Max()
		if was := e.room(i, j, n); d.Allowed && (n-was)*4 > share {
			e.renew(i, j)
		}
	}
	s := &e.subs[i]
	if s.dead.Load() != nil {
		s.dead.Store(nil)
	}
	if !d.Allowed {
		s.shut.Store(&shut{at: now, until: now + d.RetryAfter, states: slices.Clone(states), costs: costs(g)})
		return
	}
	if h := s.shut.Load(); h != nil && atLeast(g, h.costs) {
		s.shut.CompareAndSwap(h, nil)
	}
}

// renew is for a share that was seen low and has plenty: a window has begun,
// for the others too. Else they would be left out until they come by chance.
func (e *entry) renew(but, j int) {
	for i := range e.subs {
		if i != but && e.subs[i].shut.Load() == nil {
			e.room(i, j, e.plan.parts[i][j].Algorithm.Max())
		}
	}
}

func (e *entry) bury(i int, err error, now time.Duration) {
	e.subs[i].dead.Store(&death{now, err})
}

func costs(g *backend.Group) []int64 {
	all := make([]int64, len(g.Policies))
	for j := range all {
		all[j] = g.CostOf(j)
	}
	return all
}

// atLeast reports whether g costs no less in any policy.
func atLeast(g *backend.Group, costs []int64) bool {
	for j := range costs {
		if g.CostOf(j) < costs[j] {
			return false
		}
	}
	return true
}
