package headgate

import (
	"context"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// abandoned cancels reservations that the store may have or not.
// It is shared by a limiter and those made of it.
type abandoned struct{ running chan struct{} }

// maxAbandoned is the maximum number of reservations that are being cancelled. Beyond
// it an estimate stays charged until it has aged.
const maxAbandoned = 4096

func newAbandoned() *abandoned { return &abandoned{make(chan struct{}, maxAbandoned)} }

// start calls a function that cancels, in the background. It reports whether there was
// room for one more.
func (a *abandoned) start(cancel func()) bool {
	select {
	case a.running <- struct{}{}:
		go func() {
			defer func() { <-a.running }()
			cancel()
		}()
		return true
	default:
		return false
	}
}

// cancelOrWait cancels in the background, or where too many are being cancelled before
// it returns.
func (a *abandoned) cancelOrWait(ctx context.Context, r *Reservation) {
	if !a.start(r.abandon) { // mutant: all-cancels-beyond-background
		_ = r.Cancel(context.WithoutCancel(ctx))
	}
}

// abandon cancels until the lease ends.
func (r *Reservation) abandon() {
	ends := time.Now().Add(r.length)
	for pause := 20 * time.Millisecond; time.Now().Before(ends); pause = min(2*pause, time.Second) {
		if err := r.Cancel(context.Background()); !backend.Undecided(err) {
			return
		}
		time.Sleep(pause)
	}
}
