package batch

import (
	"context"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/backend"
)

// Call is one of several requests that are sent at once.
type Call struct {
	Queue   *Queue // nil: the call has its answer
	Tag     string
	Slot    int
	Request *backend.Request
}

// DoAll decides the calls in one round trip per server, in parallel, and writes
// their answers.
func DoAll(ctx context.Context, requests []Call, answers []layer.Answer) {
	done := ctx.Done()
	sent := make([]*call, len(requests))
	for i := range requests {
		r := &requests[i]
		if r.Queue == nil {
			continue
		}
		sent[i] = newCall(ctx, r.Tag, r.Slot, r.Request, r.Queue.budget)
		_, answers[i].Err = r.Queue.push(sent[i], false)
	}
	for i := range requests { // after all are pending, so that they leave together
		if q := requests[i].Queue; q != nil && q.start() {
			go q.run()
		}
	}
	for i := range requests {
		r, a := &requests[i], &answers[i]
		if r.Queue == nil {
			continue
		}
		if a.Err == nil {
			a.Err = sent[i].Wait(ctx, done, r.Request.Op)
			r.Queue.callers.Add(-1)
		}
		a.Err = sent[i].answer(r.Request, &a.Decision, a.Err)
	}
}

// start is place for a caller without the lock.
func (q *Queue) start() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.place()
}
