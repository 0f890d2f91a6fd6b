package logs

import (
	"fmt"
	"io"
	"time"
)

// Source is what was read of a file.
type Source struct {
	File       string `json:"file"`
	Format     string `json:"format"`
	Guessed    bool   `json:"guessed,omitempty"` // from its lines
	Lines      int64  `json:"lines"`
	Calls      int64  `json:"calls"`           // that were read, also those that are too late
	Unreadable int64  `json:"unreadable"`      // lines
	First      []Bad  `json:"first,omitempty"` // of these
	Keyless    int64  `json:"without_key"`     // calls that have no key, and are left out
	Late       int64  `json:"late"`            // calls that are older than the bound of unsorted lines, and are left out
	Behind     int64  `json:"late_us"`         // how much before the newest the oldest of them was
	Step       int64  `json:"clock_us"`        // the step of the log's clock
	Zoneless   int64  `json:"without_zone"`    // times without a zone
	Zone       string `json:"zone,omitempty"`  // of these
	Repeated   int64  `json:"repeated_hour"`   // of these, those of an hour that occurs twice
}

// Bad is a line that can't be read.
type Bad struct {
	File   string `json:"file"`
	Line   int64  `json:"line"`
	Reason string `json:"reason"`
	Text   string `json:"text"` // its begin
}

// source reads the calls of one file, in the order of time.
//
// A line is parsed and its call is sorted by the instant that the log has. Then the calls of one
// instant are spread, and the durations taken off. The begins are sorted once more.
type source struct {
	Source
	s      *Stream
	lines  *lines
	close  func() error
	head   []line // those that were read for the guess
	format *format
	values [][]byte
	text   []byte
	unit   string // of durations
	clock  clock
	logged order
	begun  order
	spread spread
	moved  []Call // scratch
	ready  []Call
	next   int // of ready
	ended  bool
}

// line is a line that is kept.
type line struct {
	text  []byte
	whole bool
	err   error
}

// guessLines is the number of lines that a guess looks at.
const guessLines = 20

// newSource opens a file and guesses its format.
func (s *Stream) newSource(name string) (*source, error) {
	r, closing, err := open(name, s.In)
	if err != nil {
		return nil, err
	}
	bound := s.Unsorted.Microseconds()
	src := &source{
		Source: Source{File: name, Guessed: s.Format == ""}, s: s, lines: newLines(r), close: closing, values: make([][]byte, len(s.wants)),
		clock: clock{zone: s.zone()}, logged: order{bound: bound, sorted: true}, begun: order{bound: bound, sorted: true},
		spread: spread{start: s.Within == "start"}, unit: s.unit,
	}
	return src, src.guess()
}

func (s *Stream) zone() *time.Location {
	if s.Zone == nil {
		return time.UTC
	}
	return s.Zone
}

// sample reads the first lines.
func (s *source) sample() (sample [][]byte, err error) {
	var long error
	for size := 0; len(sample) < guessLines && size < LongestLine; {
		text, whole, err := s.lines.next()
		if err == io.EOF {
			break
		}
		if err == errLong {
			long = err
		} else if err != nil {
			return nil, s.wrap(err)
		}
		s.head = append(s.head, line{append([]byte{}, text...), whole, err})
		if size += len(text); len(text) > 0 {
			sample = append(sample, s.head[len(s.head)-1].text)
		}
	}
	s.lines.count = 0
	//mutant:long-is-not-empty
	if len(sample) == 0 && long != nil {
		return nil, fmt.Errorf("no line can be read: %w", long)
	}
	return sample, nil
}

// guess finds the format of the first lines.
func (s *source) guess() error {
	sample, err := s.sample()
	if err != nil {
		return err
	}
	if len(sample) == 0 {
		s.Format = "empty"
		return nil
	}
	f, err := newFormat(s.s.Format, sample, s.s.wants)
	if err != nil {
		return err
	}
	if p := f.profile; p != nil && s.s.Duration != "" {
		if p.begins && s.s.At == "" {
			return fmt.Errorf("the times of %s are those of the begin of a call: leave -duration out, or name another field by -at", p.name)
		}
		if s.unit == "" && (s.s.field == "duration" || s.s.field == p.duration) {
			s.unit = p.unit
		}
	}
	s.format, s.Format = f, f.name
	for blank := true; f.head && blank; s.Lines++ { // up to the line of the names
		blank = len(s.head[0].text) == 0
		s.head = s.head[1:]
	}
	return nil
}

