package without_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"testing"

	"github.com/headgate-go/headgate/internal/without"
	"github.com/stretchr/testify/require"
)

// TestMatch: one match is gone, and the others and the types of the chain stay.
func TestMatch(t *testing.T) {
	cause := &fs.PathError{Op: "read", Path: "x", Err: io.EOF}
	err := without.Match(fmt.Errorf("%w: %w", context.DeadlineExceeded, cause), context.DeadlineExceeded)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, io.EOF)
	var path *fs.PathError
	require.True(t, errors.As(err, &path))
	require.EqualError(t, err, "read x: EOF")
	require.NotErrorIs(t, fmt.Errorf("again: %w", err), context.DeadlineExceeded)
}
