package inspect

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/lua"
	"github.com/stretchr/testify/require"
)

// TestRightsAreThoseOfTheScript: Ping asks for each command that the script
// calls, and for no other.
func TestRightsAreThoseOfTheScript(t *testing.T) {
	var calls []string
	for _, call := range regexp.MustCompile(`\b(?:p?call|try)\('([A-Z]+)'`).FindAllStringSubmatch(lua.Script, -1) {
		calls = append(calls, call[1])
	}
	slices.Sort(calls)
	var asked []string
	for _, command := range needed[:len(needed)-ofCluster] {
		asked = append(asked, strings.Fields(command)[0])
	}
	slices.Sort(asked)
	require.Equal(t, slices.Compact(calls), asked)
}
