package cluster

import (
	"testing"
	"time"
)

// Remember sets how long the stores that the test makes keep a node that only
// redirects name.
func Remember(t *testing.T, d time.Duration) {
	was := remembered
	remembered = d
	t.Cleanup(func() { remembered = was })
}
