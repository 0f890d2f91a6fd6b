package resp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"

	"github.com/headgate-go/headgate/cmd/headgated/internal/bounded"
)

// protocolError is a command that is none. The connection can't go on after it.
type protocolError string

func (e protocolError) Error() string { return string(e) }

// readCommand reads an array of strings, or the words of a line. No more than most bytes
// are kept, however long the client says that they are. A long command waits for a slot.
func readCommand(in *bufio.Reader, most int, long *bounded.Long) ([]string, error) {
	line, err := readLine(in)
	if err != nil {
		return nil, err
	}
	if len(line) == 0 || line[0] != '*' {
		return inline(line)
	}
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n > maxArgs {
		return nil, protocolError("invalid number of arguments")
	}
	args := make([]string, 0, max(n, 0))
	for range n {
		length, err := readLength(in, most)
		if err != nil {
			return nil, err
		}
		if !long.More(length, readTimeout) {
			return nil, errNoSlot
		}
		arg, err := readBulk(in, length)
		if err != nil {
			return nil, err
		}
		most -= length
		args = append(args, arg)
	}
	return args, nil
}

// errNoSlot ends a connection, as its silence would.
var errNoSlot = errors.New("other long commands are being read")

// readLength reads the line before a string.
func readLength(in *bufio.Reader, most int) (int, error) {
	line, err := readLine(in)
	if err != nil {
		return 0, err
	}
	if len(line) == 0 || line[0] != '$' {
		return 0, protocolError("a string is wanted")
	}
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n < 0 || n > most {
		return 0, protocolError("invalid length of a string")
	}
	return n, nil
}

func readBulk(in *bufio.Reader, n int) (string, error) {
	b, err := readFull(in, n+2)
	if err != nil {
		return "", err
	}
	if string(b[n:]) != "\r\n" {
		return "", protocolError("a string is longer than its length")
	}
	return string(b[:n]), nil
}

// readFull reads n bytes. A long string takes memory as its bytes come, and not as its length
// announces them.
func readFull(in *bufio.Reader, n int) ([]byte, error) {
	//mutant:announced-takes-no-memory
	if n > buffer {
		var b bytes.Buffer
		_, err := io.CopyN(&b, in, int64(n))
		return b.Bytes(), err
	}
	b := make([]byte, n)
	_, err := io.ReadFull(in, b)
	return b, err
}

// readLine reads a line that fits the buffer, without its end.
func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, protocolError("a line is too long")
	}
	return bytes.TrimRight(line, "\r\n"), err
}

func inline(line []byte) (args []string, err error) {
	words := bytes.Fields(line)
	if len(words) > maxArgs {
		return nil, protocolError("invalid number of arguments")
	}
	for _, w := range words {
		args = append(args, string(w))
	}
	return args, nil
}
