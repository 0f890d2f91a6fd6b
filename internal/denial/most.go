package denial

import (
	"cmp"
	"slices"
)

// Key is a key that the cache denies.
type Key struct {
	Key     string
	Denials int64 // calls that were answered from memory, since the key was denied first
}

// most returns the keys whose denials have answered the most calls, at most n, by any
// limiter on the store. A key that the cache no longer has is not among them.
func (c *Cache) most(n int) []Key {
	found := map[string]int64{}
	for i := range c.sets {
		for j := range c.sets[i].ways {
			if e := c.sets[i].ways[j].Load(); e != nil && e.answered.Load() > 0 {
				found[e.group.Key] += e.answered.Load()
			}
		}
	}
	var all []Key
	for key, denials := range found {
		all = append(all, Key{key, denials})
	}
	slices.SortFunc(all, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Denials, a.Denials), cmp.Compare(a.Key, b.Key))
	})
	return slices.Clip(all[:min(n, len(all))])
}
