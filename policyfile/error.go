package policyfile

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Error is what is wrong with a file, and where. Match it with errors.As; Err
// may match a type of package headgate.
type Error struct {
	File   string // as Parse or Load was given it
	Line   int    // from 1; 0 where the file has no line to name
	Column int    // from 1, in characters; 0 where it is not known
	Field  string // as "tenants.acme.policies.requests.limit"; "" for the whole file
	Err    error  // what is wrong there; an *headgate.InvalidError where a number is out of its range
}

// Error returns "file:line:column: field: what is wrong".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	for _, n := range []int{e.Line, e.Column} {
		if n > 0 {
			fmt.Fprintf(&b, ":%d", n)
		}
	}
	if e.Field != "" {
		b.WriteString(": " + e.Field)
	}
	return b.String() + ": " + oneLine(strings.TrimPrefix(e.Err.Error(), "headgate: "))
}

// oneLine escapes what a terminal or a log line would not show as it is, and cuts the
// text. All errors about a file's content pass here, whichever package made their text.
func oneLine(text string) string {
	const longest = 1000 // bytes, before they are escaped
	var b strings.Builder
	for i, r := range text {
		if i >= longest {
			return b.String() + "…"
		}
		if strconv.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// syntax converts the YAML library's error for a file that is not YAML. Its
// message would name neither the file nor the line in our form.
func syntax(file string, err error) *Error {
	e := &Error{File: file, Err: err}
	var load *yaml.LoadError
	if errors.As(err, &load) {
		e.Line, e.Column, e.Err = load.Mark.Line, load.Mark.Column, errors.New(load.Message)
	}
	return e
}
