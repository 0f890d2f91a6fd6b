//go:build go1.26

package lua

import "crypto/fips140"

// unenforced runs f without strict FIPS 140-3 enforcement.
func unenforced(f func()) { fips140.WithoutEnforcement(f) }
