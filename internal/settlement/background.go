package settlement

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Background settles leases that the store may have or not, each on a goroutine. A
// limiter and those made of it share one.
type Background chan struct{} // as many as cancel now

// maxCancelled is the maximum number of leases that are being cancelled. Beyond it an
// estimate stays charged until it has aged.
const maxCancelled = 4096

// leastRepeated is how long a cancel is repeated at least. A server that stalls executes
// afterwards the Reserve that it was sent before. A short lease has ended by then by this
// process's clock, and only begins by the server's.
const leastRepeated = time.Minute

// NewBackground returns a Background that cancels none.
func NewBackground() Background { return make(Background, maxCancelled) }

// Cancel starts a goroutine that repeats cancel until a store has decided it or is closed,
// for the lease's length and at least a minute. It reports whether there was room for one more.
func (b Background) Cancel(length time.Duration, cancel func(context.Context) error) bool {
	select {
	case b <- struct{}{}:
		go func() {
			defer func() { <-b }()
			repeat(length, cancel)
		}()
		return true
	default:
		return false
	}
}

func repeat(length time.Duration, cancel func(context.Context) error) {
	//mutant:cancelled-after-stall
	ends := time.Now().Add(max(length, leastRepeated))
	for pause := 20 * time.Millisecond; time.Now().Before(ends); pause = min(2*pause, time.Second) {
		//mutant:closed-ends-cancel
		if err := cancel(context.Background()); !backend.Undecided(err) || errors.Is(err, backend.ErrClosed) {
			return
		}
		time.Sleep(pause)
	}
}
