// Package logs reads the logs of HTTP servers, and other logs, as a stream of calls in the order of
// time.
//
// Each file is a source: its lines are parsed, sorted within a bound, and the calls of one instant
// of a coarse clock are spread. The sources are merged. A line that can't be read is counted, and
// so is one that comes too late.
package logs

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// Options are what is read. The zero value reads the standard input.
type Options struct {
	Files    []string  // Stdin is one; none are Stdin
	In       io.Reader // the standard input
	Format   string    // "" is a guess
	Key      string    // the template of a call's key
	At       string    // the field of the time, "" for the format's own
	Duration string    // the field of the duration and its unit, as "request_time:s": times are those of the end
	Costs    []string  // fields of the costs
	Uses     []string  // templates of what a call uses, see Stream.Uses
	Zone     *time.Location
	Within   string // "second" spreads the calls of one instant over the clock's step, "start" does not
	Unsorted time.Duration
	MaxKeys  int
}

// Stream reads calls. It has one goroutine.
type Stream struct {
	Options
	Keys *Keys            // of the calls
	Uses Column[[]string] // values of the templates of Options.Uses, "" for those that a call lacks

	keys      *template
	uses      []*template
	useKeys   *Keys
	wants     []want
	costAt    []int // the places of the costs' values
	field     string
	unit      string
	sources   []*source
	remaining []*source
}

// units are those of a duration.
var units = []string{"s", "ms", "us", "µs", "ns"}

// Open opens the files and guesses their formats.
func Open(opts Options) (*Stream, error) {
	s := &Stream{Options: opts, Keys: NewKeys(), useKeys: NewKeys()}
	if len(s.Files) == 0 {
		s.Files = []string{Stdin}
	}
	if s.MaxKeys < 1 || s.MaxKeys > math.MaxInt32 {
		return nil, fmt.Errorf("-max-keys: want 1 to %d", math.MaxInt32)
	}
	if err := s.compile(); err != nil {
		return nil, err
	}
	stdin := false
	for _, name := range s.Files {
		if name == Stdin && stdin {
			return nil, errors.New("the standard input is given twice")
		}
		stdin = stdin || name == Stdin
		src, err := s.newSource(name)
		if src != nil {
			s.sources = append(s.sources, src)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", Title(name), err), s.Close())
		}
	}
	s.remaining = append(s.remaining, s.sources...)
	return s, nil
}

// Title returns the name of a file for people.
func Title(file string) string {
	if file == Stdin {
		return "standard input"
	}
	return file
}

// compile reads the names of fields and the templates.
func (s *Stream) compile() (err error) {
	s.want(want{name: s.At})
	if s.Duration != "" {
		var given bool
		if s.field, s.unit, given = strings.Cut(s.Duration, ":"); given && !contains(units, s.unit) || s.field == "" {
			return fmt.Errorf("-duration %.80q: want a field and its unit, such as request_time:s; units are %s", s.Duration, strings.Join(units, ", "))
		}
		s.wants = append(s.wants, want{name: s.field}) // at 1, also if another value is of the same field
	}
	if len(s.Costs) > MostCosts {
		return fmt.Errorf("-cost: %d fields; want at most %d", len(s.Costs), MostCosts)
	}
	for _, name := range s.Costs {
		s.costAt = append(s.costAt, s.want(want{name: name}))
	}
	if s.keys, err = newTemplate(s.Key, s.want); err != nil {
		return fmt.Errorf("-key: %w", err)
	}
	for _, text := range s.Options.Uses {
		t, err := newTemplate(text, s.want)
		if err != nil {
			return err
		}
		s.uses = append(s.uses, t)
	}
	if len(s.uses) == 0 {
		*s.Uses.Add() = nil
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, one := range list {
		if one == s {
			return true
		}
	}
	return false
}

// want returns the place of a field's value.
func (s *Stream) want(w want) int {
	for i, other := range s.wants {
		if other == w && i > 0 {
			return i
		}
	}
	s.wants = append(s.wants, w)
	return len(s.wants) - 1
}

// Next returns some calls in the order of time. They are valid until the next call of it. The error
// is io.EOF after the last ones. Calls of one instant of several files are in the order of the files.
func (s *Stream) Next() ([]Call, error) {
	var first *source
	until := int64(math.MaxInt64) // the first call of another file
	live := s.remaining[:0]
	for _, src := range s.remaining {
		if err := src.fill(); err != nil {
			return nil, fmt.Errorf("%s: %w", Title(src.File), err)
		}
		if src.next == len(src.ready) {
			continue
		}
		live = append(live, src)
		switch at := src.ready[src.next].At; {
		case first == nil:
			first = src
		case at < first.ready[first.next].At:
			first, until = src, first.ready[first.next].At
		default:
			until = min(until, at)
		}
	}
	if s.remaining = live; first == nil {
		return nil, io.EOF
	}
	begin := first.next
	for first.next++; first.next < len(first.ready) && first.ready[first.next].At < until; first.next++ {
		continue
	}
	return first.ready[begin:first.next], nil
}

// Sources returns what was read of each file.
func (s *Stream) Sources() (all []Source) {
	for _, src := range s.sources {
		all = append(all, src.Source)
	}
	return all
}

// Close closes the files.
func (s *Stream) Close() (err error) {
	for _, src := range s.sources {
		if src.close != nil {
			err = errors.Join(err, src.close())
		}
	}
	return err
}
