//go:build race || invariants

package memory

import (
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// Words returns a copy of what the store keeps of a group's key for its i-th policy, nil if it
// keeps nothing. Beside that are the ends of loans, when they are due, and their units. The
// simulator's servers answer with it, as the script answers with a stored value. No other build
// than that of tests has it.
func (s *Store) Words(g *backend.Group, i int) (words []int64, lent [][3]int64) {
	var c call
	looks := make([]look, len(g.Policies))
	if s.begin(&c, backend.Peek, g, looks) != nil {
		return nil, nil
	}
	c.stripe.mu.Lock()
	defer c.stripe.mu.Unlock()
	l := &looks[i]
	c.now = s.clock.underLock(s.clock.beforeLock(), &c.stripe.mu.latest)
	if c.find(looks); l.record == nil {
		return nil, nil
	}
	if c.view(l, &g.Policies[i].Algorithm); l.lent != nil {
		for _, e := range l.lent.Ends {
			lent = append(lent, [3]int64{e.End, e.Due, e.Units})
		}
	}
	return slices.Clone(l.words), lent
}
