package limits

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate-go/headgate/internal/file"
)

// maxFiles is how many files a folder may have.
const maxFiles = 10_000

// Read reads a file, or each file of a folder and of the folders in it, in the order of their
// names. Hidden files and folders are left out: a volume of Kubernetes has its versions
// there. The warnings name those, unless they begin with two dots as such versions do. A
// folder without files is an error, since it would switch all limits off.
func Read(path string) (files []File, warnings []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.IsDir() {
		f, err := readFile(path, path)
		return []File{f}, nil, err
	}
	w := walk{seen: map[string]bool{}}
	err = w.folder(path, path)
	//mutant:no-empty-folder
	if err == nil && len(w.files) == 0 {
		err = fmt.Errorf("%s: no file of limits", path)
	}
	return w.files, w.warnings, err
}

// walk is one reading of a folder.
type walk struct {
	files    []File
	warnings []string
	seen     map[string]bool // folders, without links: one may link to a folder above it
}

// folder reads a folder. It resolves links once, so that all files are of one version if a
// link to it changes meanwhile.
func (w *walk) folder(path, shown string) error {
	root, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	//mutant:folders-once
	if w.seen[root] {
		w.warnings = append(w.warnings, shown+" is not read: it links to a folder that is read already")
		return nil
	}
	w.seen[root] = true
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := w.entry(filepath.Join(root, e.Name()), filepath.Join(shown, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// entry reads a file or a folder of a folder.
func (w *walk) entry(path, shown string) error {
	name := filepath.Base(path)
	//mutant:hidden-left-out
	if strings.HasPrefix(name, ".") {
		if !strings.HasPrefix(name, "..") {
			w.warnings = append(w.warnings, shown+" is not read: it is hidden")
		}
		return nil
	}
	info, err := os.Stat(path) // of what a link points to
	if err != nil {
		return err
	}
	if info.IsDir() {
		return w.folder(path, shown)
	}
	f, err := readFile(path, shown)
	if err != nil {
		return err
	}
	if w.files = append(w.files, f); len(w.files) > maxFiles {
		return fmt.Errorf("more than %d files", maxFiles)
	}
	return nil
}

func readFile(path, name string) (File, error) {
	data, err := file.Read(path)
	return File{name, data}, err
}

// Same reports whether two readings have the same files with the same bytes.
func Same(a, b []File) bool {
	return slices.EqualFunc(a, b, func(a, b File) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) })
}