func (s *source) wrap(err error) error { return fmt.Errorf("after line %d: %w", s.Lines, err) }

// batch is the number of lines that are read at once.
const batch = 4096

// fill reads lines until a call is ready, or there are no more.
func (s *source) fill() error {
	for s.next == len(s.ready) && !s.ended {
		s.ready, s.next = s.ready[:0], 0
		if s.format == nil {
			s.ended = true
			return nil
		}
		if err := s.read(); err != nil {
			return err
		}
		s.sort()
	}
	return nil
}

// read reads a batch of lines.
func (s *source) read() error {
	for range batch {
		text, whole, err := s.line()
		if err == io.EOF {
			s.ended = true
			return nil
		}
		if err != nil && err != errLong {
			return s.wrap(err)
		}
		s.Lines++
		if err == nil && len(text) == 0 {
			continue
		}
		if err == nil {
			err = s.parse(text, whole)
		}
		if full, ok := err.(*fullError); ok {
			return full
		}
		if err != nil {
			s.bad(text, err)
		}
	}
	return nil
}

// line returns the next line: first those of the guess.
func (s *source) line() ([]byte, bool, error) {
	if len(s.head) == 0 {
		return s.lines.next()
	}
	l := s.head[0]
	s.head = s.head[1:]
	return l.text, l.whole, l.err
}

// shown is the number of lines that are shown of those that can't be read.
const shown = 3

func (s *source) bad(text []byte, err error) {
	s.Unreadable++
	if len(s.First) < shown {
		s.First = append(s.First, Bad{File: s.File, Line: s.Lines, Reason: err.Error(), Text: string(text[:min(len(text), 200)])})
	}
}

// errNoField is a field that a line lacks.
type errNoField string

func (e errNoField) Error() string { return "no " + string(e) }

// parse reads the call of a line.
func (s *source) parse(text []byte, whole bool) error {
	if err := s.format.parser.parse(text, s.values); err != nil {
		return err
	}
	//mutant:cut-line
	if !whole && !s.format.ends(text) {
		return errCut
	}
	at, v := s.values[0], s.values
	if len(at) == 0 {
		return errNoField("time")
	}
	var c Call
	var err error
	if c.At, err = s.clock.read(at, s.logged.newest-s.logged.bound); err != nil {
		return err
	}
	if s.s.field != "" {
		if c.Took, err = took(v[1], s.unit); err != nil {
			return err
		}
	}
	if c.Costs, err = s.s.costs(v); err != nil {
		return err
	}
	has, err := s.s.key(v, &s.text, &c)
	if err != nil {
		return err
	}
	if !has {
		s.Keyless++
		return nil
	}
	s.Calls++
	s.logged.add(&c)
	return nil
}

// sort moves what was read to ready, in the order of time.
func (s *source) sort() {
	unit := s.clock.unit
	s.moved = s.logged.ready(s.ended, s.moved[:0])
	if s.s.field == "" {
		for i := range s.moved {
			s.ready = s.spread.add(&s.moved[i], unit, s.ready)
		}
		if s.ended {
			s.ready = s.spread.flush(unit, s.ready)
		}
	} else {
		var spread []Call
		for i := range s.moved {
			spread = s.spread.add(&s.moved[i], unit, spread)
		}
		if s.ended {
			spread = s.spread.flush(unit, spread)
		}
		for i := range spread {
			spread[i].At = max(0, spread[i].At-spread[i].Took)
			s.begun.add(&spread[i])
		}
		s.ready = s.begun.ready(s.ended, s.ready)
	}
	s.Step, s.Zoneless, s.Repeated = unit, s.clock.bare, s.clock.twice
	if s.Zoneless > 0 {
		s.Zone = s.clock.zone.String()
	}
	s.Late, s.Behind = s.logged.late+s.begun.late, max(s.logged.latest, s.begun.latest)
}
