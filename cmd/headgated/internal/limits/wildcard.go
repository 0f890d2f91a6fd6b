package limits

import (
	"bytes"
	"strings"
)

// star is any number of bytes of a name, also none.
const star = "*"

// wildcard is a child whose name has stars.
type wildcard struct {
	parts [][]byte // the name without its stars: at least two
	node  *node
}

func newWildcard(n *node) wildcard {
	var parts [][]byte
	for _, part := range strings.Split(n.name, star) {
		parts = append(parts, []byte(part))
	}
	return wildcard{parts, n}
}

// match reports whether a name has the parts in their order, the first at its begin and the
// last at its end. Where a part between them stands more than once, the first place serves:
// it leaves the most bytes to the others.
func (w *wildcard) match(name []byte) bool {
	first, last := w.parts[0], w.parts[len(w.parts)-1]
	//mutant:wildcard-ends-apart
	if len(name) < len(first)+len(last) {
		return false
	}
	if !bytes.HasPrefix(name, first) || !bytes.HasSuffix(name, last) {
		return false
	}
	name = name[len(first) : len(name)-len(last)]
	for _, part := range w.parts[1 : len(w.parts)-1] {
		at := bytes.Index(name, part)
		if at < 0 {
			return false
		}
		name = name[at+len(part):]
	}
	return true
}
