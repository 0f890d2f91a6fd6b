//go:build gc

package memory

import (
	"syscall"
	"time"
)

// ticks is the processor's time stamp counter. It is not ordered with what is
// around it, which would take as long as the system's clock.
//
//go:noescape
func ticks() uint64

// features is CPUID.
//
//go:noescape
func features(leaf uint32) (eax, edx uint32)

// The leaf of CPUID that says whether the counter is invariant: goes on at one
// rate, whatever the core does (AMD64 Architecture Programmer's Manual, volume
// 3, appendix E.4.5; Intel SDM, volume 3, "Time-Stamp Counter").
const (
	extended  = 0x8000_0000
	power     = 0x8000_0007
	invariant = 1 << 8
)

// ticking reports whether the counter can tell time. In a bubble of
// testing/synctest it can't, since it does not follow the clock there, which is
// not the time of day.
func ticking() bool {
	var day syscall.Timeval
	if most, _ := features(extended); most < power || syscall.Gettimeofday(&day) != nil {
		return false
	}
	_, has := features(power)
	return has&invariant != 0 && time.Since(time.Unix(day.Unix())).Abs() < time.Minute
}
