package headgate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// The errors; match with errors.Is.
var (
	ErrUnavailable     = backend.ErrUnavailable
	ErrPerhapsCounted  = backend.ErrPerhapsCounted
	ErrNeverAdmissible = backend.ErrNeverAdmissible // a cost above what a policy can ever grant; httplimit answers it with 403
	ErrClosed          = backend.ErrClosed
	ErrUnsupported     = backend.ErrUnsupported
	ErrNotHeld         = backend.ErrNotHeld
	ErrLeaseEnded      = backend.ErrLeaseEnded
)

// ErrBlocked is a key that gets nothing, such as a tenant that a policy file blocks. No
// limiter returns it. Middleware answers it with 403 or PERMISSION_DENIED.
var ErrBlocked = errors.New("headgate: blocked; call not counted")

// DeadlineError is the error of Wait, WaitReserve and WaitAll for a call that can't pass
// before the deadline of its context. Nothing was counted. It matches
// context.DeadlineExceeded, so look for it first. Limiter.Wait has which calls get it.
type DeadlineError struct {
	RetryAfter time.Duration // until the call passes, at the earliest
}

// Error says when the call would pass.
func (e *DeadlineError) Error() string {
	return fmt.Sprintf("headgate: the call passes in %v at the earliest, after the context's deadline; call not counted", e.RetryAfter)
}

// Is makes the error match context.DeadlineExceeded.
func (e *DeadlineError) Is(target error) bool { return target == context.DeadlineExceeded }
