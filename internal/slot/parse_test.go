package slot_test

import (
	"strings"
	"testing"

	"github.com/headgate-go/headgate/internal/slot"
	"github.com/stretchr/testify/require"
)

// TestParseIsTagsInverse: of a key in clear all comes back, of others that they
// are hashed.
func TestParseIsTagsInverse(t *testing.T) {
	for _, key := range []string{"user:42", "a{b}c", "~a", "~~", "a b", strings.Repeat("x", 64), strings.Repeat("x", 65), "\xff", "a~b"} {
		for _, sub := range []string{"", "0", "3f.a"} {
			tag := slot.Tag(key, sub)
			got, gotSub, ok := slot.Parse(tag)
			require.True(t, ok, tag)
			require.Equal(t, sub, gotSub, tag)
			if want := strings.Trim(tag, "~"); strings.HasPrefix(want, key) {
				require.Equal(t, key, got, tag)
			} else {
				require.Empty(t, got, tag)
			}
		}
	}
	for _, tag := range []string{"~", "~~", "~a", "a~b", "~short~~", "a b"} {
		_, _, ok := slot.Parse(tag)
		require.False(t, ok, tag)
	}
}
