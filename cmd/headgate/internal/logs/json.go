package logs

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"
)

// object reads one JSON object per line. A field's name is its key, or the keys of the objects
// that it is in, with dots between: request.headers.User-Agent. Of a list it is the first element.
type object struct {
	root  branch
	wants [][]int  // by value: places in found, the one that counts most first
	found [][]byte // nil: the line has no such field
	text  []byte   // the line
	at    int
}

// branch is a key of which values are wanted, or those below it.
type branch struct {
	name  string
	found int // a place in found, or -1
	below []*branch
}

// newObject returns a parser of fields that have several names, the one that counts most first.
func newObject(names [][]string) *object {
	o := &object{root: branch{found: -1}}
	for _, of := range names {
		var places []int
		for _, name := range of {
			places = append(places, o.place(strings.Split(name, ".")))
			if strings.Contains(name, ".") { // a key may have a dot
				places = append(places, o.place([]string{name}))
			}
		}
		o.wants = append(o.wants, places)
	}
	return o
}

// place returns where the value of a path is put.
func (o *object) place(path []string) int {
	b := &o.root
	for _, name := range path {
		next := b.at([]byte(name))
		if next == nil {
			next = &branch{name: name, found: -1}
			b.below = append(b.below, next)
		}
		b = next
	}
	if b.found < 0 {
		b.found = len(o.found)
		o.found = append(o.found, nil)
	}
	return b.found
}

func (b *branch) at(name []byte) *branch {
	if b != nil {
		for _, next := range b.below {
			if next.name == string(name) {
				return next
			}
		}
	}
	return nil
}

var (
	errNoObject = errors.New("no JSON object")
	errJSON     = errors.New("JSON that is cut or wrong")
	errText     = errors.New("a text that is not Unicode")
	errDeep     = errors.New("JSON of more than 100 levels")
)

// hidden is what Caddy and Traefik write in place of a header that is secret.
const hidden = "REDACTED"

func (o *object) parse(line []byte, values [][]byte) error {
	clear(o.found)
	o.text, o.at = line, 0
	if o.space() != '{' {
		return errNoObject
	}
	if err := o.value(&o.root, 0); err != nil {
		return err
	}
	if o.space() != 0 || o.at < len(line) {
		return errJSON
	}
	for i, places := range o.wants {
		values[i] = nil
		for _, place := range places {
			if v := o.found[place]; len(v) > 0 && string(v) != hidden {
				values[i] = v
				break
			}
		}
	}
	return nil
}

// space skips white space, and returns the byte after it, 0 at the end.
func (o *object) space() byte {
	for ; o.at < len(o.text); o.at++ {
		if c := o.text[o.at]; c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c
		}
	}
	return 0
}

// value reads a value. b is nil if no part of it is wanted.
func (o *object) value(b *branch, depth int) error {
	if depth > 100 {
		return errDeep
	}
	switch c := o.space(); c {
	case '{':
		return o.members(b, depth)
	case '[':
		return o.elements(b, depth)
	case '"':
		text, err := o.string(b != nil && b.found >= 0)
		o.set(b, text)
		return err
	case 0:
		return errJSON
	}
	begin := o.at
	for o.at < len(o.text) && !bytes.ContainsRune([]byte(",]} \t\r\n"), rune(o.text[o.at])) {
		o.at++
	}
	plain := o.text[begin:o.at]
	switch {
	case string(plain) == "null":
		return nil
	case string(plain) == "true" || string(plain) == "false" || isNumber(plain):
		o.set(b, plain)
		return nil
	}
	return errJSON
}

func (o *object) set(b *branch, text []byte) {
	if b != nil && b.found >= 0 {
		o.found[b.found] = text
	}
}

// members reads the fields of an object. Of a key that is given twice the last one counts.
func (o *object) members(b *branch, depth int) error {
	o.at++
	if o.space() == '}' {
		o.at++
		return nil
	}
	for {
		if o.space() != '"' {
			return errJSON
		}
		name, err := o.string(true)
		if err != nil {
			return err
		}
		if o.space() != ':' {
			return errJSON
		}
		o.at++
		if err := o.value(b.at(name), depth+1); err != nil {
			return err
		}
		if more, err := o.more('}'); !more {
			return err
		}
	}
}

// elements reads those of a list.
func (o *object) elements(b *branch, depth int) error {
	o.at++
	if o.space() == ']' {
		o.at++
		return nil
	}
	for first := true; ; first = false {
		if !first {
			b = nil
		}
		if err := o.value(b, depth+1); err != nil {
			return err
		}
		if more, err := o.more(']'); !more {
			return err
		}
	}
}

// more reports whether another element follows, or else skips the end.
func (o *object) more(end byte) (bool, error) {
	switch c := o.space(); c {
	case ',':
		o.at++
		return true, nil
	case end:
		o.at++
		return false, nil
	}
	return false, errJSON
}

// string reads a string, and returns its text if it is wanted.
func (o *object) string(wanted bool) (text []byte, err error) {
	begin := o.at
	end := closing(o.text, begin+1)
	if end < 0 {
		return nil, errJSON
	}
	o.at = end + 1
	text = o.text[begin+1 : end]
	for _, c := range text {
		if c < ' ' {
			return nil, errJSON
		}
	}
	if !wanted || bytes.IndexByte(text, '\\') < 0 {
		return text, nil
	}
	return unescaped(text)
}

// unescaped returns a text without its escapes. Bytes that are not UTF-8 stay, and half a character
// is refused: package json makes U+FFFD of both, and so one key of several.
func unescaped(text []byte) (all []byte, err error) {
	for len(text) > 0 {
		n := 0
		for n < len(text) {
			r, size := utf8.DecodeRune(text[n:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			n += size
		}
		var piece string
		if err := json.Unmarshal([]byte(`"`+string(text[:n])+`"`), &piece); err != nil {
			return nil, errJSON
		}
		//mutant:no-text-becomes-another
		if strings.Contains(piece, "\ufffd") && !bytes.Contains(text, []byte("\ufffd")) && !bytes.Contains(bytes.ToLower(text), []byte(`\ufffd`)) {
			return nil, errText
		}
		all = append(all, piece...)
		if n < len(text) {
			all = append(all, text[n])
			n++
		}
		text = text[n:]
	}
	return all, nil
}

// isNumber reports whether a text is a number of JSON, nearly: readers of numbers are stricter.
func isNumber(text []byte) bool {
	for i, c := range text {
		if (c < '0' || c > '9') && c != '.' && c != 'e' && c != 'E' && c != '+' && (c != '-' || i > 0 && text[i-1]|' ' != 'e') {
			return false
		}
	}
	return len(text) > 0 && (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && text[len(text)-1] >= '0' && text[len(text)-1] <= '9'
}
