package script

import (
	"slices"
	"strings"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/slot"
)

// Prefix begins every stored key. It may not hold braces: the library's own
// hash tag is the first in a key, whatever the caller's key holds.
type Prefix string

// DefaultPrefix is used where the caller names none.
const DefaultPrefix Prefix = "headgate:"

// Check refuses a prefix that could choose the slot.
func (p Prefix) Check() error {
	for i := 0; i < len(p); i++ {
		if c := p[i]; c <= ' ' || c > '~' || c == '{' || c == '}' {
			return &backend.InvalidError{What: "prefix", Value: string(p), Want: "printable ASCII without spaces and braces"}
		}
	}
	if len(p) > 128 {
		return &backend.InvalidError{What: "prefix", Value: string(p), Want: "at most 128 bytes"}
	}
	return nil
}

// Tag returns what stands between the braces of a stored key; see slot.Tag.
func Tag(key, sub string) string { return slot.Tag(key, sub) }

// Hash returns where a key's small states lie: one hash, a field a policy.
func (p Prefix) Hash(tag string) string { return string(p.appendHash(nil, tag)) }

func (p Prefix) appendHash(b []byte, tag string) []byte {
	b = append(append(b, p...), '{')
	return append(append(b, tag...), '}')
}

// appendLog makes a hash's name that of a policy's log, in the same slot.
func appendLog(b []byte, policy string) []byte { return append(append(b, ":log:"...), policy...) }

// kindLetters begin the field names: two kinds under one policy name, as
// in a deploy that changes the algorithm, must not read each other's words.
const kindLetters = "?fstb"

func appendField(b []byte, p *backend.Policy) []byte {
	if k := p.Algorithm.Kind(); int(k) < len(kindLetters) { // a log has no field, and none can be named so
		b = append(b, kindLetters[k], ':')
	}
	return append(b, p.Name...)
}

// stored names where a value of the group may lie.
func (g *Group) stored(p Prefix) string {
	hash := p.appendHash(nil, g.Tag)
	var at []string
	for i := range g.Policies {
		name := hash
		if isLog(&g.Policies[i]) {
			name = appendLog(slices.Clip(hash), g.Policies[i].Name)
		}
		if s := string(name); !slices.Contains(at, s) {
			at = append(at, s)
		}
	}
	return strings.Join(at, " or ")
}

func isLog(p *backend.Policy) bool { return p.Algorithm.Kind() == algo.KindSlidingLog }
