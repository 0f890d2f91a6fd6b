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
	sketch  [sketchSize]atomic.Uint64 // of a key: hash, slot of time, units
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

// seen notes a call of a key without a home, and makes one if it is the second within a
// length.
func (hs *homes) seen(s *Store, r *backend.Request, at time.Duration) *home {
	length := r.Policies[0].Borrow
	st, sum := hs.stripe(r.Key)
	slot := uint64(at/length) + 2 // no key has this bit pattern before its first call
	word := &hs.sketch[sum/stripeCount%sketchSize]
	mark := sum>>40<<40 | slot&(1<<40-1)
	was := word.Load()
	if was != mark && was != mark-1 { // mutant: two-calls-make-a-home
		word.Store(mark)
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
		h.own.last, h.own.rate = at, least
		if st.mu.homes == nil {
			st.mu.homes = map[homeKey]*home{}
		}
		st.mu.homes[k] = h
		h.start()
		hs.count.Add(1)
	}
	return h
}

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

// close gives back what all homes hold, several at once, and ends their timers.
func (hs *homes) close() {
	var wait sync.WaitGroup
	for _, h := range hs.all() {
		wait.Add(1)
		go func() {
			defer wait.Done()
			h.close()
		}()
	}
	wait.Wait()
}
