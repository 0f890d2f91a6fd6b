package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// exported returns the exported names and methods of a package.
func exported(t *testing.T, dir string) (names []string) {
	paths, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "words.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			names = append(names, exportedOf(d)...)
		}
	}
	return names
}

// exportedOf returns the exported names of a declaration. A method counts if its type does.
func exportedOf(d ast.Decl) (names []string) {
	add := func(ids ...*ast.Ident) {
		for _, id := range ids {
			if id.IsExported() {
				names = append(names, id.Name)
			}
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type)) {
			add(d.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				add(s.Name)
			case *ast.ValueSpec:
				add(s.Names...)
			}
		}
	}
	return names
}

// TestLayersFromOutside: another module can call each exported function of breaker, shard and
// lua, such as to put a breaker around a store of its own.
func TestLayersFromOutside(t *testing.T) {
	program, err := os.ReadFile("testdata/outside/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"breaker", "shard", "lua"} {
		for _, name := range exported(t, dir) {
			if types := map[string]bool{"Store": true, "Stats": true, "Kind": true, "Fallback": true}; types[name] {
				continue
			}
			if !regexp.MustCompile(`\.` + name + `\b`).Match(program) {
				t.Errorf("testdata/outside/main.go uses no %s of %s", name, dir)
			}
		}
	}
	outside := t.TempDir()
	full, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	mod := strings.Replace(string(text), "module "+module, "module example.com/outside", 1) +
		"\nrequire " + module + " v0.0.0\nreplace " + module + " => " + full + "\n"
	for name, data := range map[string][]byte{"go.mod": []byte(mod), "go.sum": sums, "main.go": program} {
		if err := os.WriteFile(filepath.Join(outside, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := exec.Command("go", "run", "-mod=mod", ".")
	run.Dir, run.Env = outside, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
