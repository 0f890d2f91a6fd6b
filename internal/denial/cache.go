package denial

import (
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// A cache holds at most sets × ways denials, of keys that are short. An attacker
// with many keys, or long ones, makes it hold no more.
const (
	sets   = 8192
	ways   = 6    // with its generation and its tags a set is one cache line
	keyMax = 1024 // bytes; a longer key is asked each time
)

// Cache holds the denials of keys on one store, by any limiter. It is read on the
// path of every call, so it takes no lock. Safe for concurrent use.
type Cache struct {
	store *layer.Shared
	seed  maphash.Seed // with a public hash an attacker could choose which denials are pushed out
	sets  [sets]line
}

// Set is where the denials of a key lie, beside those of some others. Changes of one of
// these keys by this process increment the generation, and a denial that was on its way
// meanwhile is not noted. So it never answers a call.
type Set struct {
	*line
	tag uint8 // of the key
}

// line is the set's memory. A denial stays for a minute, so calls that pass look at the
// tags only. Reading the denials of other keys costs each a cache line.
type line struct {
	generation atomic.Uint64
	tags       atomic.Uint64 // a byte per way, of the key of its denial
	ways       [ways]atomic.Pointer[entry]
}

// holds reports whether any denial may be the key's, by one look at all tags. A byte that
// is the key's tag becomes 0 in x, and the line below finds a byte that is 0. The two
// bytes without a way are 0, so a key with tag 0 always looks further.
func (s Set) holds() bool {
	x := s.tags.Load() ^ uint64(s.tag)*0x0101010101010101
	return (x-0x0101010101010101)&^x&0x8080808080808080 != 0
}

// may returns the i-th denial if it may be the key's.
func (s Set) may(i int) *entry {
	if uint8(s.tags.Load()>>(8*i)) != s.tag {
		return nil
	}
	return s.ways[i].Load()
}

// put makes e the i-th denial. Of two at once the tag may be the other's: then a denial is
// not found, which costs one request.
func (s Set) put(i int, e *entry) {
	s.ways[i].Store(e)
	for {
		old := s.tags.Load()
		if s.tags.CompareAndSwap(old, old&^(0xff<<(8*i))|uint64(s.tag)<<(8*i)) {
			return
		}
	}
}

// Of returns the cache that all limiters on one store share.
func Of(store *layer.Shared) *Cache {
	type key struct{}
	return store.Value(key{}, func() any {
		c := &Cache{store: store, seed: maphash.MakeSeed()}
		store.Subscribe(c.changed)
		return c
	}).(*Cache)
}

// Now returns the time by the store's clock.
func (c *Cache) Now() time.Duration { return c.store.Now() }

// At returns where the denials of a key lie. Keys of one set share its generation, so
// that a change of one costs the others on their way a request.
func (c *Cache) At(key string) Set {
	h := maphash.String(c.seed, key)
	return Set{&c.sets[h%sets], uint8(h >> 56)}
}

// Generation returns the current generation. Read it before a request is sent: the
// answer may be from before a change that comes while it is on its way.
func (s *line) Generation() uint64 { return s.generation.Load() }

// changed ends the denials of a key whose counts were removed, and those by counts of which units
// came back. It also ends those that a call which passed refutes.
func (c *Cache) changed(n layer.Notice) {
	switch n.Change {
	//mutant:passed-ends-denial
	case layer.Passed:
		c.At(n.Group.Key).passed(n.Group, n.Sent, c)
	case layer.Removed:
		c.Forget(n.Group.Key)
	case layer.Returned:
		if n.Group.Lease == nil || givesBack(n.Group) {
			c.forget(n.Group.Key, func(e *entry) bool { return e.counts(n.Group.Policies) })
		}
	}
}

// Forget ends all denials of a key, and those that are on their way.
func (c *Cache) Forget(key string) { c.forget(key, func(*entry) bool { return true }) }

// forget ends the denials of a key that concerned reports, and all that are on their way. It
// does not go by the tags, which two calls that note at once may confuse.
func (c *Cache) forget(key string, concerned func(*entry) bool) {
	s := c.At(key)
	//mutant:forgets-what-comes
	s.generation.Add(1)
	for i := range s.ways {
		//mutant:forgets-by-key
		if e := s.ways[i].Load(); e != nil && e.group.Key == key && concerned(e) {
			s.ways[i].CompareAndSwap(e, nil)
		}
	}
}

// holding reports whether no change of the key has come since before the denial's request.
// One that is being noted holds as long as the generation is its own.
func (s Set) holding(e *entry) bool {
	//mutant:noted-in-place
	return e.noted.Load() || e.generation == s.Generation()
}

// find returns a denial that holds for g at now, where denials hold for ttl; nil
// where none does. It drops those that have ended.
func (s Set) find(g *backend.Group, now, ttl time.Duration) *entry {
	if !s.holds() {
		return nil
	}
	for i := range s.ways {
		switch e := s.may(i); {
		case e == nil:
		//mutant:denials-swept
		case now >= e.Sent+Standing:
			s.ways[i].CompareAndSwap(e, nil)
		//mutant:denial-ttl
		case now < e.Until() && now < e.Sent+ttl && (g.Each == nil || !e.Partial) && s.holding(e) && e.denies(g):
			return e
		}
	}
	return nil
}

// passed drops the denials of a call that was sent at an instant and passed, but for those
// that the store may have answered later. Those of calls that cost more may
// still hold. Of a TokenBucket the call took its costs. A denial that foretold that stays.
func (s Set) passed(g *backend.Group, sent time.Duration, c *Cache) {
	if !s.holds() {
		return
	}
	for i := range s.ways {
		e := s.may(i)
		//mutant:later-denial-stays
		if e == nil || sent < e.Told {
			continue
		}
		by := e.bound(g)
		switch {
		case by < 0 && !e.denies(g):
		case by >= 0 && g.CostOf(by) < e.Costs[e.binding()]:
			//mutant:cheaper-call-takes
			e.take(g.CostOf(by), c.Now(), farAway)
		//mutant:pass-takes-refill
		case by >= 0 && e.refills() && e.take(g.CostOf(by), c.Now(), e.slack()):
		default:
			s.ways[i].CompareAndSwap(e, nil)
		}
	}
}

// Note keeps the denial of a key under these policies, until a call would pass or
// Longest has passed. It is kept unless this process changes the key. The policies and the
// denial's slices become the cache's. needs is that of the request, and the generation is
// from before it.
//
// It takes the place of what it covers, of what holds no longer, or of what ends
// first. Two calls that note at once may lose one denial, which costs one request. A
// change that ends before the last look at the generation is seen there. A later
// one finds the denial in its place.
func (s Set) Note(g *backend.Group, d *Denial, needs int64, generation uint64) {
	if len(g.Key) > keyMax || s.Generation() != generation {
		return
	}
	//mutant:firm-denial-holds
	lent := slices.ContainsFunc(d.States, func(s backend.State) bool { return s.Lent > 0 })
	e := &entry{Denial: *d, lent: lent, needs: needs, generation: generation}
	// The strings are cloned, or they would keep what they were cut from.
	e.group = backend.Group{Key: strings.Clone(g.Key), Policies: g.Policies, Shards: g.Shards, Borrow: g.Borrow, Costs: d.Costs}
	at, soonest := 0, time.Duration(math.MaxInt64)
	for i := range s.ways {
		ends := time.Duration(math.MinInt64)
		if old := s.ways[i].Load(); old != nil {
			if !e.denies(&old.group) {
				ends = old.Until()
			}
			e.inherit(old)
		}
		if ends < soonest {
			at, soonest = i, ends
		}
	}
	s.put(at, e)
	//mutant:noted-after-change
	if s.Generation() != generation {
		s.ways[at].CompareAndSwap(e, nil)
		return
	}
	e.noted.Store(true)
}

// entry is the cached denial of a key. Only the last four fields change.
type entry struct {
	Denial
	lent       bool          // lent units were counted as used
	needs      int64         // of the denied request: the process had fewer local units
	group      backend.Group // that was denied: its key, policies and costs; never written
	generation uint64        // of its set, before Sent
	noted      atomic.Bool   // no change of the key has come since, or else it was forgotten
	refreshing atomic.Bool   // one caller asks whether the denial still holds
	taken      atomic.Int64  // nanoseconds by which calls that have passed since prolong it
	uncounted  atomic.Bool   // no store has counted some of these calls
}

// denies reports whether g is denied: it is of the entry's key and policies, by their
// numbers, and costs enough. What a policy does on failure does not matter here.
func (e *entry) denies(g *backend.Group) bool {
	return e.of(g) && layer.Alike(e.group.Policies, g.Policies) && e.Denies(g)
}

// of reports whether the denial is of g's key.
func (e *entry) of(g *backend.Group) bool {
	return layer.SameKey(&e.group, g) && (g.Costs == nil || len(g.Costs) == len(g.Policies))
}

// counts reports whether one of the policies has the name of one of the entry's list. The name
// alone: what is settled is what the lease recorded, and another limiter may settle it.
func (e *entry) counts(policies []backend.Policy) bool {
	for i := range policies {
		p := &policies[i]
		//mutant:other-counts-stay-denied
		if slices.ContainsFunc(e.group.Policies, func(q backend.Policy) bool {
			return p.Name == q.Name
		}) {
			return true
		}
	}
	return false
}

// asked is how often within a lease a denial is asked for again that counted lent units.
// Another process may have given some back by then.
const asked = 4

// Until is that of the denial. One that counted lent units is asked for sooner.
func (e *entry) Until() time.Duration {
	until := e.Denial.Until()
	//mutant:lent-units-asked-for
	if b := e.group.Borrow; b > 0 && e.lent {
		until = min(until, e.Sent+b/asked)
	}
	return until
}
