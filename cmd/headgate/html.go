package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/headgate-go/headgate/cmd/headgate/internal/page"
	"github.com/headgate-go/headgate/cmd/headgate/internal/replay"
)

// htmlFile is the file of -html. Without the flag it is nil. It is written beside its place and
// moved there as a whole: what was there stays if the replay fails. Only its owner can read it, as
// it may have keys.
type htmlFile struct {
	path string
	file *os.File
	note func(string)
}

// newPage opens the file, so that it is known before the replay that it can be written.
func (s *session) newPage(logs []string) (*htmlFile, error) {
	path := s.replay.html
	if path == "" {
		return nil, nil
	}
	if there, err := os.Stat(path); err == nil {
		for _, name := range append([]string{s.policies, s.replay.against}, logs...) {
			//mutant:html-replaces-no-input
			if in, err := os.Stat(name); err == nil && os.SameFile(there, in) {
				return nil, fmt.Errorf("-html %s: the replay reads this file", printable(path))
			}
		}
		if !there.Mode().IsRegular() {
			return nil, fmt.Errorf("-html %s: want a regular file", printable(path))
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".headgate-*.html")
	if err != nil {
		return nil, fmt.Errorf("-html: %w", err)
	}
	return &htmlFile{path, f, func(text string) { fmt.Fprintln(s.notes, text) }}, nil
}

// remove removes the file unless it was moved to its place.
func (h *htmlFile) remove() {
	if h != nil {
		_ = h.file.Close()
		_ = os.Remove(h.file.Name())
	}
}

// oneLine makes one line of what printSource prints.
var oneLine = strings.NewReplacer(":\n  ", "; ", "\n  ", "; ")

// write writes the report, and moves the file to its place.
func (h *htmlFile) write(r *replay.Report, hashed bool) error {
	if h == nil {
		return nil
	}
	words := &page.Words{Key: key, Name: printable, Policy: title, Percent: percent}
	for _, src := range r.Sources {
		var b strings.Builder
		w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
		// Lines may have what nobody else should see.
		//mutant:page-shows-no-line
		src.First = nil
		printSource(w, &src)
		_ = w.Flush()
		words.Sources = append(words.Sources, oneLine.Replace(strings.TrimSuffix(strings.TrimSpace(b.String()), ":")))
	}
	var b bytes.Buffer
	if err := page.Write(&b, r, hashed, words); err != nil {
		return err
	}
	// What a terminal would obey, a reader of the page may take for another text.
	if _, err := (terminal{h.file}).Write(b.Bytes()); err != nil {
		return err
	}
	if err := h.file.Close(); err != nil {
		return err
	}
	if err := os.Rename(h.file.Name(), h.path); err != nil {
		return err
	}
	h.note("note: the report is also in " + printable(h.path))
	return nil
}
