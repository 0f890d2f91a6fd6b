//go:build go1.26

package sim

import (
	"testing"
	"testing/cryptotest"
)

// fixSecrets makes the IDs of leases follow the seed.
func fixSecrets(t *testing.T, seed uint64) { cryptotest.SetGlobalRandom(t, seed) }
