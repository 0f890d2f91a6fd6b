package arch

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/deps.golden")

const (
	root      = "../.."
	fileMax   = 400
	funcMax   = 40
	exception = "Long:"
)

// source is a .go file of ours that is no test. All build tags and nested
// modules are in, which `go list` would leave out.
type source struct {
	path string // relative to the root, with slashes
	pkg  string
	set  *token.FileSet
	file *ast.File
}

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skip(path, d.Name())
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		s, err := parse(path)
		all = append(all, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatalf("no sources below %s", root)
	}
	return all
}

// skip leaves out what the go command leaves out.
func skip(path, name string) error {
	if path != root && (name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
		return fs.SkipDir
	}
	return nil
}

func parse(path string) (source, error) {
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return source{}, err
	}
	rel = filepath.ToSlash(rel)
	if s, ok := parsed[rel]; ok {
		return s, nil
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
	s := source{rel, filepath.ToSlash(filepath.Dir(rel)), set, file}
	if err == nil {
		parsed[rel] = s
	}
	return s, err
}

// parsed has the files that a test has read, by their paths below root: most tests read all.
var parsed = map[string]source{}

// ours are the packages of ours that a file imports, relative to the module.
func ours(file *ast.File) []string {
	var pkgs []string
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value) // the parser has seen to it
		if path == module {
			pkgs = append(pkgs, ".")
		}
		if pkg, ok := strings.CutPrefix(path, module+"/"); ok {
			pkgs = append(pkgs, pkg)
		}
	}
	return pkgs
}

func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		for _, err := range broken(s.pkg, ours(s.file)) {
			t.Errorf("%s: %v", s.path, err)
		}
	}
}

func broken(pkg string, imports []string) []error {
	r, ok := find(pkg)
	if !ok {
		return []error{fmt.Errorf("package %q is not in the table of internal/arch: decide what it may import, and say why", pkg)}
	}
	var errs []error
	for _, to := range imports {
		if !r.allows(to) {
			errs = append(errs, fmt.Errorf("package %q must not import %q: %s", pkg, to, r.reason))
		}
	}
	return errs
}

// TestLabIsForTests: only tests, bench and internal/lab import internal/lab, whatever
// the table's rows say.
func TestLabIsForTests(t *testing.T) {
	const lab = "internal/lab/..."
	for _, s := range sources(t) {
		for _, to := range ours(s.file) {
			if matches(lab, to) && !matches(lab, s.pkg) && !matches("bench/...", s.pkg) {
				t.Errorf("%s imports %s: only tests, bench and internal/lab may", s.path, to)
			}
		}
	}
}

// The table's own test: what it must refuse, whatever rows are added.
func TestTableRefuses(t *testing.T) {
	for _, c := range []struct{ from, to string }{
		{"algo", "backend"}, {"algo", "backend/memory"}, {"backend/memory", "lua"},
		{"backend/standalone", "backend/cluster"}, {"backend/standalone", "internal/slot"},
		{"shard", "breaker"}, {"breaker", "shard"}, {"breaker", "."}, {"shard", "."}, {"backend/memory", "."}, {"internal/wait", "."},
		{".", "backend/standalone"}, {"middleware/httplimit", "shard"}, {"policyfile", "shard"},
		{"examples/http", "backend/internal/wire"}, {"bench", "backend/internal/batch"},
		{"internal/lab/redistest", "backend"}, {"lua", "algo"}, {"a/new/folder", "algo"}, {"backend/memory/sub", "algo"},
	} {
		if len(broken(c.from, []string{c.to})) == 0 {
			t.Errorf("%s may import %s", c.from, c.to)
		}
	}
}

func TestTableAllows(t *testing.T) {
	for _, c := range []struct{ from, to string }{
		{".", "shard"}, {"backend/cluster", "internal/slot"}, {"middleware/grpclimit", "."},
		{"examples/cluster", "backend/cluster"}, {"bench", "internal/lab/redistest"}, {"bench/peers", "backend"},
	} {
		for _, err := range broken(c.from, []string{c.to}) {
			t.Error(err)
		}
	}
}

