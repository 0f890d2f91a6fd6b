package arch

import (
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mapped is the number of files from which on a package stands in the map.
const mapped = 5

// TestMap: each file of a package that stands in "Which file?" of CONTRIBUTING.md, and of
// any with five or more, has one row there, or in a README.md of its own. Each row
// names files that exist.
func TestMap(t *testing.T) {
	packages := files(t)
	named := map[string]int{}
	texts := []string{read(t, "CONTRIBUTING.md")}
	for _, folder := range []string{"backend/postgres", "backend/storetest", "middleware/httplimit", "middleware/statuspage", "internal/lab/sim", "cmd/headgated", "cmd/headgate", "policyfile", "middleware/grpclimit", "middleware/otellimit"} {
		texts = append(texts, "\n## Which file?\n### `"+folder+"`\n"+read(t, folder, "README.md"))
	}
	for _, text := range texts {
		for _, file := range namedFiles(text, packages) {
			named[file]++
		}
	}
	for pkg, in := range packages {
		stands := slices.ContainsFunc(in, func(file string) bool { return named[file] > 0 })
		for _, file := range in {
			if n := named[file]; n > 1 || n == 0 && (stands || len(in) >= mapped && inMap(pkg)) {
				t.Errorf("%s stands in the map %d times", file, n)
			}
			delete(named, file)
		}
	}
	for file := range named {
		t.Errorf("the map names %s, which is no file of the code", file)
	}
}

// files are those of the code that are no tests, by their packages.
func files(t *testing.T) map[string][]string {
	t.Helper()
	packages := map[string][]string{}
	for _, s := range sources(t) {
		packages[s.pkg] = append(packages[s.pkg], s.path)
	}
	scripts, err := filepath.Glob(filepath.Join(root, "lua", "*.lua"))
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range scripts {
		packages["lua"] = append(packages["lua"], path.Join("lua", filepath.Base(script)))
	}
	return packages
}

// inMap reports whether a package has to stand in the map. Measurements, examples and what
// starts servers in tests have their own words.
func inMap(pkg string) bool {
	return !regexp.MustCompile(`^(bench|examples|internal/lab)(/|$)`).MatchString(pkg)
}

// namedFiles returns what the first cells of the map's rows name. A name is relative to one
// of the folders in the heading above it, or to the root.
func namedFiles(text string, packages map[string][]string) (all []string) {
	_, text, _ = strings.Cut(text, "\n## Which file?\n")
	text, _, _ = strings.Cut(text, "\n## ")
	quoted := regexp.MustCompile("`([^`]+)`")
	var folders []string
	for line := range strings.Lines(text) {
		if heading, ok := strings.CutPrefix(line, "### "); ok {
			folders = []string{"."}
			for _, m := range quoted.FindAllStringSubmatch(heading, -1) {
				folders = append(folders, m[1])
			}
			continue
		}
		if row, ok := strings.CutPrefix(line, "| `"); ok {
			cell, _, _ := strings.Cut("`"+row, " |")
			for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
				all = append(all, inFolders(m[1], folders, packages))
			}
		}
	}
	return all
}

// inFolders returns the file of that name in the last of the folders that has it, else the name.
func inFolders(name string, folders []string, packages map[string][]string) string {
	for _, folder := range slices.Backward(folders) {
		if file := path.Join(folder, name); slices.Contains(packages[path.Dir(file)], file) {
			return file
		}
	}
	return name
}
