package memory

import (
	"strings"
	"sync/atomic"
)

// hot remembers where the record of one key is, the one that is called on and
// on: a call for it spares the hash and the search, a fifth of a hit. Where no key
// stands out none is remembered. The nil hot remembers nothing.
type hot struct {
	place atomic.Pointer[place] // nil: none
	drawn atomic.Uint64         // the hash of the key that was drawn last
}

// place is where a record was while a hit owned it. It is there for as long as it
// can be owned there and its stripe has dropped none, so that nothing else has come
// to its cell; a record that moves leaves its first word behind, owned for good. A
// limiter that nobody calls any more keeps that table, some 200 KB of a million
// keys'.
type place struct {
	key     string // a copy: the caller's may be a small part of a large one
	m       *guarded
	tag     uint32
	w       []int64
	free    int64 // the record's first word while nobody owns it
	dropped int64 // records, by its stripe
}

// remembered is how many bits: of the hits elsewhere one in 1024 is drawn, and a
// key that is drawn twice in a row is remembered. Not each that is drawn: where many keys are called
// alike nearly every call would look at the place of another.
const remembered = 10

// of returns where the key's record was, or nil.
func (h *hot) of(key string) *place {
	if h != nil {
		if p := h.place.Load(); p != nil && p.key == key {
			return p
		}
	}
	return nil
}

// own owns the record, if it is there still and nobody's.
func (p *place) own() bool {
	if !tryHold(&p.w[tagWord], p.free) {
		return false
	}
	if p.m.dropped.Load() == p.dropped {
		return true
	}
	release(&p.w[tagWord])
	return false
}

// leave forgets a place that can't be owned any more.
func (h *hot) leave(p *place) {
	if p.m.dropped.Load() != p.dropped {
		h.place.CompareAndSwap(p, nil)
	}
}

// notice is told of a call that was drawn, and returns the place to be
// remembered once that owns the record, or nil. It is made before, since nobody
// who owns waits for memory; a record that the stripe drops meanwhile makes a
// place that is of no use.
func (h *hot) notice(hash uint64, key string, m *guarded, tag uint32, free int64) *place {
	if h == nil || h.drawn.Swap(hash) != hash {
		return nil
	}
	return &place{strings.Clone(key), m, tag, nil, free, m.dropped.Load()}
}
