package batch

import (
	"context"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// Call is one of several requests that are sent at once.
type Call struct {
	Queue   *Queue // nil: the call has its answer
	Tag     string
	Slot    int
	Request *backend.Request

	call *call
}

// DoAll decides the calls in one round trip per server, in parallel, and writes
// their answers.
func DoAll(ctx context.Context, calls []Call, answers []layer.Answer) {
	done := ctx.Done()
	for i := range calls {
		if c := &calls[i]; c.Queue != nil {
			c.call = newCall(ctx, c.Tag, c.Slot, c.Request, c.Queue.budget)
			_, answers[i].Err = c.Queue.push(c.call, false)
		}
	}
	for i := range calls { // after all are pending, so that they leave together
		if q := calls[i].Queue; q != nil && q.leaves() {
			go q.run()
		}
	}
	for i := range calls {
		c, a := &calls[i], &answers[i]
		if c.Queue == nil {
			continue
		}
		if a.Err == nil {
			a.Err = c.call.wait(ctx, done)
			c.Queue.callers.Add(-1)
		}
		a.Err = c.call.decide(c.Request, &a.Decision, a.Err)
	}
}

// leaves is place for a caller without the lock.
func (q *Queue) leaves() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.place()
}
