//go:build race

package sim

// raced reports that the race detector is on, with which a seed takes ten times as long.
const raced = true
