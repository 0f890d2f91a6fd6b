package flight

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/script"
)

// Out is how many flights may be out at once, and Afar how many where the server
// is far away.
const (
	Out  = out
	Afar = afar
)

// SetMost makes n calls fill a queue.
func SetMost(t *testing.T, n int64) {
	t.Helper()
	old := most
	most = n
	t.Cleanup(func() { most = old })
}

// Prompt reports whether a call that comes now would make its own trip.
func (q *Queue) Prompt() bool { return q.server.Prompt(script.Now()) }

// Waiting returns how many calls wait.
func (q *Queue) Waiting() int { return int(q.inbox.waits.Load()) }

// Gathered returns how many groups wait.
func (q *Queue) Gathered() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.seatAll()
	return q.gathered()
}

// Limit is how many flights may be out now.
func (q *Queue) Limit() int { return int(q.limit.Load()) }

// Share is how many groups a flight may carry now.
func (q *Queue) Share() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.share
}

// Keys is how many groups a flight may carry at most, and Few how many always.
const (
	Keys = keys
	Few  = few
)

// Free makes room for one more flight.
func (q *Queue) Free() { q.limit.Add(1) }

// Ask asks with a decision of its own.
func (q *Queue) Ask(ctx context.Context, tag string, slot int, r *backend.Request) (backend.Decision, error) {
	var d backend.Decision
	err := q.Do(ctx, tag, slot, r, &d)
	return d, err
}

// Note notes a round trip, and reports whether what leaves next is full.
func (q *Queue) Note(calls, groups int, took time.Duration) bool {
	return q.NoteAt(script.Now(), calls, groups, took)
}

// NoteAt notes a round trip that ended then.
func (q *Queue) NoteAt(now time.Duration, calls, groups int, took time.Duration) bool {
	return q.note(now, calls, groups, took)
}

// While is how long the shortest round trip counts as such.
const While = while

// Late flies a batch that has waited until its budget was spent.
func (q *Queue) Late(calls int) {
	q.out.Add(1)
	b := q.batch(script.Now() - q.budget)
	b.calls = calls
	b.fly()
}

// Hurries reports whether flights leave without a turn.
func (q *Queue) Hurries() bool { return q.hurry.Load() > 0 }

// Stall is how long a turn of the run queue takes that is long.
const Stall = longTurn + 1

// Turned notes a turn of the run queue and returns for how long flights leave
// without one from its end on.
func (q *Queue) Turned(begin, end time.Duration) time.Duration {
	until := q.hurry.Load()
	if until > int64(begin) {
		until = -1 // another turn that began with this one has ended before it
	}
	q.turned(until, begin, end)
	return max(time.Duration(q.hurry.Load())-end, 0)
}
