package headgate_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// TestReadmeIsCompiled: every Go snippet of the README is part of an example,
// so that it compiles and does what its Output says.
func TestReadmeIsCompiled(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	examples := normal(string(source))
	blocks := goBlock.FindAllStringSubmatch(string(readme), -1)
	require.NotEmpty(t, blocks)
	for _, b := range blocks {
		require.Contains(t, examples, normal(b[1]), "README.md shows what no example in example_test.go runs:\n%s", b[1])
	}
}

// normal takes indentation and line breaks out of the comparison.
func normal(s string) string { return strings.Join(strings.Fields(s), " ") }
