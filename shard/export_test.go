package shard

import "github.com/headgate-go/headgate/backend"

// Choose does what a call does before it asks: finds what is known of its key
// and draws a sub-key.
func (s *Store) Choose(r *backend.Request) (sub string, part []backend.Policy) {
	m := s.known()
	e := m.find(r.Key, m.plan(r.Policies))
	c := call{s: s, m: m, r: *r, e: e}
	i := c.pick(false)
	return e.name(i), e.plan.parts[i]
}

// Names returns the names of a key's sub-keys.
func Names(key string, k int) []string {
	e := newEntry(key, &plan{policies: nil, parts: make([][]backend.Policy, k), steps: steps(k)})
	var names []string
	for i := range k {
		names = append(names, e.name(i))
	}
	return names
}
