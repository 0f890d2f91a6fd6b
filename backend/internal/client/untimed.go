package client

import (
	"context"
	"errors"
)

// Untimed returns an error of a command that had a time of its own. It does not match
// context.DeadlineExceeded, as a dial that took too long does: that is a caller's deadline.
func Untimed(err error) error {
	//mutant:dial-is-no-deadline
	if errors.Is(err, context.DeadlineExceeded) {
		return untimed{err}
	}
	return err
}

// untimed is an error without the match of a deadline.
type untimed struct{ error }

// Is matches what the error matched.
func (u untimed) Is(target error) bool {
	return target != context.DeadlineExceeded && errors.Is(u.error, target)
}

// As finds what the error has.
func (u untimed) As(target any) bool { return errors.As(u.error, target) }
