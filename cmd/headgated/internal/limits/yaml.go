package limits

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Error is what is wrong with a file, and where.
type Error struct {
	File string
	Line int    // from 1; 0 if the file has no line to name
	Key  string // the YAML key; "" if the file is no YAML
	Err  error
}

// Error returns "file:line: key: what is wrong".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Key != "" {
		b.WriteString(": " + e.Key)
	}
	return b.String() + ": " + strings.TrimPrefix(e.Err.Error(), "headgate: ")
}

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// Bounds of a document. Aliases may make a small file a large or an endless one.
const (
	maxDepth = 64
	maxNodes = 2_000_000
)

// field is a key of a mapping with its value; the zero field is absent.
type field struct {
	file  string
	key   string
	line  int
	value *yaml.Node
}

func (f field) errorf(format string, args ...any) error {
	return &Error{File: f.file, Line: f.line, Key: f.key, Err: fmt.Errorf(format, args...)}
}

// document returns the first document of a file, and whether there is another.
func document(f File) (root *yaml.Node, more bool, err error) {
	var doc, next yaml.Node
	d := yaml.NewDecoder(strings.NewReader(string(f.Data)))
	if err := d.Decode(&doc); err != nil {
		e := &Error{File: f.Name, Err: err}
		var load *yaml.LoadError
		if errors.As(err, &load) {
			e.Line, e.Err = load.Mark.Line, errors.New(load.Message)
		}
		if err.Error() == "EOF" {
			e.Line, e.Key, e.Err = 1, "domain", errors.New("the file is empty")
		}
		return nil, false, e
	}
	return doc.Content[0], d.Decode(&next) == nil, nil
}

// resolve follows aliases.
func resolve(n *yaml.Node) *yaml.Node {
	for i := 0; n != nil && n.Kind == yaml.AliasNode && i < maxDepth; i++ {
		n = n.Alias
	}
	return n
}

func null(n *yaml.Node) bool {
	return n == nil || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// keys are the fields of each mapping. Those of other mappings are allowed, as
// envoyproxy/ratelimit allows them, and have no effect.
var (
	rootKeys       = []string{"domain", "descriptors"}
	descriptorKeys = []string{"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "metadata"}
	limitKeys      = []string{"unit", "unit_multiplier", "requests_per_unit", "unlimited", "name", "replaces", "algorithm", "zone", "anchor", "on_failure", "charge", "borrow"}
	replacesKeys   = []string{"name"}
	allKeys        = func() map[string]bool {
		all := map[string]bool{}
		for _, list := range [][]string{rootKeys, descriptorKeys, limitKeys, replacesKeys} {
			for _, k := range list {
				all[k] = true
			}
		}
		return all
	}()
)

// mapping reads the fields of a mapping. at is where the mapping stands.
func (p *parser) mapping(at field, known []string, depth int) (map[string]field, error) {
	n := resolve(at.value)
	if p.nodes++; p.nodes > maxNodes || depth > maxDepth {
		return nil, at.errorf("the file is too large or too deep")
	}
	if null(n) {
		return nil, nil
	}
	if n.Kind != yaml.MappingNode {
		return nil, field{at.file, at.key, n.Line, n}.errorf("%s where a mapping is wanted", kind(n))
	}
	fields := map[string]field{}
	var merges []field
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), n.Content[i+1]
		f := field{at.file, key.Value, n.Content[i].Line, value}
		if key.ShortTag() == "!!merge" {
			merges = append(merges, f)
			continue
		}
		if err := p.allowed(f, key, known); err != nil {
			return nil, err
		}
		if _, twice := fields[f.key]; twice {
			p.warn(f, "given twice; the last one counts")
		}
		fields[f.key] = f
	}
	for _, f := range merges { // the mapping's own fields stand above them
		if err := p.merge(fields, f, known, depth); err != nil {
			return nil, err
		}
	}
	return fields, nil
}

// merge adds the fields of YAML's merge key that the mapping does not have.
func (p *parser) merge(fields map[string]field, f field, known []string, depth int) error {
	sources := []*yaml.Node{f.value}
	if n := resolve(f.value); n.Kind == yaml.SequenceNode {
		sources = n.Content
	}
	for _, n := range sources {
		merged, err := p.mapping(field{f.file, f.key, f.line, n}, known, depth+1)
		if err != nil {
			return err
		}
		for k, v := range merged {
			if _, has := fields[k]; !has {
				fields[k] = v
			}
		}
	}
	return nil
}

func (p *parser) allowed(f field, key *yaml.Node, known []string) error {
	if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
		return f.errorf("the key is no string")
	}
	for _, k := range known {
		if k == f.key {
			return nil
		}
	}
	if !allKeys[f.key] {
		return f.errorf("unknown key; want one of %s", strings.Join(known, ", "))
	}
	p.warn(f, "has no effect here")
	return nil
}

func (p *parser) warn(f field, what string) {
	p.config.Warnings = append(p.config.Warnings, fmt.Sprintf("%s:%d: %s: %s", f.file, f.line, f.key, what))
}

// list returns the mappings of a sequence.
func (f field) list() ([]*yaml.Node, error) {
	n := resolve(f.value)
	if null(n) {
		return nil, nil
	}
	if n.Kind != yaml.SequenceNode {
		return nil, f.errorf("%s where a list is wanted", kind(n))
	}
	for _, e := range n.Content {
		if r := resolve(e); r.Kind != yaml.MappingNode {
			return nil, field{f.file, f.key, e.Line, e}.errorf("%s in the list, where a mapping is wanted", kind(r))
		}
	}
	return n.Content, nil
}

// text returns a string, or what a number or a truth value was written as.
func (f field) text() (string, error) {
	n := resolve(f.value)
	if null(n) {
		return "", nil
	}
	if n.Kind != yaml.ScalarNode {
		return "", f.errorf("%s where a string is wanted", kind(n))
	}
	if n.ShortTag() == "!!float" {
		return "", f.errorf("the number %s where a string is wanted; put it in quotes", n.Value)
	}
	return n.Value, nil
}

// truth returns a truth value, by the words of YAML 1.1.
func (f field) truth() (bool, error) {
	n := resolve(f.value)
	if null(n) {
		return false, nil
	}
	plain := n.Kind == yaml.ScalarNode && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0
	switch word := strings.ToLower(n.Value); {
	case plain && (word == "true" || word == "yes" || word == "on" || word == "y"):
		return true, nil
	case plain && (word == "false" || word == "no" || word == "off" || word == "n"):
		return false, nil
	}
	return false, f.errorf("%s where true or false is wanted", kind(n))
}

// number returns a whole number of 32 bits.
func (f field) number() (uint32, error) {
	n := resolve(f.value)
	if null(n) {
		return 0, nil
	}
	var v int64
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Decode(&v) != nil || v < 0 || v > math.MaxUint32 {
		return 0, f.errorf("%s where a whole number from 0 to %d is wanted", kind(n), uint32(math.MaxUint32))
	}
	return uint32(v), nil
}

// kind describes a node in an error.
func kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return fmt.Sprintf("%q", n.Value)
}
