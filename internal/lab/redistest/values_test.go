package redistest

import (
	"bufio"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWholeValues(t *testing.T) {
	values := []string{
		"+OK\r\n", "-ERR no\r\n", ":42\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(123456789\r\n",
		"$5\r\na\r\nbc\r\n", "$0\r\n\r\n", "$-1\r\n", "!3\r\nERR\r\n", "=7\r\ntxt:abc\r\n",
		"*0\r\n", "*-1\r\n", "*2\r\n$1\r\na\r\n*1\r\n:1\r\n", "~1\r\n:1\r\n", ">2\r\n+a\r\n+b\r\n",
		"%2\r\n+k\r\n:1\r\n+l\r\n*1\r\n:2\r\n", "|1\r\n+ttl\r\n:3\r\n$1\r\nx\r\n",
		"PING\r\n", "$9000\r\n" + strings.Repeat("x", 9000) + "\r\n", strings.Repeat("y", 9000) + "\r\n",
	}
	stream := strings.Join(values, "")
	for name, r := range map[string]io.Reader{
		"at once":      strings.NewReader(stream),
		"byte by byte": iotest.OneByteReader(strings.NewReader(stream)),
	} {
		t.Run(name, func(t *testing.T) {
			in := bufio.NewReader(r)
			for _, want := range values {
				got, err := readValue(in, nil)
				require.NoError(t, err)
				require.Equal(t, want, string(got))
			}
			_, err := readValue(in, nil)
			assert.ErrorIs(t, err, io.EOF)
		})
	}
}

func TestMalformedValues(t *testing.T) {
	for _, s := range []string{"$x\r\n", "*x\r\n", "$5\r\nab", "*2\r\n:1\r\n"} {
		_, err := readValue(bufio.NewReader(strings.NewReader(s)), nil)
		assert.Error(t, err, "%q", s)
	}
}

func TestVerb(t *testing.T) {
	for frame, want := range map[string]string{
		"*2\r\n$7\r\nevalsha\r\n$1\r\nx\r\n": "EVALSHA",
		"*1\r\n$4\r\nPING\r\n":               "PING",
		"ping\r\n":                           "PING",
		"set k v\r\n":                        "SET",
		"*0\r\n":                             "",
	} {
		assert.Equal(t, want, verb([]byte(frame)), "%q", frame)
	}
}
