package arch

import (
	"go/build"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestEveryTestFileIsBuilt: on the newest Go no test file of any module is left out by a
// build constraint, with or without the race detector. Older releases of Go leave some
// out on purpose.
func TestEveryTestFileIsBuilt(t *testing.T) {
	if runtime.GOOS != "linux" || !slices.Contains(build.Default.ReleaseTags, "go1.26") {
		t.Skip("not the newest Go, or not the system that CI has")
	}
	plain, race := build.Default, build.Default
	race.BuildTags = []string{"race"}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		built := false
		for _, c := range []build.Context{plain, race} {
			match, err := c.MatchFile(filepath.Dir(path), d.Name())
			if err != nil {
				return err
			}
			built = built || match
		}
		if !built {
			t.Errorf("%s is built by no test run", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestActionsArePinned: an action of a workflow is named by its commit, since a tag can be
// moved.
func TestActionsArePinned(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, ".github/workflows/ci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	pinned := regexp.MustCompile(`uses: [\w/-]+@[0-9a-f]{40} # v[\d.]+$`)
	for line := range strings.SplitSeq(string(text), "\n") {
		if strings.Contains(line, "uses:") && !pinned.MatchString(line) {
			t.Errorf("not pinned:%s", line)
		}
	}
}
