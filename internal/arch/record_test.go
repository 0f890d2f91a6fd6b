package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestRecord: each test and each mutant that docs/record.md names exists. So a rule that moves
// keeps its row.
func TestRecord(t *testing.T) {
	text := read(t, "docs", "record.md")
	out, err := exec.Command("git", "-C", root, "grep", "-hoE", `^func Test\w+`, "--", "*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	tests, mutants := strings.Fields(string(out)), guard.FindAllString(markers(t), -1)
	for _, name := range regexp.MustCompile(`\bTest[A-Z]\w*`).FindAllString(text, -1) {
		if !slices.Contains(tests, name) {
			t.Errorf("%s is no test", name)
		}
	}
	list := regexp.MustCompile(`\bmutants? ([a-z0-9-]+(?:(?:, | and )[a-z0-9]+-[a-z0-9-]+)*)`)
	for _, m := range list.FindAllStringSubmatch(text, -1) {
		for _, name := range regexp.MustCompile(`[a-z0-9]+-[a-z0-9-]+`).FindAllString(m[1], -1) {
			if !slices.Contains(mutants, "mutant:"+name) {
				t.Errorf("%s is no mutant", name)
			}
		}
	}
}

// markers returns the lines that mark a guard.
func markers(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("git", "-C", root, "grep", "-hE", `^\s*(//|--)mutant:`, "--", "*.go", "*.lua").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func read(t *testing.T, names ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{root}, names...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
