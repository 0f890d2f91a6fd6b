package limits

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// Match is what a descriptor matched.
type Match struct {
	Rule  *Rule  // nil if no limit applies
	Key   string // of the count; "" if nothing is counted
	Path  string // the rule's Label, or that of the limits that requests bring
	Label string // Path with the values that detailed_metric and value_to_metric add
}

// step is an entry of a descriptor with the node that it matched.
type step struct {
	node       *node
	key, value string
	shared     bool // the node's share stands for the value
}

// Find returns the limit of a descriptor. A descriptor matches if the path of its
// entries ends at a rate_limit. At each level "key_value" is tried first, then the
// wildcards in the file's order, then only the key.
func (c *Config) Find(domain string, d *common.RateLimitDescriptor) (Match, error) {
	n := c.domains[domain]
	if n == nil {
		return Match{}, nil
	}
	if d.GetLimit() != nil {
		return c.override(domain, d)
	}
	var buffer [8]step
	steps, valued := buffer[:0], false
	for _, e := range d.GetEntries() {
		s := step{key: e.GetKey(), value: e.GetValue()}
		if s.node, s.shared = n.child(s.key, s.value); s.node == nil {
			return Match{}, nil
		}
		valued = valued || s.node.valueToMetric
		steps, n = append(steps, s), s.node
	}
	if n.rule == nil {
		return Match{}, nil
	}
	m := Match{Rule: n.rule, Path: n.rule.Label, Label: n.rule.Label}
	if n.rule.Limiter != nil {
		m.Key = countKey(domain, steps)
	}
	if n.rule.detailed || valued {
		m.Label = label(domain, steps, n.rule.detailed)
	}
	return m, nil
}

// child returns the child that an entry matches, and whether the values that match it
// share a count.
func (n *node) child(key, value string) (*node, bool) {
	var buffer [128]byte
	name := append(append(append(buffer[:0], key...), '_'), value...)
	if child := n.children[string(name)]; child != nil {
		return child, false
	}
	for i := range n.wildcards {
		if w := &n.wildcards[i]; w.match(name) {
			return w.node, w.node.share != ""
		}
	}
	return n.children[key], false
}

// maxKey is the length of the longest key of a count. A longer one is hashed.
const maxKey = 1024

// countKey joins domain and entries as headgate.Key does.
func countKey(domain string, steps []step) string {
	var buffer [256]byte
	b := appendPart(buffer[:0], domain)
	for i := range steps {
		s := &steps[i]
		value := s.value
		if s.shared {
			value = s.node.share
		}
		b = appendPart(append(appendPart(append(b, ':'), s.key), ':'), value)
	}
	if len(b) > maxKey { // no escaped key has a '%' before an 's'
		sum := sha256.Sum256(b)
		return "%sha256:" + hex.EncodeToString(sum[:])
	}
	return string(b)
}

// appendPart appends a part of a key, escaped as headgate.Key does.
func appendPart(b []byte, part string) []byte {
	for i := 0; i < len(part); i++ {
		switch c := part[i]; c {
		case ':':
			b = append(b, "%3A"...)
		case '%':
			b = append(b, "%25"...)
		default:
			b = append(b, c)
		}
	}
	return b
}

// label returns the path of a descriptor with all values, or with those of the nodes
// that have value_to_metric.
func label(domain string, steps []step, all bool) string {
	var b strings.Builder
	b.WriteString(domain)
	for i := range steps {
		s := &steps[i]
		b.WriteByte('.')
		switch {
		case s.shared:
			b.WriteString(s.key + "_" + s.node.share)
		case (all || s.node.valueToMetric) && s.value != "":
			b.WriteString(s.key + "_" + s.value)
		case all:
			b.WriteString(s.key)
		default:
			b.WriteString(s.node.name)
		}
	}
	return b.String()
}
