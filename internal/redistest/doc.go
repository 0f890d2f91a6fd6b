// Package redistest starts, inspects and breaks real Redis servers for tests.
// It needs a Unix system.
//
// It has no fake server. A fake formats numbers, cuts fractions and expires
// keys in its own way, and so hides mistakes that a script makes on a real one.
//
// On Linux every process that a test starts here dies with the test process,
// even after a panic, a timeout or SIGKILL.
package redistest

import "os"

// Long reports whether tests run at full length: `make test-long` sets
// HEADGATE_LONG. Otherwise each test takes the fewest steps that show its
// subject.
func Long() bool { return os.Getenv("HEADGATE_LONG") != "" }

// Steps returns short, or long where tests run at full length.
func Steps(short, long int) int {
	if Long() {
		return long
	}
	return short
}
