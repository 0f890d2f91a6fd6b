// Package topkeys finds the keys that occur most among any number of keys, in bounded memory.
//
// It is the space-saving sketch of Metwally, Agrawal and El Abbadi, "Efficient Computation of
// Frequent and Top-k Elements in Data Streams", ICDT 2005. A key without a place takes that of the
// key with the least count, and goes on from that count. So the count of a key that has its place
// is too high by its Excess at most.
//
// The places lie in sets, and a key's hash chooses its set. So a key is found by two cache lines,
// without a lock. Two differences from the paper follow. The least count is that of the set. And a
// key that meets a full set takes a place at one of 32 occurrences. In a flood of many keys most
// never come again, and a key that occurs often comes soon.
package topkeys

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	sets = 128
	ways = 8 // the hashes of a set are one cache line, and the counts the next
	// Places is how many keys have a count.
	Places = sets * ways
	// Text is how many bytes of a key are kept.
	Text = 1024
	// Period is how long a period lasts at least.
	Period = 5 * time.Minute

	oneOf = 32                 // occurrences of keys that meet a full set, of which one takes a place
	named = 1                  // the bit of a stored hash that says that the key is kept
	mix   = 0x9e3779b97f4a7c15 // spreads a salt over the bits that choose
)

// Sketch counts keys. It holds what came in the current period and in the one before. A period
// ends with the first call of Top after five minutes. Make one with New. It is safe for
// concurrent use.
type Sketch struct {
	seed   maphash.Seed // with a public hash a client could choose whose places its keys take
	secret [2]uint64    // the seed for short keys
	table  atomic.Pointer[table]
	turned struct {
		sync.Mutex
		before *table
		began  time.Time // of the period; zero before the first Top
	}
}

// New returns a sketch. It takes memory with its first key.
func New() *Sketch {
	seed := maphash.MakeSeed()
	return &Sketch{seed: seed, secret: [2]uint64{maphash.Bytes(seed, []byte{0}), maphash.Bytes(seed, []byte{1})}}
}

// table has the places of a period.
type table struct {
	sets  [sets]set
	names [sets]names
}

// set has the places that some keys share. Counts are added without a lock: one that arrives
// while its place is given away is the next key's.
type set struct {
	hashes [ways]atomic.Uint64 // of the key, with named; 0: the place is free
	counts [ways]atomic.Int64
}

// names has the keys of a set. Its lock is held to give a place to another key, and to keep a key.
type names struct {
	mu struct {
		sync.Mutex
		excess [ways]int64
		keys   [ways]string
	}
}

// Key is a key with its count.
type Key struct {
	Key    string // its first bytes, if it is longer than Text
	Count  int64
	Excess int64 // how much the count may be too high
	Hash   uint64
}

// Add counts a key once. The salt is any number that differs from call to call, such as a time.
// Which of the keys without a place takes one follows from it.
func (s *Sketch) Add(key string, salt uint64) {
	t := s.table.Load()
	if t == nil {
		t = s.begin()
	}
	h := s.hash(key) | named
	at := h >> 32 % sets
	set := &t.sets[at]
	for i := range set.hashes {
		if stored := set.hashes[i].Load(); stored|named == h {
			set.counts[i].Add(1)
			//mutant:second-names-key
			if stored != h {
				t.name(at, i, h, key)
			}
			return
		}
	}
	//mutant:misses-by-chance
	if set.hashes[ways-1].Load() == 0 || (h^salt)*mix>>32%oneOf == 0 {
		t.place(at, h, key)
	}
}

// hash hashes a short key as wyhash does, in half of the time that maphash takes.
func (s *Sketch) hash(key string) uint64 {
	n := len(key)
	if n < 8 || n > 16 {
		return maphash.String(s.seed, key)
	}
	high, low := bits.Mul64(word(key)^s.secret[0], word(key[n-8:])^s.secret[1]^uint64(n))
	return high ^ low
}

// word returns the first 8 bytes of a key: the compiler makes one load of it.
func word(k string) uint64 {
	_ = k[7]
	return uint64(k[0]) | uint64(k[1])<<8 | uint64(k[2])<<16 | uint64(k[3])<<24 | uint64(k[4])<<32 | uint64(k[5])<<40 | uint64(k[6])<<48 | uint64(k[7])<<56
}

func (s *Sketch) begin() *table {
	s.table.CompareAndSwap(nil, new(table))
	return s.table.Load()
}

// place gives a key a free place, or that of the least count. While another key gets one, it has
// to come again.
func (t *table) place(at, h uint64, key string) {
	s, n := &t.sets[at], &t.names[at]
	if !n.mu.TryLock() {
		return
	}
	defer n.mu.Unlock()
	least := 0
	for i := range s.hashes {
		switch stored := s.hashes[i].Load(); {
		case stored == 0:
			s.counts[i].Add(1)
			t.keep(at, i, h, key)
			return
		case stored|named == h: // another call has just given it the place
			s.counts[i].Add(1)
			return
		}
		if s.counts[i].Load() < s.counts[least].Load() {
			least = i
		}
	}
	n.mu.keys[least] = ""
	s.hashes[least].Store(h &^ named) // it is named at its second occurrence: most keys have none
	n.mu.excess[least] = s.counts[least].Add(1) - 1
}

// name keeps the key of a place, if the place is still its own.
func (t *table) name(at uint64, i int, h uint64, key string) {
	n := &t.names[at]
	if !n.mu.TryLock() {
		return
	}
	defer n.mu.Unlock()
	if t.sets[at].hashes[i].Load() == h&^named {
		t.keep(at, i, h, key)
	}
}

// keep keeps a key's first bytes. They are cloned, or they would keep what they were cut from.
func (t *table) keep(at uint64, i int, h uint64, key string) {
	//mutant:key-bounded-in-bytes
	t.names[at].mu.keys[i] = strings.Clone(key[:min(len(key), Text)])
	t.sets[at].hashes[i].Store(h)
}

// Top returns the keys with the greatest counts, at most n. Keys of equal counts are in the order
// of their names.
func (s *Sketch) Top(n int, now time.Time) []Key {
	found := map[uint64]Key{}
	s.turned.Lock()
	t := s.table.Load()
	t.add(found)
	s.turned.before.add(found)
	switch {
	case s.turned.began.IsZero():
		s.turned.began = now
	//mutant:counts-of-past-leave
	case now.Sub(s.turned.began) >= Period:
		s.turned.began, s.turned.before = now, t
		s.table.Store(nil)
	}
	s.turned.Unlock()
	all := make([]Key, 0, len(found))
	for _, k := range found {
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key))
	})
	return slices.Clip(all[:min(n, len(all))])
}

// add adds the counts of the keys that are named.
func (t *table) add(found map[uint64]Key) {
	if t == nil {
		return
	}
	for at := range t.sets {
		s, n := &t.sets[at], &t.names[at]
		n.mu.Lock()
		for i := range s.hashes {
			if h := s.hashes[i].Load(); h&named != 0 {
				k := found[h]
				found[h] = Key{n.mu.keys[i], k.Count + s.counts[i].Load(), k.Excess + n.mu.excess[i], h}
			}
		}
		n.mu.Unlock()
	}
}
