package flight

import (
	"context"
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// Call is one of several requests that go out at once.
type Call struct {
	Queue   *Queue // nil: it has its answer
	Tag     string
	Slot    int
	Request *backend.Request
}

// DoAll decides the calls in a round trip to each of their servers, side by
// side, and writes their answers.
func DoAll(ctx context.Context, calls []Call, answers []backend.Answer) {
	done := ctx.Done()
	riders := make([]*rider, len(calls))
	var open []*batch
	for i := range calls {
		c := &calls[i]
		if c.Queue == nil {
			continue
		}
		r := enter(c.Tag, c.Slot, c.Request)
		r.Busy = true // it may be answered while a slower server's is waited for
		if riders[i] = r; slices.ContainsFunc(open, func(b *batch) bool { return b.q == c.Queue && b.join(r, keys) }) {
			continue
		}
		var b *batch
		if b, answers[i].Err = c.Queue.board(r, true); b != nil {
			open = append(open, b)
		}
	}
	for _, b := range open {
		go b.run()
	}
	for i := range calls {
		if c := &calls[i]; c.Queue != nil {
			a := &answers[i]
			if a.Err == nil {
				a.Err = riders[i].Wait(ctx, done, c.Request.Op)
			}
			a.Err = riders[i].answer(c.Request, &a.Decision, a.Err)
		}
	}
}
