package layer

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/headgate-go/headgate/backend"
)

// Batcher is implemented by stores that decide several requests in one round
// trip to each of their nodes, in parallel.
type Batcher interface {
	// DoAll decides each of the requests as Do would, and writes its answer
	// under the same index, which is zero before. The requests are independent: an
	// error of one says nothing of the next.
	DoAll(ctx context.Context, rs []backend.Request, answers []backend.Answer)
}

// concurrent is the maximum number of requests in flight to a store that is no
// Batcher. With it K = 16 takes one round trip, and K = 1,024 does not take a thousand
// connections.
const concurrent = 16

// DoAll decides all of the requests. It does so as one batch where the store is a Batcher,
// one after the other where it is in this process. Else it sends up to 16 at once.
func DoAll(ctx context.Context, s backend.Store, rs []backend.Request, answers []backend.Answer) {
	if b, ok := s.(Batcher); ok {
		b.DoAll(ctx, rs, answers)
		return
	}
	var next atomic.Int64
	callers := min(len(rs), concurrent)
	//mutant:local-asked-in-turn
	if store := Of(s); store != nil && store.Local {
		callers = 1
	}
	Parallel(callers, func(int) {
		for i := next.Add(1) - 1; i < int64(len(rs)); i = next.Add(1) - 1 {
			answers[i].Err = s.Do(ctx, &rs[i], &answers[i].Decision)
		}
	})
}

// Parallel calls f for 0 to n−1, the last one on the caller's goroutine. It returns when
// all calls have, also if the last one panics: the others write what the caller may read.
func Parallel(n int, f func(i int)) {
	var others sync.WaitGroup
	defer others.Wait()
	//mutant:asked-side-by-side
	for i := range n - 1 {
		others.Add(1)
		go func() {
			defer others.Done()
			f(i)
		}()
	}
	if n > 0 {
		f(n - 1)
	}
}
