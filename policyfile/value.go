package policyfile

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// value is a node of the file and the field that it is the value of. It carries
// what an error needs, so no function below takes a path.
type value struct {
	file  string
	field string
	node  *yaml.Node
}

// below returns the value of a field of v.
func (v value) below(key string, node *yaml.Node) value {
	key = shown(key)
	if v.field != "" {
		key = v.field + "." + key
	}
	return value{v.file, key, node}
}

// errorf returns an error at v.
func (v value) errorf(format string, args ...any) *Error { return v.error(fmt.Errorf(format, args...)) }

func (v value) error(err error) *Error {
	return &Error{File: v.file, Line: v.node.Line, Column: v.node.Column, Field: v.field, Err: err}
}

// unknown returns the error for a word at v that is none of the known ones. It
// lists these, since a typing error is the usual cause, and cuts the word at 80
// characters.
func (v value) unknown(what, word string, known []string) *Error {
	return v.errorf("unknown %s %.80q; want %s", what, word, oneOf(known))
}

// missing returns the error for a field that v lacks.
func (v value) missing(key, want string) *Error {
	return v.below(key, v.node).errorf("missing; want %s", want)
}

// target follows aliases: the fields of the value may stand elsewhere in the
// file, under an anchor.
func (v value) target() *yaml.Node {
	n := v.node
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// each calls f for each field of a mapping, in the file's order. A value that
// is null has none, as "paid:" with nothing below it. Fields given twice are
// refused here, as the library's nodes still have both.
func (v value) each(f func(key string, field value) error) error {
	n := v.target()
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return v.errorf("%s; want fields with values", kind(n))
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, at := n.Content[i], v.below(n.Content[i].Value, n.Content[i])
		switch {
		case k.Kind != yaml.ScalarNode || k.Value == "":
			return value{v.file, v.field, k}.errorf("%s; want the name of a field", kind(k))
		case k.Tag == "!!merge":
			return at.errorf("a merge key; want each field by its name")
		case seen[k.Value]:
			return at.errorf("given twice")
		}
		seen[k.Value] = true
		if err := f(k.Value, v.below(k.Value, n.Content[i+1])); err != nil {
			return err
		}
	}
	return nil
}

// isNames reports whether v is a list, as of a plan's policies.
func (v value) isNames() bool { return v.target().Kind == yaml.SequenceNode }

// names returns the elements of a list of names.
func (v value) names() (all []value, err error) {
	for i, n := range v.target().Content {
		e := v.below(strconv.Itoa(i), n)
		if _, err := e.text(); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// isText reports whether v is a single word or number.
func (v value) isText() bool {
	n := v.target()
	return n.Kind == yaml.ScalarNode && n.Tag != "!!null"
}

// text returns a name: what the file has, also where it looks like a number.
func (v value) text() (string, error) {
	if n := v.target(); !v.isText() || n.Value == "" {
		return "", v.errorf("%s; want a name", kind(n))
	}
	return v.target().Value, nil
}

// number returns a whole number in decimal, with or without underscores. YAML's
// other integers, as 0x10 and 017, are refused: a reader may take 017 for
// seventeen.
func (v value) number() (int64, error) {
	n := v.target()
	digits := strings.ReplaceAll(n.Value, "_", "")
	i, err := strconv.ParseInt(digits, 10, 64)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil || strconv.FormatInt(i, 10) != digits {
		return 0, v.errorf("%s; want a whole number", kind(n))
	}
	return i, nil
}

// limit returns a limit. Files of other programs have null for none, so an error names the
// words.
func (v value) limit() (int64, error) {
	i, err := v.number()
	if err != nil {
		return 0, v.errorf("%s; want a whole number, %s or %s", kind(v.target()), unlimited, blocked)
	}
	return i, nil
}

// nearestInt returns n, cut to the range of an int. A number that is cut is out of the
// range of every field.
func nearestInt(n int64) int { return int(max(math.MinInt, min(n, math.MaxInt))) }

// flag returns true or false. Their other spellings, as yes and on, are refused.
func (v value) flag() (bool, error) {
	n := v.target()
	on, err := strconv.ParseBool(n.Value)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || err != nil {
		return false, v.errorf("%s; want true or false", kind(n))
	}
	return on, nil
}

const day = 24 * time.Hour

// duration returns a Go duration, or a number of days as "30d". Go has no unit
// above the hour, and periods of quotas are days. A number without a unit is
// refused.
func (v value) duration() (time.Duration, error) {
	n := v.target()
	if days, ok := strings.CutSuffix(n.Value, "d"); ok {
		if i, err := strconv.ParseUint(days, 10, 16); err == nil {
			return time.Duration(i) * day, nil
		}
	}
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		return 0, v.errorf("%s; want a duration of at most 400d with its unit, as 500ms, 1m or 30d", kind(n))
	}
	return d, nil
}

// kind says what a node is, for errors.
func kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "fields"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "nothing"
	}
	return fmt.Sprintf("%.80q", n.Value)
}

// sorted returns the keys of a map in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// shown is a name of the file as an error has it. It is quoted where it has what a
// terminal or a log line would not show as it is. It is cut at 80 characters. The
// default plan is "(default)".
func shown(name string) string {
	const longest = 80
	if name == "" {
		return "(default)"
	}
	cut := name
	if len(cut) > longest {
		cut = fmt.Sprintf("%.80s…", name)
	}
	if strings.ContainsFunc(cut, func(r rune) bool { return !strconv.IsPrint(r) || r == utf8.RuneError }) {
		return strconv.Quote(cut)
	}
	return cut
}

// oneOf joins words as "a, b or c".
func oneOf(words []string) string {
	const most = 50 // of thousands of plans, the first
	if len(words) == 0 {
		return "none"
	}
	all := words
	if words = nil; len(all) > most {
		all = all[:most]
	}
	for _, w := range all {
		words = append(words, shown(w))
	}
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
