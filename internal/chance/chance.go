// Package chance is the library's chance that needs no secrecy: jitter,
// and choices between equals. It is math/rand/v2, except under the simulator.
package chance

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

var fixed atomic.Pointer[func() uint64]

// Fix makes draw the source of all numbers of this process. It is for the simulator,
// whose runs follow from a seed.
func Fix(draw func() uint64) { fixed.Store(&draw) }

// Uint64 returns any number.
func Uint64() uint64 {
	if draw := fixed.Load(); draw != nil {
		return (*draw)()
	}
	return rand.Uint64()
}

// IntN returns a number from 0 to n-1, for an n above 0.
func IntN(n int) int {
	if fixed.Load() != nil {
		return int(Uint64() % uint64(n))
	}
	return rand.IntN(n)
}

// Duration returns a duration from 0 to d-1, for a d above 0.
func Duration(d time.Duration) time.Duration {
	if fixed.Load() != nil {
		return time.Duration(Uint64() % uint64(d))
	}
	return rand.N(d)
}
