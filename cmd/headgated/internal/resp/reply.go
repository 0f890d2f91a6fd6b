package resp

import (
	"bufio"
	"strconv"
)

// reply writes replies of version 2 of the protocol. Those of version 3 are the same, but for
// maps and nulls.
type reply struct{ out *bufio.Writer }

func (r reply) line(kind byte, text string) {
	_ = r.out.WriteByte(kind)
	_, _ = r.out.WriteString(text)
	_, _ = r.out.WriteString("\r\n")
}

func (r reply) error(text string)  { r.line('-', oneLine(text)) }
func (r reply) simple(text string) { r.line('+', text) }
func (r reply) array(n int)        { r.line('*', strconv.Itoa(n)) }
func (r reply) integer(n int64)    { r.line(':', strconv.FormatInt(n, 10)) }

func (r reply) bulk(text string) {
	r.line('$', strconv.Itoa(len(text)))
	_, _ = r.out.WriteString(text)
	_, _ = r.out.WriteString("\r\n")
}

// maxError is the length of an error's text. It may have an argument of the client in it.
const maxError = 500

// oneLine keeps a client's bytes in an error from ending its line, and from making it longer
// than a line.
func oneLine(text string) string {
	//mutant:error-is-short
	if len(text) > maxError {
		text = text[:maxError] + "..."
	}
	b := []byte(text)
	for i, c := range b {
		if c < ' ' {
			b[i] = ' '
		}
	}
	return string(b)
}
