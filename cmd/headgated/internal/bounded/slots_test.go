package bounded_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/cmd/headgated/internal/bounded"
	"github.com/stretchr/testify/require"
)

// TestLong: a request has a slot once it is long, and others wait for it.
func TestLong(t *testing.T) {
	slots := bounded.NewSlots(1)
	short, first, second := bounded.Long{Slots: slots}, bounded.Long{Slots: slots}, bounded.Long{Slots: slots}
	require.True(t, first.More(bounded.Small, 0))
	require.Empty(t, slots)
	require.True(t, first.More(1, time.Hour))
	require.True(t, first.More(1, 0), "it has one")
	require.True(t, short.More(bounded.Small, 0))
	require.False(t, second.More(bounded.Small+1, time.Millisecond))
	second.End()
	short.End()
	require.Len(t, slots, 1)
	first.End()
	first.End()
	require.Empty(t, slots)
	require.True(t, second.More(1, time.Hour))
	require.True(t, (&bounded.Long{}).More(1<<30, 0), "no bound")
}
