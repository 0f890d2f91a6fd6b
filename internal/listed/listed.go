// Package listed gives units their places in a list of policies by the policies' names. It
// also has the key by which a policy file passes the names of its policies to middleware.
package listed

import "slices"

// Policies is the key of a limiter's Value with the names of all policies of its file, a
// []string. A request of the limiter may lack some of them.
type Policies struct{}

// Units returns a copy of others with the units of each named policy at its place
// in names. nil others are 1 of each. missing is the first name, in alphabetical order, that is not in
// names; "" if all are. The others are in their places then too. A name may be listed several times.
func Units(names []string, others []int64, named map[string]int64) (units []int64, missing string) {
	if units = slices.Clone(others); others == nil {
		units = slices.Repeat([]int64{1}, len(names))
	}
	for name, n := range named {
		found := false
		for i := range units {
			if i < len(names) && names[i] == name {
				units[i], found = n, true
			}
		}
		//mutant:missing-name
		if !found && (missing == "" || name < missing) {
			missing = name
		}
	}
	return units, missing
}
