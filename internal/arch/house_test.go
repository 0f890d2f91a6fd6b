package arch

import (
	"flag"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var house = flag.Bool("house", false, "print the figures of make house")

// TestHouse prints figures of the code's shape, each with its limit. It holds none of
// them: a change that is worth it may exceed one.
func TestHouse(t *testing.T) {
	if !*house {
		t.Skip("make house prints the figures")
	}
	all := sources(t)
	folders := folderArrows(t, all)
	files := fileArrows(t)
	names, fakes := rootTests(t, all)
	sentences, words := comments(t, all)
	guards, operations := coupled(t)
	for _, r := range []struct {
		what  string
		now   int
		limit string
	}{
		{"imports between folders", folders.count(), ""},
		{"of these, that run back up in the best order of folders", folders.back(), ""},
		{"arrows between files of the root that run back up in the best order", files.back(), ""},
		{"arrows that run back up, folders and files of the root", folders.back() + files.back(), "10"},
		{"files of the root in the largest circle", files.circle(), "4"},
		{"exported names and methods of the root", len(exported(t, ".")), "90"},
		{"exported names of algo", len(exported(t, "algo")), "30"},
		{"lines of the root without tests and comments", codeLines(t, all, "."), "1250"},
		{"the same of shard", codeLines(t, all, "shard"), "650"},
		{"the same of the core with the root and Lua", codeLines(t, all, ".") + coreLines(t, all), "15800"},
		{"guards of the core that stand for two features or more", guards, "112"},
		{"tests of a request's operation outside of the table of verbs", operations, "60"},
		{"lines of backend/memory with comments", lines(all, "backend/memory"), "1443"},
		{"test files of the root not named after a file or an exported name", len(names), "0"},
		{"fakes of a store in the root's tests", len(fakes), "2"},
		{"comment sentences of more than 25 words", sentences, "30"},
		{"nobody, told, hand, apart, alone in comments", words, "20"},
		{"lines of README.md", fileLines(t, "README.md"), "320"},
		{"words of README, CHANGELOG, CONTRIBUTING and docs", fileWords(t, "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md"), "52000"},
		{"words of docs/experiments.md", fileWords(t, "docs/experiments.md"), "4000"},
	} {
		fmt.Printf("%-72s %6d  %s\n", r.what, r.now, r.limit)
	}
	fmt.Println("not computed: time of make test (at most 4 min on two cores): time make test")
	fmt.Println("test files to rename:", strings.Join(names, " "))
	fmt.Println("fakes:", strings.Join(fakes, " "))
}

// folderArrows returns the imports of the core between its top folders, tests, their lab,
// documents and examples excluded.
func folderArrows(t *testing.T, all []source) arrows {
	t.Helper()
	core := strings.Fields(goList(t, "-f", "{{.ImportPath}}", "./..."))
	top := func(pkg string) string { return strings.SplitN(pkg, "/", 2)[0] }
	a, seen := arrows{}, map[[2]string]bool{}
	for _, s := range all {
		if !slices.Contains(core, strings.TrimSuffix(module+"/"+s.pkg, "/.")) || top(s.pkg) == "examples" || top(s.pkg) == "docs" || matches("internal/lab/...", s.pkg) {
			continue
		}
		for _, to := range ours(s.file) {
			if edge := [2]string{s.pkg, to}; !seen[edge] {
				seen[edge] = true
				a.add(top(s.pkg), top(to))
			}
		}
	}
	return a
}

func goList(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// codeLines counts the lines of a package that have more than a comment.
func codeLines(t *testing.T, all []source, pkg string) (n int) {
	t.Helper()
	for _, s := range all {
		if s.pkg != pkg {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, s.path))
		if err != nil {
			t.Fatal(err)
		}
		set, code, sc := token.NewFileSet(), map[int]bool{}, scanner.Scanner{}
		sc.Init(set.AddFile(s.path, -1, len(text)), text, nil, 0)
		for pos, tok, lit := sc.Scan(); tok != token.EOF; pos, tok, lit = sc.Scan() {
			if tok != token.SEMICOLON || lit == ";" {
				for i := range strings.Count(lit, "\n") + 1 {
					code[set.Position(pos).Line+i] = true
				}
			}
		}
		n += len(code)
	}
	return n
}

func lines(all []source, pkg string) (n int) {
	for _, s := range all {
		if s.pkg == pkg {
			n += s.lines(s.file.FileStart, s.file.FileEnd) - 1 // it counts one after the last
		}
	}
	return n
}

// fileWords counts the words of files that match one of the patterns.
func fileWords(t *testing.T, patterns ...string) (n int) {
	t.Helper()
	for _, pattern := range patterns {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			n += len(strings.Fields(string(text)))
		}
	}
	return n
}

