//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package memory

import (
	"errors"
	"os"
	"syscall"
)

// lockFile returns the file with a lock that ends with the process, or with its Close. The
// error is errLocked if another one has it.
func lockFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	//mutant:file-locked
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, err
	}
	return f, nil
}

// syncFolder makes a rename in a folder last.
func syncFolder(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}
