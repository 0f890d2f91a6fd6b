//go:build !linux

package batch

import "runtime"

// osYield lets other goroutines run first. What lets other processes do so needs a system call
// that this system has under no common name.
func osYield() { runtime.Gosched() }
