package layer

import (
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// Alike reports whether two lists, which are not empty, decide alike. Nearly always they are
// one: the limiter's own.
func Alike(a, b []backend.Policy) bool {
	return len(a) == len(b) && (&a[0] == &b[0] || slices.EqualFunc(a, b, AlikePolicies))
}

// AlikePolicies reports whether two policies decide alike: they have one count and one limit.
func AlikePolicies(a, b backend.Policy) bool {
	//mutant:denied-algorithms
	return a.Name == b.Name && a.Algorithm.Equal(&b.Algorithm) && a.Shadow == b.Shadow
}

// SameKey reports whether two groups count on one key: a key that is spread otherwise has other
// counts.
func SameKey(a, b *backend.Group) bool {
	//mutant:one-spread-of-a-key
	return a.Key == b.Key && a.Shards == b.Shards
}
