package backend_test

import (
	"errors"
	"io"
	"testing"

	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// What was counted in part is not "not counted": a caller would repeat it.
func TestPerhapsCountedIsNotUnavailable(t *testing.T) {
	cause := backend.Wrap(backend.ErrUnavailable, &backend.CorruptError{Key: "k"})
	err := backend.Wrap(backend.ErrPerhapsCounted, backend.Wrap(cause, io.EOF))
	require.ErrorIs(t, err, backend.ErrPerhapsCounted)
	require.NotErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorIs(t, err, io.EOF)
	require.True(t, errors.As(err, new(*backend.CorruptError)))
	require.NotContains(t, err.Error(), "not counted")
	require.ErrorIs(t, backend.Wrap(backend.ErrUnavailable, io.EOF), backend.ErrUnavailable)
}
