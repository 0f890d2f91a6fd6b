package headgate_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// repository is what the repository has that docs name.
type repository struct {
	files   map[string]bool   // files and folders, and each end of their paths
	tests   map[string]string // tests, benchmarks, examples and fuzz tests, and their files
	targets map[string]bool   // of the Makefile
}

var (
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Example|Fuzz)\w*)\(`)
	makeTarget = regexp.MustCompile(`(?m)^([a-z-]+):`)
	testName   = regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w*`)
	codeSpan   = regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")
	docsPath   = regexp.MustCompile(`(?:^|[\s(=\x60'"])(\.{0,2}[\w.-]*(?:/[\w.-]+)*\.(?:go|lua|md|svg|mod))\b`)
	makeRun    = regexp.MustCompile(`\bmake ([a-z][a-z-]+)`)
	docsScript = regexp.MustCompile(`(?:^|\s|\x60)(\.ci/[\w-]+)`)
	docsFolder = regexp.MustCompile(`\bcd ([\w./-]+) &&|\bgo (?:test|run|vet|build) (?:-\S+ )*\./([\w./-]+)`)
	runPattern = regexp.MustCompile(`-(?:run|bench)[ =]('[^']+'|[^\s\x60]+)`)
)

func newRepository(t *testing.T) *repository {
	w := &repository{files: map[string]bool{}, tests: map[string]string{}, targets: map[string]bool{}}
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == ".git" {
			return filepath.SkipDir
		}
		for end := name; ; {
			w.files[end] = true
			var more bool
			if _, end, more = strings.Cut(end, "/"); !more {
				break
			}
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			w.tests[string(m[1])] = name
		}
		return err
	}))
	text, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	for _, m := range makeTarget.FindAllSubmatch(text, -1) {
		w.targets[string(m[1])] = true
	}
	return w
}

// matches reports whether a pattern of go test -run or -bench finds something. Of a path of
// subtests its first part counts.
func (w *repository) matches(pattern string) bool {
	if pattern, _, _ = strings.Cut(strings.Trim(pattern, "'"), "/"); pattern == "^$" { // none, beside -bench
		return true
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return false
	}
	for name := range w.tests {
		if re.MatchString(name) {
			return true
		}
	}
	return false
}

// stale returns the names of a document that the tree does not have.
func (w *repository) stale(text string) (names []string) {
	missing := func(what, name string, ok bool) {
		if !ok {
			names = append(names, what+" "+name)
		}
	}
	for _, code := range codeSpan.FindAllString(text, -1) {
		for _, m := range docsPath.FindAllStringSubmatch(code, -1) {
			name := strings.TrimLeft(m[1], "./")
			outside := strings.HasPrefix(m[1], "../..") || strings.HasPrefix(path.Base(name), "x.") // x is any algorithm
			missing("file", m[1], w.files[name] || outside)
		}
		for _, m := range makeRun.FindAllStringSubmatch(code, -1) {
			missing("target", m[1], w.targets[m[1]])
		}
		for _, m := range docsScript.FindAllStringSubmatch(code, -1) {
			missing("script", m[1], w.files[m[1]])
		}
		for _, m := range docsFolder.FindAllStringSubmatch(code, -1) {
			name := strings.TrimSuffix(strings.TrimSuffix(m[1]+m[2], "..."), "/")
			missing("folder", name, name == "" || w.files[name])
		}
		for _, m := range runPattern.FindAllStringSubmatch(code, -1) {
			missing("pattern", m[1], w.matches(m[1]))
			code = strings.ReplaceAll(code, m[0], "")
			text = strings.ReplaceAll(text, m[0], "")
		}
	}
	for _, name := range testName.FindAllString(text, -1) {
		missing("test", name, w.tests[name] != "")
	}
	return names
}

// TestNamesOfMutants: each test that a row of .ci/mutants names is there. go test passes without it,
// so the guard would seem to be tested by none.
func TestNamesOfMutants(t *testing.T) {
	redistest.Plain(t)
	w := newRepository(t)
	text, err := os.ReadFile(".ci/mutants")
	require.NoError(t, err)
	_, rows, _ := strings.Cut(string(text), "\n# rows\n")
	for row := range strings.Lines(rows) {
		if f := strings.Fields(row); !w.matches(f[2]) {
			t.Errorf("there is no %s, of the guard %s", f[2], f[0])
		}
	}
}

// TestNamesInDocs: each test, file, folder, make target and docsScript that a document names is there.
func TestNamesInDocs(t *testing.T) {
	redistest.Plain(t)
	w := newRepository(t)
	docs, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, readme := range []string{"*/README.md", "*/*/README.md", "*/*/*/README.md"} {
		found, err := filepath.Glob(readme)
		require.NoError(t, err)
		docs = append(docs, found...)
	}
	for _, doc := range append(docs, "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md") {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		for _, name := range w.stale(string(text)) {
			t.Errorf("%s: there is no %s", doc, name)
		}
	}
}

// TestStaleNames: each kind of name is found where it is stale.
func TestStaleNames(t *testing.T) {
	redistest.Plain(t)
	require.Equal(t, []string{
		"file nothere_test.go", "file docs/nothere.md", "target nothere", "script .ci/nothere", "folder nothere",
		"pattern '^TestNotHere$'", "folder nowhere/else", "test TestNotThere",
	}, newRepository(t).stale("`nothere_test.go` beside `docs_test.go`, `docs/nothere.md`, `make nothere`, `make test`, `.ci/nothere`, "+
		"`cd nothere && go test -run '^TestNotHere$' .`, `go test ./nowhere/else -run TestLinks`, TestNotThere, TestLinks"))
}
