package flight

import (
	"testing"

	"github.com/headgate-go/headgate/internal/script"
)

// Out is how many flights may be out at once.
const Out = out

// SetMost makes n calls fill a queue.
func SetMost(t *testing.T, n int) {
	t.Helper()
	old := most
	most = n
	t.Cleanup(func() { most = old })
}

// Prompt reports whether a call that comes now would make its own trip.
func (q *Queue) Prompt() bool { return q.server.Prompt(script.Now()) }

// Waiting returns how many calls wait.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.calls
}

// Limit is how many flights may be out now.
func (q *Queue) Limit() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.limit()
}

// Free makes room for one more flight.
func (q *Queue) Free() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.out++
}
