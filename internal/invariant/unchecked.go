//go:build !race && !invariants

package invariant

// Checked reports whether invariants are checked.
const Checked = false
