package logs

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/headgate-go/headgate/middleware/httplimit"
)

// template makes a text of a line's fields: "remote", "header:X-API-Key", another field's name, or
// several in braces with text between them, such as "{user}|{path}".
//
// Of several fields no two lines get one text by chance. A byte of a value that is one of the text
// between, or a %, is written as %2F is.
type template struct {
	pieces []piece
	escape [256]bool
	many   bool
}

// piece is text, or the value of a field.
type piece struct {
	text   string
	value  int // its place among the values
	field  bool
	remote bool
	path   bool // without its query
}

// newTemplate reads a template. add returns the place of a field's value.
func newTemplate(text string, add func(want) int) (*template, error) {
	t := &template{}
	if !strings.ContainsAny(text, "{}") {
		if text == "" {
			return nil, fmt.Errorf("want a field, or a template such as {remote}|{path}")
		}
		t.pieces = []piece{fieldOf(text, add)}
		return t, nil
	}
	fields := 0
	for rest := text; rest != ""; {
		before, after, open := strings.Cut(rest, "{")
		if before != "" {
			t.pieces = append(t.pieces, piece{text: before})
		}
		if !open {
			break
		}
		name, next, closed := strings.Cut(after, "}")
		if !closed || name == "" || strings.ContainsAny(before+name, "{}") {
			return nil, fmt.Errorf("%.80q: want fields in braces, such as {remote}|{path}", text)
		}
		if n := len(t.pieces); n > 0 && t.pieces[n-1].field {
			return nil, fmt.Errorf("%.80q: want text between two fields, or two values may be one key", text)
		}
		t.pieces = append(t.pieces, fieldOf(name, add))
		rest = next
		fields++
	}
	if fields == 0 {
		return nil, fmt.Errorf("%.80q: want at least one field in braces", text)
	}
	t.escapes(fields)
	return t, nil
}

func (t *template) escapes(fields int) {
	if t.many = fields > 1; !t.many {
		return
	}
	t.escape['%'] = true
	for _, p := range t.pieces {
		for _, c := range []byte(p.text) {
			t.escape[c] = true
		}
	}
}

// fieldOf returns the piece of a field's name.
func fieldOf(name string, add func(want) int) piece {
	w := want{name: name}
	if header, ok := strings.CutPrefix(name, "header:"); ok {
		w = want{name: header, header: true}
	}
	return piece{value: add(w), field: true, remote: name == "remote", path: name == "path"}
}

// single returns the field that is all of the text, or nil.
func (t *template) single() *piece {
	if len(t.pieces) == 1 && !t.pieces[0].path {
		return &t.pieces[0]
	}
	return nil
}

// appendTo appends the text of a line. It reports whether the line has all fields.
func (t *template) appendTo(to []byte, values [][]byte) ([]byte, bool) {
	for i := range t.pieces {
		p := &t.pieces[i]
		if !p.field {
			to = append(to, p.text...)
			continue
		}
		value := values[p.value]
		if p.remote {
			value = client(value)
		}
		if p.path {
			value, _, _ = bytes.Cut(value, []byte{'?'})
		}
		if len(value) == 0 {
			return to, false
		}
		if !t.many {
			to = append(to, value...)
			continue
		}
		for _, c := range value {
			if t.escape[c] {
				to = fmt.Appendf(to, "%%%02X", c)
			} else {
				to = append(to, c)
			}
		}
	}
	return to, true
}

// client returns a client's address as httplimit.RemoteAddr counts it: of IPv6 its network, and
// without a port. What is no address, such as the name of a host, stays as it is.
func client(text []byte) []byte {
	if a, err := netip.ParseAddr(string(text)); err == nil && a.Is4() { // the form is the same
		return text
	}
	key, err := remoteAddr.Of(&http.Request{RemoteAddr: string(text)})
	if err != nil || key == "" {
		return text
	}
	return []byte(strings.TrimPrefix(key, "ip:"))
}

var remoteAddr = httplimit.RemoteAddr()
