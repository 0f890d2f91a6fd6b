package chance_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/chance"
	"github.com/stretchr/testify/require"
)

// TestFix: every number stays in its range, and a fixed source decides all of them.
func TestFix(t *testing.T) {
	inRange := func() {
		for n := 1; n < 100; n++ {
			i, d := chance.IntN(n), chance.Duration(time.Duration(n))
			require.True(t, i >= 0 && i < n && d >= 0 && d < time.Duration(n))
		}
	}
	inRange()
	chance.Fix(func() uint64 { return 1<<64 - 1 })
	inRange()
	require.Equal(t, uint64(1<<64-1), chance.Uint64())
	require.Equal(t, 5, chance.IntN(10))
	require.Equal(t, 5*time.Nanosecond, chance.Duration(10))
}
