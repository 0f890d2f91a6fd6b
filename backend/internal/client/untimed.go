package client

import (
	"context"
	"errors"

	"github.com/headgate-go/headgate/internal/without"
)

// Untimed returns an error of a command that had a time of its own. It does not match
// context.DeadlineExceeded, as a dial that took too long does: that is a caller's deadline.
func Untimed(err error) error {
	//mutant:dial-is-no-deadline
	if errors.Is(err, context.DeadlineExceeded) {
		return without.Match(err, context.DeadlineExceeded)
	}
	return err
}
