package sim

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// longest is what no count outlasts if it is not used again: a day of a Calendar, and what
// clocks have stepped.
const longest = 48 * time.Hour

// countsExpire looks when each state's counts end by the product's own rule, from its last
// decision on. No rule before it may have looked at a later instant. A server keeps a key
// until then, and must not keep it for ever. Stored bytes are not simulated: that each key in Redis
// has an expiry is checked on real servers.
func (w *World) countsExpire() error {
	for _, n := range w.primaries() {
		for _, s := range n.keeps.byTag {
			if err := s.expire(); err != nil {
				return fmt.Errorf("%s: %w", n.addr, err)
			}
		}
	}
	return nil
}

// expire looks at each count of a state now, and at the instant at which it ends.
func (s *state) expire() error {
	type named struct{ tag, policy string }
	s.catchUp()
	seen, now := map[named]bool{}, s.now
	for _, p := range s.log {
		for _, g := range p.all {
			for _, policy := range g.policies {
				if of := (named{g.tag, identity(policy)}); !seen[of] {
					seen[of] = true
					if err := s.ends(g.tag, policy, now); err != nil {
						return fmt.Errorf("%s of %s: %w", of.policy, of.tag, err)
					}
				}
			}
		}
	}
	return nil
}

// ends looks at one count.
func (s *state) ends(tag string, p backend.Policy, now int64) error {
	left := s.peek(tag, p, now).ResetAfter
	if left > longest {
		return fmt.Errorf("a count stays for %v", left)
	}
	if at := s.peek(tag, p, now+left.Microseconds()); at.Used > 0 {
		return fmt.Errorf("%d units count %v later, when the count has ended", at.Used, left)
	}
	return nil
}
