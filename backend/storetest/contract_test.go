package storetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The contract stands twice, as a comment and as cases. Neither may gain or
// lose a word without the other.
func TestEachSentenceHasOneCase(t *testing.T) {
	var cases []string
	for _, c := range contract {
		cases = append(cases, c.sentence)
		for _, more := range map[string][]sentence{"Limit": shadowed, "Capabilities": leased}[c.name] {
			cases = append(cases, more.sentence)
			for _, s := range map[string][]sentence{"Record": slices.Concat(returned, named, leasedShadows), "FirstSettled": borrowed}[more.name] {
				cases = append(cases, s.sentence)
			}
		}
	}
	require.Equal(t, sentences(t), cases)
}

func TestCaseNamesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range everyRule() {
		require.False(t, seen[c.name], c.name)
		seen[c.name] = true
	}
}

// sentences returns the bulleted sentences of the comment on backend.Store.
func sentences(t *testing.T) []string {
	var list []string
	for line := range strings.SplitSeq(comment(t), "\n") {
		if bullet, ok := strings.CutPrefix(strings.TrimSpace(line), "- "); ok {
			list = append(list, bullet)
		} else if strings.HasPrefix(line, "    ") && len(list) > 0 { // a bullet of several lines
			list[len(list)-1] += " " + strings.TrimSpace(line)
		}
	}
	require.NotEmpty(t, list)
	return list
}

func comment(t *testing.T) string {
	file, err := parser.ParseFile(token.NewFileSet(), "../backend.go", nil, parser.ParseComments)
	require.NoError(t, err)
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE && g.Specs[0].(*ast.TypeSpec).Name.Name == "Store" {
			return g.Doc.Text()
		}
	}
	t.Fatal("backend.go declares no Store")
	return ""
}
