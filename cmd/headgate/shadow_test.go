package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPeekOfShadow: the counts of a policy as a shadow and as an enforced one are two, and
// peek prints both without a policy file.
func TestPeekOfShadow(t *testing.T) {
	for where, p := range places(t) {
		t.Run(where, func(t *testing.T) {
			enforced := p.limiter(t, "one")
			list := enforced.Policies()
			for i := range list {
				list[i].Shadow = true
			}
			trial, err := enforced.With(list...)
			require.NoError(t, err)
			take(t, trial, "key", 4, 1)
			take(t, enforced, "key", 2, 1)
			got := exec(t, 0, append(append([]string{"peek"}, p.args...), "key")...)
			require.Contains(t, got, "fixed, FixedWindow of 24h0m0s: 2 units used now")
			require.Contains(t, got, "fixed (shadow), FixedWindow of 24h0m0s: 4 units used now")
			require.Contains(t, exec(t, 0, append(append([]string{"-json", "peek"}, p.args...), "key")...), `"shadow":true`)
		})
	}
}
