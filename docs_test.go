package headgate_test

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exampleFiles have the examples that README.md, docs/guide.md, docs/recipes.md and docs/testing.md show. Each is compiled.
var exampleFiles = []string{
	"example_test.go", "example_more_test.go", "example_all_test.go", "example_wait_test.go", "example_recipes_test.go", "examples/llm/prices.go", "middleware/grpclimit/example_test.go",
	"middleware/httplimit/example_test.go", "middleware/httpclient/example_test.go", "policyfile/example_test.go", "examples/prometheus/example_test.go",
	"examples/routers/routers.go", "examples/routers/account.go", "examples/tiers/main.go",
}

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

var importPath = regexp.MustCompile(`"[^"]+"`)

// program matches a complete program: its imports, and the body of main.
var program = regexp.MustCompile(`(?s)^package main\s+import \((.*?)\)\s+func main\(\) \{(.*)\}\s*$`)

// normal takes indentation and line breaks out of the comparison.
func normal(s string) string { return strings.Join(strings.Fields(s), " ") }

// TestSnippetsAreCompiled: every Go snippet of the README, the guide, recipes and docs/testing.md is part of an
// example, so that it compiles and does what its Output says.
func TestSnippetsAreCompiled(t *testing.T) {
	var source []byte
	for _, file := range exampleFiles {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		source = append(source, text...)
	}
	examples := normal(string(source))
	for _, doc := range []string{"README.md", "docs/guide.md", "docs/recipes.md", "docs/testing.md"} {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		blocks := goBlock.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, blocks)
		for _, b := range blocks {
			code := b[1]
			if whole := program.FindStringSubmatch(code); whole != nil {
				for _, path := range importPath.FindAllString(whole[1], -1) {
					require.Contains(t, string(source), path, "%s shows an import that no example has", doc)
				}
				code = whole[2]
			}
			require.Contains(t, examples, normal(code), "%s shows what no example runs:\n%s", doc, code)
		}
	}
}

// link matches a link to a file or a headline of the repository.
var link = regexp.MustCompile(`\]\(([^)#: ]*)(?:#([^)]*))?\)`)

// anchorSign matches what a headline's anchor leaves out.
var anchorSign = regexp.MustCompile(`[^a-z0-9 _-]`)

// TestLinks: every link of the README and of docs leads to a file or a folder, and to a
// headline of it.
func TestLinks(t *testing.T) {
	docs, err := os.ReadDir("docs")
	require.NoError(t, err)
	names := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}
	for _, d := range docs {
		if strings.HasSuffix(d.Name(), ".md") {
			names = append(names, "docs/"+d.Name())
		}
	}
	for _, doc := range names {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		for _, l := range link.FindAllStringSubmatch(string(text), -1) {
			target := doc
			if l[1] != "" {
				target = path.Join(path.Dir(doc), l[1])
			}
			_, err := os.Stat(target)
			require.NoError(t, err, "%s: %s", doc, l[0])
			if l[2] != "" {
				require.Contains(t, anchors(t, target), l[2], "%s: %s", doc, l[0])
			}
		}
	}
}

// anchors returns the anchors of a document's headlines, as GitHub makes them.
func anchors(t *testing.T, doc string) (names []string) {
	text, err := os.ReadFile(doc)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if title := strings.TrimLeft(line, "#"); len(title) < len(line) {
			name := anchorSign.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			names = append(names, strings.ReplaceAll(name, " ", "-"))
		}
	}
	return names
}
