//go:build go1.25

package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestMail runs in a bubble of fake time: for code that waits. The store is made
// in the bubble, so its clock is the bubble's.
func TestMail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Duration
		begin := time.Now()
		m, err := newMailer(memory.New(nil), func(string, string) { sent = append(sent, time.Since(begin)) })
		require.NoError(t, err)
		for range 5 {
			require.NoError(t, m.mail(t.Context(), "ann@example.com", "hello"))
		}
		require.Equal(t, []time.Duration{0, 0, time.Second, time.Second, 2 * time.Second}, sent)
	})
}

func TestMailEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := newMailer(memory.New(nil), func(string, string) {})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		for range 4 { // at 0 s, 0 s, 1 s and 1 s
			require.NoError(t, m.mail(ctx, "ann@example.com", "hello"))
		}
		require.ErrorIs(t, m.mail(ctx, "ann@example.com", "hello"), context.DeadlineExceeded)
	})
}
