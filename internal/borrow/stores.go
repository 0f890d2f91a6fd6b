package borrow

import (
	"sync"

	"github.com/headgate-go/headgate/internal/layer"
)

// stores are the wrappers over one store that have homes. A Reset by any limiter ends what
// all of them hold of the key.
type stores struct {
	mu struct {
		sync.Mutex
		all map[*Store]struct{}
	}
}

// storesOn returns those that limiters on the store share.
func storesOn(store *layer.Shared) *stores {
	type key struct{}
	return store.Value(key{}, func() any {
		s := new(stores)
		s.mu.all = map[*Store]struct{}{}
		store.Subscribe(s.changed)
		return s
	}).(*stores)
}

// made counts a home that a wrapper has made, before its first Borrow.
func (ss *stores) made(s *Store) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if s.homes.count.Add(1) == 1 {
		ss.mu.all[s] = struct{}{}
	}
}

// removed counts a home that a wrapper has removed. One without homes is not kept.
func (ss *stores) removed(s *Store) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if s.homes.count.Add(-1) == 0 {
		delete(ss.mu.all, s)
	}
}

// changed ends what this process holds of a key whose counts were removed, and gives all back
// before the store is closed.
func (ss *stores) changed(n layer.Notice) {
	switch n.Change {
	case layer.Removed:
		for _, s := range ss.list() {
			s.homes.each(n.Group.Key, (*home).forget)
		}
	//mutant:close-gives-back
	case layer.Closing:
		all := ss.list()
		//mutant:homes-given-back-at-once
		layer.Parallel(len(all), func(i int) { all[i].giveBack() })
	}
}

func (ss *stores) list() (all []*Store) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for s := range ss.mu.all {
		all = append(all, s)
	}
	return all
}
