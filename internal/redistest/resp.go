package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
)

// frames cuts a RESP stream, version 2 or 3, in either direction, into whole
// values and keeps their bytes as they were: a proxy that counts by reads would
// take a pipeline for one command, or half a command for one.
type frames struct {
	r   *bufio.Reader
	buf []byte
}

func newFrames(r io.Reader) *frames { return &frames{r: bufio.NewReader(r)} }

// next returns the bytes of one value, never none. They are overwritten by the
// following call.
func (f *frames) next() ([]byte, error) {
	f.buf = f.buf[:0]
	err := f.value()
	return f.buf, err
}

// more tells whether the next value has begun to arrive.
func (f *frames) more() bool { return f.r.Buffered() > 0 }

func (f *frames) value() error {
	line, err := f.line()
	if err != nil {
		return err
	}
	switch line[0] {
	case '$', '!', '=':
		return f.body(line)
	case '*', '~', '>':
		return f.values(line, 1, 0)
	case '%':
		return f.values(line, 2, 0)
	case '|':
		return f.values(line, 2, 1) // attributes come before the value that they describe
	}
	return nil // all else is one line, also an inline command
}

func (f *frames) body(line []byte) error {
	n, err := size(line)
	if err != nil || n < 0 {
		return err
	}
	at := len(f.buf)
	f.buf = append(f.buf, make([]byte, n+2)...)
	_, err = io.ReadFull(f.r, f.buf[at:])
	return err
}

// values reads per for each that line announces, and extra ones after them.
func (f *frames) values(line []byte, per, extra int) error {
	n, err := size(line)
	if err != nil {
		return err
	}
	for range max(n, 0)*per + extra {
		if err := f.value(); err != nil {
			return err
		}
	}
	return nil
}

func (f *frames) line() ([]byte, error) {
	at := len(f.buf)
	for {
		part, err := f.r.ReadSlice('\n')
		f.buf = append(f.buf, part...)
		if err == nil {
			return f.buf[at:], nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

// size is -1 for RESP2's null.
func size(line []byte) (int, error) {
	return strconv.Atoi(string(bytes.TrimSpace(line[1:])))
}

// verb is the name of the command in a frame, in capitals.
func verb(frame []byte) string {
	if frame[0] == '*' {
		parts := bytes.SplitN(frame, []byte("\r\n"), 4) // *3 $7 EVALSHA …
		if len(parts) < 4 {
			return ""
		}
		return strings.ToUpper(string(parts[2]))
	}
	word, _, _ := strings.Cut(strings.TrimSpace(string(frame)), " ")
	return strings.ToUpper(word)
}