func TestEveryRowGivesItsReason(t *testing.T) {
	for i, r := range table {
		if r.reason == "" {
			t.Errorf("%s: no reason", r.pkg)
		}
		if slices.ContainsFunc(table[:i], func(other row) bool { return matches(other.pkg, r.pkg) }) {
			t.Errorf("%s: an earlier row has it already", r.pkg)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, s := range sources(t) {
		if n := s.lines(s.file.FileStart, s.file.FileEnd); n > fileMax {
			t.Errorf("%s: %d lines, more than %d: it wants to be two", s.path, n, fileMax)
		}
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && !excused(f) {
				checkLength(t, s, f)
			}
		}
	}
}

// lines counts the lines from begin to end, without the markers of mutants.
func (s source) lines(begin, end token.Pos) int {
	n := s.set.Position(end).Line - s.set.Position(begin).Line + 1
	for _, g := range s.file.Comments {
		for _, c := range g.List {
			if begin <= c.Pos() && c.Pos() < end && strings.HasPrefix(c.Text, "//mutant:") {
				n--
			}
		}
	}
	return n
}

func checkLength(t *testing.T, s source, f *ast.FuncDecl) {
	t.Helper()
	if n := s.lines(f.Pos(), f.End()); n > funcMax {
		t.Errorf("%s:%d: %s has %d lines, more than %d: cut it, or give the reason in a line of its comment that begins with %q",
			s.path, s.set.Position(f.Pos()).Line, f.Name.Name, n, funcMax, "// "+exception)
	}
}

// excused: there are functions that are read best in one piece. A bare marker
// without a reason excuses nothing.
func excused(f *ast.FuncDecl) bool {
	for line := range strings.Lines(f.Doc.Text()) {
		if reason, ok := strings.CutPrefix(line, exception); ok && strings.TrimSpace(reason) != "" {
			return true
		}
	}
	return false
}

// machinery is no part of what an importer gets.
var machinery = []string{"internal/lab/...", "internal/arch", "examples/...", "docs/..."}

// Whoever imports the core imports all of this, so that it must not grow
// unnoticed. After a change that is wanted: go test ./internal/arch -update
func TestDependencies(t *testing.T) {
	const golden = "testdata/deps.golden"
	got := strings.Join(dependencies(t), "\n") + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the core module's dependencies have changed; if that is wanted, run: go test ./internal/arch -update\nwant:\n%sgot:\n%s", want, got)
	}
}

func dependencies(t *testing.T) []string {
	t.Helper()
	var core []string
	for _, pkg := range golist(t, "./...") {
		rel := strings.TrimPrefix(strings.TrimPrefix(pkg, module), "/")
		if !slices.ContainsFunc(machinery, func(m string) bool { return matches(m, rel) }) {
			core = append(core, pkg)
		}
	}
	if len(core) == 0 {
		t.Fatal("no packages in the core module")
	}
	deps := golist(t, append([]string{"-deps", "-f", "{{with .Module}}{{.Path}}{{end}}"}, core...)...)
	slices.Sort(deps)
	return slices.DeleteFunc(slices.Compact(deps), func(dep string) bool { return dep == module })
}

func golist(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = root
	// One platform, for the golden file to be the same on all.
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("%v: %v\n%s", cmd, err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

func TestOnlyAReasonExcuses(t *testing.T) {
	const text = `package p

// Plain is plain.
func Plain() {}

// Bare says nothing.
//
// Long:
func Bare() {}

// Reasoned is a table.
//
// Long: one case a line, and nothing else.
func Reasoned() {}
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		f := decl.(*ast.FuncDecl)
		if got, want := excused(f), f.Name.Name == "Reasoned"; got != want {
			t.Errorf("%s: excused is %v", f.Name.Name, got)
		}
	}
}
