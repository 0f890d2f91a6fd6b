package main

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestTry sets the store's clock: for code that is asked and does not wait.
func TestTry(t *testing.T) {
	now, sent := time.Unix(1_745_000_000, 0), 0
	store := memory.New(&memory.Options{Now: func() time.Time { return now }})
	m, err := newMailer(store, func(string, string) { sent++ })
	require.NoError(t, err)
	for range 2 {
		wait, err := m.try(t.Context(), "ann@example.com", "hello")
		require.NoError(t, err)
		require.Zero(t, wait)
	}
	now = now.Add(400 * time.Millisecond)
	wait, err := m.try(t.Context(), "ann@example.com", "hello")
	require.NoError(t, err)
	require.Equal(t, 600*time.Millisecond, wait, "exact: both leave the window then")
	require.Equal(t, 2, sent)

	now = now.Add(wait)
	wait, err = m.try(t.Context(), "ann@example.com", "hello")
	require.NoError(t, err)
	require.Zero(t, wait)
	require.Equal(t, 3, sent)
}
