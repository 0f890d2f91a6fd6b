package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// print writes v as one line of JSON, or as text. All commands print through
// it, so -json holds for each of them.
func (s *session) print(v any, text func(w *tabwriter.Writer)) error {
	if s.json {
		return json.NewEncoder(s.out).Encode(v)
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	text(w)
	return w.Flush()
}

// row writes cells that line up with those of the other rows.
func row(w *tabwriter.Writer, cells ...any) {
	words := make([]string, len(cells))
	for i, c := range cells {
		words[i] = fmt.Sprint(c)
	}
	fmt.Fprintln(w, strings.Join(words, "\t"))
}

// printable returns a key as it is where it is plain text, else quoted. Keys
// are often chosen by callers, so one may contain spaces, or a line of its own.
func printable(key string) string {
	quoted := fmt.Sprintf("%+q", key)
	if quoted == `"`+key+`"` && !strings.Contains(key, " ") {
		return key
	}
	return quoted
}

// word returns an argument that is no flag as a shell needs it.
func word(arg string) string {
	if strings.HasPrefix(arg, "-") {
		return "-- " + quoted(arg)
	}
	return quoted(arg)
}

// quoted returns an argument in the quotes that a shell needs, if it needs any.
func quoted(arg string) string {
	safe := func(r rune) bool {
		return r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("-_./:,=@%+", r)
	}
	//mutant:shell-quotes
	if arg != "" && strings.TrimFunc(arg, safe) == "" {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// terminal is a writer that passes text, and escapes the rest: control characters, bytes
// that are not UTF-8, and characters that reorder a line. Keys, stored values and
// messages of servers may contain them, and a terminal would obey. All that the command
// prints goes through one. An escape has the form that JSON has for it.
type terminal struct{ io.Writer }

func (t terminal) Write(b []byte) (int, error) {
	clean := make([]byte, 0, len(b))
	for rest := b; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		switch {
		case r == '\n' || r == '\t' || unicode.IsPrint(r) && (r != utf8.RuneError || n > 1):
			clean = append(clean, rest[:n]...)
		case n == 1 && r == utf8.RuneError:
			clean = fmt.Appendf(clean, `\x%02x`, rest[0])
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			clean = fmt.Appendf(clean, `\u%04x\u%04x`, high, low)
		default:
			clean = fmt.Appendf(clean, `\u%04x`, r)
		}
		rest = rest[n:]
	}
	if _, err := t.Writer.Write(clean); err != nil {
		return 0, err
	}
	return len(b), nil
}

// micros are the whole microseconds of a duration, as the store has them.
func micros(d time.Duration) int64 { return d.Microseconds() }
