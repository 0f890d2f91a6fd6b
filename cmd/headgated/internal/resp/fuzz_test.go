package resp_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// FuzzCommands sends bytes, and then a PING of its own. The server goes on for others, and what
// it answers are whole answers.
func FuzzCommands(f *testing.F) {
	for _, text := range []string{
		"PING\r\n", packet("HG.TAKE free k", "MULTI", "EXEC"), packet("HELLO 3 AUTH default x SETNAME y"), packet("CLIENT SETINFO LIB-NAME x", "INFO", "ECHO x", "SELECT 5"),
		"*-1\r\n", "*0\r\n", "*2\r\n$4\r\nPING\r\n$-1\r\n", "*1\r\n$9999\r\nx", "\r\n\r\n", "POST / HTTP/1.1\r\n", "CL.THROTTLE k 1 1 1 1\r\n", "*1\r\n$0\r\n\r\n", "HG.RESERVE free k 5000\r\n",
		"*9223372036854775807\r\n", "*1\r\n$9223372036854775807\r\n", "HG.COMMIT free \x00\xff 9223372036854775808\r\n",
	} {
		f.Add(text)
	}
	_, addr := start(f, memory.New(nil), nil)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		_, _ = io.WriteString(c, text)
		_ = c.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(c)
		if err != nil {
			return // a reset: the connection ended before all was read
		}
		answers := string(got)
		for answers != "" {
			require.Contains(t, "+-:$*%_", answers[:1], "%q", got)
			require.Contains(t, answers, "\r\n", "%q", got)
			answers = after(answers)
		}
		require.True(t, strings.HasPrefix(exchange(t, addr, "PING\r\n"), "+PONG"))
	})
}
