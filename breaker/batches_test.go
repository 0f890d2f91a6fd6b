package breaker

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestBatchesAreCounted by their sizes in powers of two, without an observer too.
func TestBatchesAreCounted(t *testing.T) {
	var c circuits
	for _, calls := range []int{1, 2, 3, 4, 511, 512, 4096} {
		c.Batch(backend.Batch{Calls: calls}, time.Millisecond)
	}
	require.Equal(t, Batches{RoundTrips: 7, Calls: 5129, Time: 7 * time.Millisecond, Sizes: [10]int64{1, 2, 1, 0, 0, 0, 0, 0, 1, 2}}, c.batches())
	require.Zero(t, (*circuits)(nil).batches())
}
