//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package memory

import (
	"errors"
	"os"
)

// lockFile fails: without a lock two stores would write one file.
func lockFile(name string) (*os.File, error) {
	return nil, &os.PathError{Op: "lock", Path: name, Err: errors.ErrUnsupported}
}

func syncFolder(string) error { return nil }
