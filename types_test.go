package headgate_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/stretchr/testify/require"
)

// TestDocsShowTheFields: go doc does not show the fields of an alias, so the
// alias's comment lists them.
func TestDocsShowTheFields(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "types.go", nil, parser.ParseComments)
	require.NoError(t, err)
	docs := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.TypeSpec); ok && s.Assign.IsValid() {
			docs[s.Name.Name] = s.Doc.Text()
		}
		return true
	})
	for _, v := range []any{headgate.Policy{}, headgate.Decision{}, headgate.State{}, headgate.Event{}} {
		var want, got []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if f.IsExported() && len(f.Index) == 1 {
				want = append(want, f.Name)
			}
		}
		for line := range strings.Lines(docs[reflect.TypeOf(v).Name()]) {
			if field, ok := strings.CutPrefix(line, "\t"); ok {
				got = append(got, strings.TrimRight(strings.Fields(field)[0], ","))
			}
		}
		// One line may declare several fields of one type.
		for _, name := range want {
			require.True(t, slices.Contains(got, name) || strings.Contains(docs[reflect.TypeOf(v).Name()], ", "+name+" "), "%T.%s is not in the comment of its alias", v, name)
		}
		require.LessOrEqual(t, len(got), len(want))
	}
}

// TestFailureModesHaveNames: a mode prints as the source of its decisions does.
func TestFailureModesHaveNames(t *testing.T) {
	require.Equal(t, "none fail_open fail_closed fail_local unknown", fmt.Sprintf("%v %v %v %v %v",
		headgate.FailureMode(0), headgate.FailOpen, headgate.FailClosed, headgate.FailLocal, headgate.FailureMode(9)))
	require.Equal(t, headgate.FromFailOpen.String(), headgate.FailOpen.String())
	require.Equal(t, headgate.FromFailClosed.String(), headgate.FailClosed.String())
	require.Equal(t, headgate.FromFailLocal.String(), headgate.FailLocal.String())
}