func fileLines(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// rootTests returns the test files of the root whose names are those of no file and no
// exported name of the root or of backend. It also returns the types of its tests that
// are stores.
func rootTests(t *testing.T, all []source) (names, fakes []string) {
	t.Helper()
	known := []string{"example", "helpers", "docs", "export", "race", "program", "rights"} // program: random ones of all verbs
	for _, s := range all {
		if s.pkg != "." && s.pkg != "backend" {
			continue
		}
		known = append(known, strings.TrimSuffix(filepath.Base(s.path), ".go"))
		ast.Inspect(s.file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && id.IsExported() {
				known = append(known, strings.ToLower(id.Name))
			}
			return true
		})
	}
	tests, err := filepath.Glob(filepath.Join(root, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range tests {
		s, err := parse(path)
		if err != nil {
			t.Fatal(err)
		}
		if stem, _, _ := strings.Cut(s.path, "_"); !slices.Contains(known, stem) {
			names = append(names, s.path)
		}
		fakes = append(fakes, stores(s.file)...)
	}
	return names, fakes
}

// stores returns the types of a file that have a method Do as a store has, or embed a
// Store.
func stores(file *ast.File) (names []string) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil && d.Name.Name == "Do" && d.Type.Params.NumFields() == 3 {
				names = append(names, receiver(d.Recv.List[0].Type))
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok && embedsStore(s.Type) {
					names = append(names, s.Name.Name)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func receiver(e ast.Expr) string {
	if star, ok := e.(*ast.StarExpr); ok {
		e = star.X
	}
	return e.(*ast.Ident).Name
}

func embedsStore(e ast.Expr) bool {
	s, ok := e.(*ast.StructType)
	if !ok {
		return false
	}
	for _, f := range s.Fields.List {
		name := f.Type
		if star, ok := name.(*ast.StarExpr); ok {
			name = star.X
		}
		if sel, ok := name.(*ast.SelectorExpr); ok && f.Names == nil && sel.Sel.Name == "Store" {
			return true
		}
	}
	return false
}

var (
	sentenceEnd = regexp.MustCompile(`[.?!](?:\s+|$)`)
	dialect     = regexp.MustCompile(`(?i)\b(nobody|told|hand|apart|alone)\b`)
	marker      = regexp.MustCompile(`mutant:[a-z0-9-]+`)
)

// comments counts, in the comments of Go and Lua, the sentences of more than 25 words
// and the words that the style avoids. An indented line, which is code, ends a sentence.
func comments(t *testing.T, all []source) (long, words int) {
	t.Helper()
	count := func(text string) {
		text = marker.ReplaceAllString(text, "")
		words += len(dialect.FindAllString(text, -1))
		for _, s := range sentenceEnd.Split(text, -1) {
			if len(strings.Fields(s)) > 25 {
				long++
			}
		}
	}
	for _, s := range all {
		for _, group := range s.file.Comments {
			for _, paragraph := range regexp.MustCompile(`\n(?:\n|\t.*\n?|  .*\n?)`).Split(group.Text(), -1) {
				count(paragraph)
			}
		}
	}
	scripts, err := filepath.Glob(filepath.Join(root, "lua", "*.lua"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range scripts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile(`(?m)(?:^\s*-- .*\n?)+|-- .*$`).FindAllString(string(text), -1) {
			count(regexp.MustCompile(`(?m)^\s*--`).ReplaceAllString(block, ""))
		}
	}
	return long, words
}
