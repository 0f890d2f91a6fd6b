package breaker

import "github.com/headgate-go/headgate/backend"

// Watchers returns the number of layers whose observers the circuits of a store call.
func Watchers(s backend.Store) int {
	c := of(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.watchers)
}
