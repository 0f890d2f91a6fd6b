package token

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/golden"
	"github.com/stretchr/testify/require"
)

// TestGolden: the text of a token is what other processes hold. A change of it needs a new
// version.
func TestGolden(t *testing.T) {
	all := Token{ID: [16]byte([]byte("0123456789abcdef")), Length: time.Minute, Key: "user:42", Policies: []Policy{
		{Name: "calls", Cost: 1}, {Name: "tokens", Cost: 3000, Shadow: true},
	}}
	unresolved, key := all, Key("of sixteen bytes")
	unresolved.Unresolved = true
	lines := []string{all.Text(nil), unresolved.Text(key)}
	golden.Equal(t, "token.golden", "# The text of a reservation, version 1: resolved, and unresolved with a key.\n"+strings.Join(lines, "\n")+"\n")
	for i, k := range []Key{nil, key} {
		got, text := Parse(lines[i], k, 2)
		require.Empty(t, text)
		require.Equal(t, []Token{all, unresolved}[i], *got)
	}
}
