//go:build !linux

package redistest

import "os/exec"

// dieWithParent does nothing: only Linux has a death signal. After a crash of the
// test process its servers must be killed by hand.
func dieWithParent(*exec.Cmd) {}
