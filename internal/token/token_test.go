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
	unresolved, named, key := all, all, Key("of sixteen bytes")
	unresolved.Unresolved, named.Named = true, true
	lines := []string{all.Text(nil), unresolved.Text(key), named.Text(nil)}
	golden.Equal(t, "token.golden", "# The text of a reservation, version 1: resolved, unresolved with a key, and under an ID of the caller's.\n"+strings.Join(lines, "\n")+"\n")
	for i, k := range []Key{nil, key, nil} {
		got, text := Parse(lines[i], k, 2)
		require.Empty(t, text)
		require.Equal(t, []Token{all, unresolved, named}[i], *got)
	}
}
