package logs

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// LongestLine is the longest line that is read, in bytes. A longer one is skipped and counted.
const LongestLine = 4 << 20

// lines reads lines.
type lines struct {
	r     *bufio.Reader
	long  []byte // a line that is longer than the buffer of r
	count int64  // lines so far
}

var (
	errLong = errors.New("longer than 4 MiB")
	errCut  = errors.New("the last line has no end, so it may be cut")
)

func newLines(r io.Reader) *lines { return &lines{r: bufio.NewReaderSize(r, sampled)} }

// next returns a line without its end, until the next call. whole is false of a last line that
// has no end. The error is io.EOF after the last one, and errLong for a line that was skipped.
func (l *lines) next() (line []byte, whole bool, err error) {
	line, err = l.r.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		line, err = l.rest(line)
	}
	switch {
	case err == io.EOF && len(line) == 0:
		return nil, false, io.EOF
	case err == nil || err == errLong:
		whole = true
	case err != io.EOF:
		return nil, false, err
	}
	l.count++
	if err == errLong {
		return nil, whole, err
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'}), whole, nil
}

// rest reads the rest of a line that is longer than the buffer. Of one that is too long it
// keeps nothing.
func (l *lines) rest(begin []byte) (line []byte, err error) {
	l.long = append(l.long[:0], begin...)
	for tooLong := false; ; {
		part, err := l.r.ReadSlice('\n')
		//mutant:longest-line
		if tooLong = tooLong || len(l.long)+len(part) > LongestLine; !tooLong {
			l.long = append(l.long, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
		case tooLong && (err == nil || err == io.EOF):
			return nil, errLong
		default:
			return l.long, err
		}
	}
}
