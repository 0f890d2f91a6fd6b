package slot

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSpecification: the check value of the specification, and slots that a
// Redis Cluster names (CLUSTER KEYSLOT).
func TestSpecification(t *testing.T) {
	require.Equal(t, 0x31C3%Count, Of("123456789"))
	require.Equal(t, 12182, Of("foo"))
	require.Equal(t, 5061, Of("bar"))
	require.Equal(t, 0, Of(""))
}
