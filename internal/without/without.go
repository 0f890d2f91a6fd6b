// Package without makes errors that lack one of their matches, or a password of their text.
package without

import (
	"errors"
	"strings"
)

// Match returns an error that matches all that err matches, but for target. Its text is err's,
// without target's text where it begins with that.
func Match(err, target error) error { return &hidden{err, target} }

type hidden struct{ err, target error }

func (h *hidden) Error() string {
	return strings.TrimPrefix(h.err.Error(), h.target.Error()+": ")
}

// Is matches what the error matched, but for the target.
func (h *hidden) Is(target error) bool { return target != h.target && errors.Is(h.err, target) }

// As finds what the error has.
func (h *hidden) As(target any) bool { return errors.As(h.err, target) }
