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

// A cache holds at most sets × ways denials, of keys that are short: an attacker
// with many keys, or long ones, makes it hold no more.
const (
	sets   = 8192
	ways   = 7    // with its generation a set is one cache line
	keyMax = 1024 // bytes; a longer key is asked each time
)

// Cache holds the denials of keys on one store, by any limiter. It is read on the
// path of every call, so it takes no lock. Safe for concurrent use.
type Cache struct {
	store *layer.Shared
	seed  maphash.Seed // with a public hash an attacker could choose which denials are pushed out
	begin time.Time    // of the monotonic clock
	sets  [sets]Set
}

// Set is where the denials of some keys lie. Changes of one of these keys by this
// process increment the generation, and a denial of another generation no longer
// holds. So a denial that was on its way during the change never answers a call.
type Set struct {
	generation atomic.Uint64
	ways       [ways]atomic.Pointer[entry]
}

// Of returns the cache that all limiters on one store share.
func Of(store *layer.Shared) *Cache {
	type key struct{}
	return store.Value(key{}, func() any {
		return &Cache{store: store, seed: maphash.MakeSeed(), begin: time.Now()}
	}).(*Cache)
}

// Now returns the time by the store's clock.
func (c *Cache) Now() time.Duration {
	if c.store.Clock == nil { // mutant: denials-by-store-clock
		return time.Since(c.begin)
	}
	return time.Duration(c.store.Clock().UnixNano())
}

// At returns where the denials of a key lie. Keys of one set share its generation, so
// that a change of one costs the others a request.
func (c *Cache) At(key string) *Set { return &c.sets[maphash.String(c.seed, key)%sets] }

// Generation returns the current generation. Read it before a request is sent: the
// answer may be from before a change that comes while it is on its way.
func (s *Set) Generation() uint64 { return s.generation.Load() }

// Forget ends all denials of the set, and those that are on their way.
func (s *Set) Forget() { s.generation.Add(1) }

// find returns a denial that holds for g at now, where denials hold for ttl; nil
// where none does. It drops those that have ended.
func (s *Set) find(g *backend.Group, now, ttl time.Duration) *entry {
	generation := s.Generation()
	for i := range s.ways {
		switch e := s.ways[i].Load(); {
		case e == nil:
		case now >= e.Until() || e.generation != generation: // mutant: denials-swept
			s.ways[i].CompareAndSwap(e, nil)
		case now < e.Sent+ttl && len(g.Each) <= len(e.States) && e.denies(g): // mutant: denial-ttl
			return e
		}
	}
	return nil
}

// passed drops the denials of a call that passed. Those of calls that cost more may
// still hold.
func (s *Set) passed(g *backend.Group) {
	for i := range s.ways {
		if e := s.ways[i].Load(); e != nil && e.denies(g) {
			s.ways[i].CompareAndSwap(e, nil)
		}
	}
}

// Note keeps the denial of a key under these policies, until a call would pass or
// Longest has passed, and unless this process changes the key. The policies and the
// denial's slices become the cache's. The generation is from before the request.
//
// It takes the place of what it covers, of what holds no longer, or of what ends
// first. Two calls that note at once may lose one denial, which costs one request.
func (s *Set) Note(g *backend.Group, d *Denial, generation uint64) {
	if len(g.Key) > keyMax {
		return
	}
	e := &entry{Denial: *d, generation: generation, refreshed: make(chan struct{})}
	// The strings are cloned, or they would keep what they were cut from.
	e.group = backend.Group{Key: strings.Clone(g.Key), Sub: strings.Clone(g.Sub), Policies: g.Policies, Costs: d.Costs}
	at, soonest := 0, time.Duration(math.MaxInt64)
	for i := range s.ways {
		ends := time.Duration(math.MinInt64)
		if old := s.ways[i].Load(); old != nil && old.generation == generation && !e.denies(&old.group) {
			ends = old.Until()
		}
		if ends < soonest {
			at, soonest = i, ends
		}
	}
	s.ways[at].Store(e)
}

// entry is the cached denial of a key. Only refreshing changes.
type entry struct {
	Denial
	generation uint64        // of its set, before Sent
	group      backend.Group // that was denied: its key, policies and costs; never written
	refreshing atomic.Bool   // one caller asks whether the denial still holds
	sent       atomic.Bool   // one caller of several keys was sent to ask
	refreshed  chan struct{} // closed when that caller has its answer
}

// denies reports whether g is denied: it is of the entry's key and policies, by their
// numbers, and costs enough. What a policy does on failure does not matter here.
func (e *entry) denies(g *backend.Group) bool {
	k, n := &e.group, len(e.group.Policies)
	if k.Key != g.Key || k.Sub != g.Sub || len(g.Policies) != n || g.Costs != nil && len(g.Costs) != n {
		return false
	}
	// Nearly always the list is the limiter's own.
	alike := &k.Policies[0] == &g.Policies[0] || slices.EqualFunc(k.Policies, g.Policies, equal)
	return alike && e.Denies(g)
}

// equal reports whether two policies decide alike: they have one count and one limit.
func equal(a, b backend.Policy) bool {
	return a.Name == b.Name && a.Algorithm == b.Algorithm && a.Shards == b.Shards // mutant: denied-algorithms
}
