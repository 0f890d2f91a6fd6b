package borrow

import (
	"crypto/rand"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// maxHomes bounds the keys that a process has units of. Others are asked for as ever.
const maxHomes = 1 << 16

// maxLists bounds the homes of one key, which are of different lists. A call looks at each.
const maxLists = 8

const (
	stripeCount = 64
	sketchSize  = 1 << 14
)

// homes are the keys that are called often. Keys that are called seldom cost one word of
// a table, which holds the last ones that fell there.
type homes struct {
	seed    maphash.Seed
	stripes [stripeCount]stripe
	sketch  func() *[sketchSize]atomic.Uint64 // tallies; made for the first key that may be lent
	count   atomic.Int64
}

type stripe struct {
	mu struct {
		sync.RWMutex
		homes map[string]*home // of each key the first: home.next is that of another list
	}
	_ [64]byte // the next stripe's lock
}

func newHomes() *homes {
	return &homes{seed: maphash.MakeSeed(), sketch: sync.OnceValue(func() *[sketchSize]atomic.Uint64 { return new([sketchSize]atomic.Uint64) })}
}

func (hs *homes) stripe(key string) (*stripe, uint64) {
	sum := maphash.String(hs.seed, key)
	return &hs.stripes[sum%stripeCount], sum
}

// find returns the home of the group's key, nil if it has none.
func (hs *homes) find(g *backend.Group) *home {
	if hs.count.Load() == 0 {
		return nil
	}
	st, _ := hs.stripe(g.Key)
	st.mu.RLock()
	h, _ := st.of(g)
	st.mu.RUnlock()
	return h
}

// of returns the home of the group's key and list, or nil. others is how many homes of the
// key come before it. Its caller has the lock.
func (st *stripe) of(g *backend.Group) (h *home, others int) {
	for h = st.mu.homes[g.Key]; h != nil && !h.serves(g); h = h.next {
		others++
	}
	return h, others
}

// serves reports whether calls by a list are answered from the home: the list decides as the
// home's own does, and borrows for as long. What its policies do on failure does not matter.
func (h *home) serves(g *backend.Group) bool {
	//mutant:home-of-one-length
	return layer.SameKey(&h.of, g) && layer.Alike(h.of.Policies, g.Policies) && h.term == g.Borrow
}

// seen notes a call of a key without a home, and makes one if the key is called often
// enough. That is twice in a term and twice in the next, or so often that this is sure.
func (hs *homes) seen(s *Store, g *backend.Group, n int64, at time.Duration) *home {
	term := g.Borrow
	st, sum := hs.stripe(g.Key)
	word := &hs.sketch()[sum/stripeCount%sketchSize]
	t := tally(word.Load()).add(sum, uint64(at/term))
	word.Store(uint64(t))
	before, calls := t.calls()
	//mutant:often-makes-a-home
	if calls < sure && min(before, calls) < often {
		return nil
	}
	if hs.count.Load() >= maxHomes {
		return nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	h, others := st.of(g)
	//mutant:few-homes-of-a-key
	if h == nil && others < maxLists {
		h = &home{of: backend.Group{Key: g.Key, Policies: g.Policies, Shards: g.Shards, Borrow: term}, next: st.mu.homes[g.Key], term: term, store: s}
		_, _ = rand.Read(h.id[:])
		h.own.last, h.own.rate = at, float64(n*max(before, calls))
		if st.mu.homes == nil {
			st.mu.homes = map[string]*home{}
		}
		st.mu.homes[h.of.Key] = h
		h.wake(term)
		s.stores.made(s)
	}
	return h
}

// often is how many calls in each of two terms make a home.
const often = 2

// sure is how many calls in a term make a home at once.
const sure = 8

// tally is what is remembered of a key without a home. It has 24 bits of the key's hash and
// 24 of the slot of time. 8 bits are the calls in the slot before, 8 those in this one.
type tally uint64

// add counts a call of the key in a slot.
func (t tally) add(sum, slot uint64) tally {
	const counted = 1<<16 - 1
	mark := tally(sum>>40<<40 | (slot+2)&(1<<24-1)<<16) // not 0, which is the mark of none
	switch {
	case t&^counted == mark && t&0xff < 0xff:
		return t + 1
	case t&^counted == mark:
		return t
	case t&^counted == mark-1<<16:
		return mark | t&0xff<<8 | 1
	}
	return mark | 1
}

// calls returns the calls in the slot before, and in this one.
func (t tally) calls() (before, now int64) { return int64(t >> 8 & 0xff), int64(t & 0xff) }

// remove removes a home that holds nothing.
func (hs *homes) remove(h *home) {
	st, _ := hs.stripe(h.of.Key)
	st.mu.Lock()
	defer st.mu.Unlock()
	before := (*home)(nil)
	for o := st.mu.homes[h.of.Key]; o != nil; before, o = o, o.next {
		switch {
		case o != h:
			continue
		case before != nil:
			before.next = h.next
		case h.next != nil:
			st.mu.homes[h.of.Key] = h.next
		default:
			delete(st.mu.homes, h.of.Key)
		}
		h.store.stores.removed(h.store)
		return
	}
}

// each calls f for the homes of a key.
func (hs *homes) each(key string, f func(*home)) {
	st, _ := hs.stripe(key)
	st.mu.RLock()
	defer st.mu.RUnlock()
	for h := st.mu.homes[key]; h != nil; h = h.next {
		f(h)
	}
}

// all returns all homes.
func (hs *homes) all() (all []*home) {
	for i := range hs.stripes {
		st := &hs.stripes[i]
		st.mu.RLock()
		for _, h := range st.mu.homes {
			for ; h != nil; h = h.next {
				all = append(all, h)
			}
		}
		st.mu.RUnlock()
	}
	return all
}
