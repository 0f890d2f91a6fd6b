//go:build race

package redistest

// Raced reports whether the race detector is on. It makes a test three to ten times as slow.
const Raced = true
