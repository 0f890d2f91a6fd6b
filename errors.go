package headgate

import "github.com/headgate-go/headgate/backend"

// The errors; match with errors.Is.
var (
	ErrUnavailable     = backend.ErrUnavailable
	ErrPerhapsCounted  = backend.ErrPerhapsCounted
	ErrNeverAdmissible = backend.ErrNeverAdmissible
	ErrClosed          = backend.ErrClosed
	ErrServerTooOld    = backend.ErrServerTooOld
	ErrUnsupported     = backend.ErrUnsupported
	ErrNotHeld         = backend.ErrNotHeld
	ErrLeaseEnded      = backend.ErrLeaseEnded
)
