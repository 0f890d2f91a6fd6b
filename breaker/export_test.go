package breaker

import "github.com/headgate-go/headgate/backend"

// Watchers returns how many stations the circuits of a store would tell.
func Watchers(s backend.Store) int {
	c := of(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.watchers)
}
