package layer

import (
	"iter"

	"github.com/headgate-go/headgate/backend"
)

// Enforced yields the policies of a list that can deny a call, which are all but the shadows.
func Enforced(list []backend.Policy) iter.Seq2[int, *backend.Policy] {
	return func(yield func(int, *backend.Policy) bool) {
		for i := range list {
			//mutant:enforced-policies
			if p := &list[i]; !p.Shadow && !yield(i, p) {
				return
			}
		}
	}
}

// enforces reports whether a list has a policy that can deny a call.
func enforces(list []backend.Policy) bool {
	for range Enforced(list) {
		return true
	}
	return false
}
