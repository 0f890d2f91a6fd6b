package denial

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// What a cache holds at most: 65,536 entries, of keys that an attacker can't
// make it keep megabytes of.
const (
	stripes   = 256
	perStripe = 256
	variants  = 4    // entries a key: other policies, other costs
	keyMost   = 1024 // bytes; a longer key is asked for each time
)

// swept is how often a stripe is swept, by a call that passes.
const swept = time.Second

// cache is what is known to be denied on one store, by whichever limiter.
type cache struct {
	seed  maphash.Seed // with a public hash an attacker fills one stripe
	begin time.Time
	clock func() time.Time // nil: the monotonic one
	ended *atomic.Bool     // the store was closed
	// generations count what this process changed: a denial that was on its
	// way meanwhile must not be noted. More than stripes, or who settles every
	// call would keep most denials out.
	generations [4096]atomic.Uint32
	stripes     [stripes]stripe
}

type stripe struct {
	known atomic.Int32 // entries, for those who pass while there is none
	_     [56]byte     // a line of its own, since every call reads it
	mu    struct {
		sync.Mutex
		keys  map[string][]*entry
		count int
		swept time.Duration
	}
}

// place is where a key belongs.
type place struct {
	*stripe
	generation *atomic.Uint32
}

// of returns the cache that all limiters on one store share.
func of(store *layer.Shared) *cache {
	type key struct{}
	return store.Value(key{}, func() any { return newCache(store) }).(*cache)
}

func newCache(store *layer.Shared) *cache {
	c := &cache{seed: maphash.MakeSeed(), begin: time.Now(), clock: store.Clock, ended: &store.Closed} // mutant: denials-by-store-clock
	if c.clock != nil {
		c.begin = c.clock()
	}
	return c
}

// now is the time since the cache was made, by the store's clock.
func (c *cache) now() time.Duration {
	if c.clock == nil {
		return time.Since(c.begin)
	}
	return c.clock().Sub(c.begin)
}

func (c *cache) closed() bool { return c.ended.Load() }

func (c *cache) place(key string) place {
	h := maphash.String(c.seed, key)
	return place{&c.stripes[h%stripes], &c.generations[h/stripes%uint64(len(c.generations))]}
}

// find returns a denial of the request that holds at now, where an answer stands
// for so long; nil where none does. Before a denial ends that outlasts that time,
// one caller is to refresh it: leads is true for that caller. So a flood on a spent
// key asks about once per second. pending is closed when that caller has its
// answer; nil where nobody asks.
func (st *stripe) find(r *backend.Request, now, stand time.Duration) (e *entry, pending chan struct{}, leads bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sweep(now) // mutant: denials-swept
	for _, e := range st.mu.keys[r.Key] {
		if !e.denies(&r.Group) || now >= e.sent+min(e.lasts, stand) { // mutant: denial-ends
			continue
		}
		if e.decision.RetryAfter > stand && now >= e.sent+stand*3/4 && e.refresh == nil { // mutant: one-refresh
			e.refresh = make(chan struct{})
			return e, e.refresh, true
		}
		return e, e.refresh, false
	}
	return nil, nil, false
}

// passed drops the denials of a request that passed.
func (st *stripe) passed(r *backend.Request) {
	if st.known.Load() == 0 {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	entries := st.mu.keys[r.Key]
	kept := slices.DeleteFunc(slices.Clone(entries), func(e *entry) bool { return e.denies(&r.Group) })
	st.set(r.Key, kept, len(entries))
}

// note keeps a denial, unless this process has changed the key since.
func (c *cache) note(at place, generation uint32, g *backend.Group, d *backend.Decision, sent time.Duration) {
	now := c.now()
	if len(g.Key) > keyMost || g.Each == nil && len(g.Policies) != 1 {
		return
	}
	e := newEntry(g, d, sent, now)
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.generation.Load() != generation || c.closed() { // mutant: denial-before-reset
		return
	}
	at.add(g.Key, e, now)
}

// forget drops all that is known of a key, and what is on its way to be.
func (c *cache) forget(key string) {
	at := c.place(key)
	at.mu.Lock()
	defer at.mu.Unlock()
	at.generation.Add(1)
	at.drop(key)
}

// close forgets everything, for good.
func (c *cache) close() {
	c.ended.Store(true) // for a store of another author; one of ours has done it
	for i := range c.stripes {
		st := &c.stripes[i]
		st.mu.Lock()
		st.mu.keys, st.mu.count = nil, 0
		st.known.Store(0)
		st.mu.Unlock()
	}
}

// The rest runs under the stripe's lock.

// add puts e in place of what it covers.
func (st *stripe) add(key string, e *entry, now time.Duration) {
	st.spare(now)
	had, known := st.mu.keys[key]
	kept := slices.DeleteFunc(slices.Clone(had), e.covers)
	if len(kept) == variants {
		soonest := slices.MinFunc(kept, func(a, b *entry) int { return cmp.Compare(a.ends(), b.ends()) })
		kept[slices.Index(kept, soonest)] = e
	} else {
		kept = append(kept, e)
	}
	if !known {
		key = strings.Clone(key) // or it would keep what it was cut from
	}
	st.set(key, kept, len(had))
}

// spare sees to room for one more: of a few keys the first that is no use any
// more goes, or else the last, which costs it a call. To look through all of a
// full stripe took 60 µs a denial of a new key.
func (st *stripe) spare(now time.Duration) {
	few := 8
	for key, entries := range st.mu.keys {
		if st.mu.count < perStripe { // mutant: denials-bounded
			return
		}
		if few--; few <= 0 || !slices.ContainsFunc(entries, func(e *entry) bool { return e.ends() > now }) {
			st.drop(key)
		}
	}
}

// sweep removes the denials that have ended, once in a while.
func (st *stripe) sweep(now time.Duration) {
	if now-st.mu.swept < swept {
		return
	}
	st.mu.swept = now
	for key, entries := range st.mu.keys {
		kept := slices.DeleteFunc(entries, func(e *entry) bool { return e.ends() <= now })
		st.set(key, kept, len(entries))
	}
}

func (st *stripe) drop(key string) { st.set(key, nil, len(st.mu.keys[key])) }

// set leaves kept of what a key had.
func (st *stripe) set(key string, kept []*entry, had int) {
	st.mu.count += len(kept) - had
	st.known.Store(int32(st.mu.count))
	if st.mu.keys == nil {
		st.mu.keys = map[string][]*entry{}
	}
	if len(kept) > 0 {
		st.mu.keys[key] = kept
	} else {
		delete(st.mu.keys, key)
	}
}
