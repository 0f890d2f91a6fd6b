package wait

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestContestDelay: a queue without rivals wakes when the store answered. One with
// rivals wakes later, the less so the longer its head has waited.
func TestContestDelay(t *testing.T) {
	var c contest
	const longest, burst = 50 * time.Millisecond, 100 * time.Millisecond
	require.Zero(t, c.delay(2, longest, burst, 0))
	c.asAnswered = true
	c.denied()
	young, old := c.delay(2, longest, burst, 0), c.delay(2, longest, burst, 300*time.Millisecond)
	require.Equal(t, longest, young)
	require.Less(t, old, young/2)
	require.Positive(t, old)
	for range maxRivals + 1 {
		c.asAnswered = true
		c.won(0, 0)
	}
	require.Zero(t, c.delay(2, longest, burst, 0))
	c = fresh
	require.Equal(t, longest, c.delay(2, longest, burst, 0), "others may have started at the same time")
	require.Zero(t, c.delay(1, longest, burst, 0))
}
