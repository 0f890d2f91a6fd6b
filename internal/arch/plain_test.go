package arch

import (
	"go/ast"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPlainTestsAreRun: a test that is skipped under the race detector stands in the
// Makefile's lists, so that make test runs it without the detector.
func TestPlainTestsAreRun(t *testing.T) {
	tests, packages := makeList(t, "PLAIN_TESTS"), makeList(t, "PLAIN_PACKAGES")
	found, in := map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return skip(path, d.Name())
		case !strings.HasSuffix(path, "_test.go") || strings.Contains(path, "internal/arch"):
			return nil
		}
		s, err := parse(path)
		if err != nil {
			return err
		}
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && isPlain(f) {
				found[f.Name.Name], in["./"+s.pkg] = true, true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []struct{ made, found []string }{
		{tests, slices.Sorted(maps.Keys(found))}, {packages, slices.Sorted(maps.Keys(in))},
	} {
		slices.Sort(list.made)
		if !slices.Equal(list.made, list.found) {
			t.Errorf("the Makefile has %v, and the tests are %v", list.made, list.found)
		}
	}
}

// makeList returns the words of a variable in the Makefile.
func makeList(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^` + name + ` := ((?:.*\\\n)*.*)$`).FindSubmatch(text)
	if lines == nil {
		t.Fatalf("the Makefile has no %s", name)
	}
	return strings.Fields(strings.ReplaceAll(string(lines[1]), "\\\n", " "))
}

// isPlain reports whether a function calls redistest.Plain.
func isPlain(f *ast.FuncDecl) (plain bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Plain" {
			x, ok := sel.X.(*ast.Ident)
			plain = plain || ok && x.Name == "redistest"
		}
		return !plain
	})
	return plain
}
