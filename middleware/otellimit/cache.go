package otellimit

import (
	"maps"
	"sync"
	"sync/atomic"
)

// cache is a map that is read without a lock and copied for each new entry, of
// which there are few.
type cache[K comparable, V any] struct {
	entries atomic.Pointer[map[K]V]
	mu      sync.Mutex // held to add an entry
}

// get returns the entry of k.
func (c *cache[K, V]) get(k K) (v V, ok bool) {
	if entries := c.entries.Load(); entries != nil {
		v, ok = (*entries)[k]
	}
	return v, ok
}

// of returns the entry of k, and makes it where there is none. It reports false
// where there are most others.
func (c *cache[K, V]) of(k K, most int, create func() V) (v V, ok bool) {
	if v, ok = c.get(k); ok {
		return v, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok = c.get(k); ok || len(c.all()) >= most {
		return v, ok
	}
	entries := maps.Clone(c.all())
	if entries == nil {
		entries = map[K]V{}
	}
	v = create()
	entries[k] = v
	c.entries.Store(&entries)
	return v, true
}

// all returns the entries, which are not written any more.
func (c *cache[K, V]) all() map[K]V {
	if entries := c.entries.Load(); entries != nil {
		return *entries
	}
	return nil
}
