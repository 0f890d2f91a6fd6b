package names_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/stretchr/testify/require"
)

// TestTags: whatever bytes a key and a sub-key's name hold, no two lists of
// them share a tag, and no tag holds a brace.
func TestTags(t *testing.T) {
	keys := []string{"a", "user:42", "{x}", "x}", "{", "~", "~a", "a~b", "a b", "\x00", "é", "\xff", strings.Repeat("a", 64), strings.Repeat("a", 65),
		names.Tag("{x}", ""), names.Tag(names.Tag("{x}", ""), ""), "~s1.0~user:42", "headgate:{user:42}"}
	seen := map[string]string{}
	for _, k := range keys {
		for _, sub := range []string{"", "s1.0", "s1.1"} {
			tag := names.Tag(k, sub)
			from := fmt.Sprintf("%q %q", k, sub)
			require.Empty(t, seen[tag], "%s and %s share %s", from, seen[tag], tag)
			seen[tag] = from
			require.NotContains(t, tag, "{")
			require.NotContains(t, tag, "}")
			require.LessOrEqual(t, len(tag), 64+len(sub)+2)
		}
	}
	require.Equal(t, "user:42", names.Tag("user:42", ""), "a plain key can be found by eye")
}

func TestPrefixes(t *testing.T) {
	require.NoError(t, names.Prefix("svc:rate_limit:").Check())
	for _, p := range []string{"a{", "}", "a b", "\n", "é", strings.Repeat("x", 129)} {
		require.Error(t, names.Prefix(p).Check(), "%q", p)
	}
}
