// Package invariant checks in tests what comments of the code state. It does so under the race
// detector, and with the build tag invariants, which the simulator's tests set. A build with
// neither contains no check: each stands behind Checked, which is a constant.
package invariant

import "runtime/debug"

// Holds ends the process if an invariant is broken. It panics on a goroutine of its own, since
// the caller may stand below a recover.
func Holds(holds bool, what string) {
	if !holds {
		go panic("headgate: broken invariant: " + what + "\n" + string(debug.Stack()))
		select {}
	}
}
