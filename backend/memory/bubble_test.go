//go:build go1.25

package memory

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestInABubble: a store that is made in one follows its clock.
func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil)
		require.False(t, s.clock.ticks)
		g := backend.Group{Key: "k", Policies: []backend.Policy{by("p", algo.FixedWindow(algo.PerHour(1)))}, Cost: 1}
		for range 3 {
			require.True(t, ask(t, s, backend.Take, g).Allowed)
			require.Equal(t, time.Hour, ask(t, s, backend.Take, g).RetryAfter)
			time.Sleep(time.Hour)
		}
	})
}
