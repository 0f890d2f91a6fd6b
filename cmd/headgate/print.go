package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
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
// are often chosen by callers, so one may contain control characters for the
// reader's terminal.
func printable(key string) string {
	quoted := fmt.Sprintf("%+q", key)
	if quoted == `"`+key+`"` && !strings.Contains(key, " ") {
		return key
	}
	return quoted
}

// micros are the whole microseconds of a duration, as the store has them.
func micros(d time.Duration) int64 { return d.Microseconds() }
