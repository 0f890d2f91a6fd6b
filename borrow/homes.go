package borrow

import (
	"crypto/rand"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// maxHomes bounds the keys that a process has units of. Others are asked for as ever.
const maxHomes = 1 << 16

const (
	stripeCount = 64
	sketchSize  = 1 << 14
)

// homes are the keys that are called often. Keys that are called seldom cost one word of
// a table, which holds the last ones that fell there.
type homes struct {
	seed    maphash.Seed
	stripes [stripeCount]stripe
	sketch  [sketchSize]atomic.Uint64 // tallies
	count   atomic.Int64
}

type stripe struct {
	mu struct {
		sync.RWMutex
		homes map[homeKey]*home
	}
	_ [64]byte // the next stripe's lock
}

// homeKey is a key and a list of policies, by the place where the list stands.
type homeKey struct {
	key  string
	list *backend.Policy
}

func newHomes() *homes { return &homes{seed: maphash.MakeSeed()} }

func (hs *homes) stripe(key string) (*stripe, uint64) {
	sum := maphash.String(hs.seed, key)
	return &hs.stripes[sum%stripeCount], sum
}

// find returns the home of the request's key, nil if it has none.
func (hs *homes) find(r *backend.Request) *home {
	if hs.count.Load() == 0 {
		return nil
	}
	st, _ := hs.stripe(r.Key)
	st.mu.RLock()
	h := st.mu.homes[homeKey{r.Key, &r.Policies[0]}]
	st.mu.RUnlock()
	return h
}

// seen notes a call of a key without a home, and makes one if the key is called often
// enough. That is twice in a length and twice in the next, or so often that this is sure.
func (hs *homes) seen(s *Store, r *backend.Request, n int64, at time.Duration) *home {
	length := r.Policies[0].Borrow
	st, sum := hs.stripe(r.Key)
	word := &hs.sketch[sum/stripeCount%sketchSize]
	t := tally(word.Load()).add(sum, uint64(at/length))
	word.Store(uint64(t))
	before, calls := t.calls()
	//mutant:often-makes-a-home
	if calls < sure && min(before, calls) < often {
		return nil
	}
	if hs.count.Load() >= maxHomes {
		return nil
	}
	k := homeKey{r.Key, &r.Policies[0]}
	st.mu.Lock()
	defer st.mu.Unlock()
	h := st.mu.homes[k]
	if h == nil {
		h = &home{key: k, list: r.Policies, length: length, store: s}
		_, _ = rand.Read(h.id[:])
		h.own.last, h.own.rate = at, float64(n*max(before, calls))
		if st.mu.homes == nil {
			st.mu.homes = map[homeKey]*home{}
		}
		st.mu.homes[k] = h
		h.wake(length)
		hs.count.Add(1)
	}
	return h
}

// often is how many calls in each of two lengths make a home.
const often = 2

// sure is how many calls in a length make a home at once.
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
	st, _ := hs.stripe(h.key.key)
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.mu.homes[h.key] == h {
		delete(st.mu.homes, h.key)
		hs.count.Add(-1)
	}
}

// each calls f for the homes of a key.
func (hs *homes) each(key string, f func(*home)) {
	st, _ := hs.stripe(key)
	st.mu.RLock()
	defer st.mu.RUnlock()
	for k, h := range st.mu.homes {
		if k.key == key {
			f(h)
		}
	}
}

// all returns all homes.
func (hs *homes) all() (all []*home) {
	for i := range hs.stripes {
		st := &hs.stripes[i]
		st.mu.RLock()
		for _, h := range st.mu.homes {
			all = append(all, h)
		}
		st.mu.RUnlock()
	}
	return all
}
