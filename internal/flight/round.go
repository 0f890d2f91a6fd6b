package flight

import (
	"context"
	"slices"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/script"
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
	takes := make([]*script.Take, len(calls))
	var open []*batch
	for i := range calls {
		c := &calls[i]
		if c.Queue == nil {
			continue
		}
		takes[i] = take(c.Request)
		if slices.ContainsFunc(open, func(b *batch) bool { return b.q == c.Queue && c.join(b, takes[i]) }) {
			continue
		}
		var b *batch
		if b, answers[i].Err = c.Queue.board(takes[i], c.Tag, c.Slot, c.Request, true); b != nil {
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
				a.Err = c.Queue.wait(ctx, takes[i], c.Request.Op)
			}
			a.Decision, a.Err = answer(takes[i], c.Request, a.Err)
		}
	}
}

func (c *Call) join(b *batch, t *script.Take) bool {
	return b.join(t, c.Tag, c.Slot, c.Request, b.first)
}
