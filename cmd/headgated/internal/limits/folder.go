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

// Read reads a file, or each file of a folder in the order of their names. Hidden files
// and folders are left out: a volume of Kubernetes has its versions there. A folder without
// files is an error, since it would switch all limits off.
func Read(path string) ([]File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		f, err := readFile(path, path)
		return []File{f}, err
	}
	return readFolder(path)
}

// readFolder resolves the folder once, so that all files are of one version if a link
// to it changes meanwhile.
func readFolder(path string) ([]File, error) {
	root, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var files []File
	for _, e := range entries {
		//mutant:hidden-left-out
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		name := filepath.Join(root, e.Name())
		info, err := os.Stat(name) // of what a link points to
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			continue
		}
		f, err := readFile(name, filepath.Join(path, e.Name()))
		if err != nil {
			return nil, err
		}
		if files = append(files, f); len(files) > maxFiles {
			return nil, fmt.Errorf("%s: more than %d files", path, maxFiles)
		}
	}
	//mutant:no-empty-folder
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no file of limits", path)
	}
	return files, nil
}

func readFile(path, name string) (File, error) {
	data, err := file.Read(path)
	return File{name, data}, err
}

// Same reports whether two readings have the same files with the same bytes.
func Same(a, b []File) bool {
	return slices.EqualFunc(a, b, func(a, b File) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) })
}
