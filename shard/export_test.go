package shard

import "github.com/headgate-go/headgate/backend"

// Choose does what a call does before it asks: finds what is known of its key
// and draws a sub-key.
func (s *Store) Choose(r *backend.Request) (sub string, part []backend.Policy) {
	m := s.known()
	e := m.find(r.Key, m.plan(r.Policies))
	c := call{s: s, m: m, r: r, e: e}
	i := c.pick(false)
	return e.name(i), e.plan.part(i)
}

// Names returns the names of a key's sub-keys.
func Names(key string, k int) []string {
	e := newEntry(key, newPlan([]backend.Policy{{Shards: k}}))
	var names []string
	for i := range k {
		names = append(names, e.name(i))
	}
	return names
}

// Cells returns how many cells the entries on the store have, as counted and as
// they lie there.
func (s *Store) Cells() (counted, there int64) {
	m := s.known()
	for i := range m.sets {
		for j := range m.sets[i] {
			there += m.sets[i][j].Load().cells()
		}
	}
	return m.cells.Load(), there
}

const CellsMost = cellsMost

// Left is what the last call has left for the next.
func Left() any { return *calls.Get().(*call) }
