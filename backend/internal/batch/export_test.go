package batch

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Many is how many batches may be in flight while they carry few calls.
const Many = many

// NoRouter leads to no other server, and makes a command of each group.
type NoRouter struct{ *Server }

// Next is the server itself.
func (r NoRouter) Next(context.Context, string, *Server, error) (*Server, bool, error) {
	return r.Server, false, nil
}

// Failed has nothing to do where there is no other server.
func (NoRouter) Failed() {}

// SetMaxCallers makes n calls fill a queue.
func SetMaxCallers(t *testing.T, n int64) {
	t.Helper()
	old := maxCallers
	maxCallers = n
	t.Cleanup(func() { maxCallers = old })
}

// Pending returns how many calls wait for a batch.
func (q *Queue) Pending() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.pending)
}

// Ask asks with a decision of its own.
func (q *Queue) Ask(ctx context.Context, tag string, _ int, r *backend.Request) (backend.Decision, error) {
	var d backend.Decision
	err := q.Do(ctx, tag, 0, r, &d)
	return d, err
}

// TooFar is tooFar.
func (s *Server) TooFar(left time.Duration) error { return s.tooFar(left) }

// Ready is ready.
func (s *Server) Ready(ctx context.Context) error { return s.ready(ctx) }
