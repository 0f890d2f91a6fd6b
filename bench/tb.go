package main

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// tb is as much of a testing.TB as redistest uses, so that the benchmark starts
// its servers as the tests do. A method that it lacks is that of the nil
// interface, which panics. Then redistest uses a new one, and tb needs it too.
type tb struct {
	testing.TB
	cleanups []func()
}

func (*tb) Helper() {}

func (s *tb) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *tb) TempDir() string {
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Fatal ends the benchmark: half of the figures would only mislead.
func (s *tb) Fatal(args ...any) {
	s.close()
	fmt.Fprintln(os.Stderr, append([]any{"bench:"}, args...)...)
	os.Exit(1)
}

func (s *tb) Fatalf(format string, args ...any) { s.Fatal(fmt.Sprintf(format, args...)) }

// Skipf is a failure too: there is nothing else to measure on.
func (s *tb) Skipf(format string, args ...any) { s.Fatalf(format, args...) }

// close undoes what was set up, the last first.
func (s *tb) close() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
	s.cleanups = nil
}
