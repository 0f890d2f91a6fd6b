package backend

import (
	"context"
	"sync"
	"sync/atomic"
)

// abreast is how many requests a store without rounds is asked at once: K = 16
// takes one round trip, and K = 1,024 does not take a thousand connections.
const abreast = 16

// Ask asks the store with a decision of its own: for those who ask seldom, as
// it allocates.
func Ask(ctx context.Context, s Store, r Request) (Decision, error) {
	var d Decision
	err := s.Do(ctx, &r, &d)
	return d, err
}

// DoAll asks the store for all of the requests, in one round where it has
// Rounds. Another is asked for up to 16 at once, so that the sum of a key over
// 64 takes four trips and not 64. One in this process (Sharing) is asked in turn: it answers sooner than
// another goroutine begins.
func DoAll(ctx context.Context, s Store, rs []Request, answers []Answer) {
	if many, ok := s.(Rounds); ok {
		many.DoAll(ctx, rs, answers)
		return
	}
	var next atomic.Int64
	ask := func() {
		for i := next.Add(1) - 1; i < int64(len(rs)); i = next.Add(1) - 1 {
			answers[i].Err = s.Do(ctx, &rs[i], &answers[i].Decision)
		}
	}
	var others sync.WaitGroup
	if _, ok := s.(Sharing); !ok {
		for range min(len(rs), abreast) - 1 {
			others.Add(1)
			go func() {
				defer others.Done()
				ask()
			}()
		}
	}
	ask()
	others.Wait()
}
