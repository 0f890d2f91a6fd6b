package resp_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/cmd/headgated/internal/bounded"
	"github.com/headgate-go/headgate/cmd/headgated/internal/resp"
	"github.com/stretchr/testify/require"
)

// TestNames: what a connection keeps of its client is short.
func TestNames(t *testing.T) {
	_, addr := start(t, memory.New(nil), nil)
	const refused = "-ERR Client names cannot contain spaces, newlines or special characters.\r\n"
	long, longest := strings.Repeat("x", 257), strings.Repeat("x", 256)
	answers := exchange(t, addr, packet("CLIENT SETNAME "+longest, "CLIENT SETNAME "+long, "HELLO 3 SETNAME "+long, "CLIENT GETNAME")+
		"*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$3\r\na b\r\n")
	require.Equal(t, ok+refused+refused+bulk(longest)+refused, answers)
}

// TestLongErrors: an error is no longer than a line, whatever a client has sent.
func TestLongErrors(t *testing.T) {
	_, addr := start(t, memory.New(nil), nil)
	long := strings.Repeat("\xff", 60_000)
	for _, line := range []string{"HG.TAKE " + long + " k", "HG.TAKE free k " + long, "CL.THROTTLE k 1 1 " + long, long, "CLIENT " + long} {
		answer := exchange(t, addr, packet(line))
		require.True(t, strings.HasPrefix(answer, "-ERR "))
		require.Less(t, len(answer), 1000)
	}
}

// withPassword are options of a server that wants a password.
func withPassword(o *resp.Options) { o.Password = func() string { return "secret" } }

// TestLongBeforeAuth: a client that has given no password may send short commands only.
func TestLongBeforeAuth(t *testing.T) {
	_, addr := start(t, memory.New(nil), withPassword)
	long := strings.Repeat("x", 20_000)
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	_, _ = io.WriteString(c, packet("ECHO "+long))
	answer, _ := io.ReadAll(c) // a reset follows it, since the rest is not read
	require.Equal(t, "-ERR Protocol error: invalid length of a string\r\n", string(answer))
	require.Equal(t, ok+bulk(long), exchange(t, addr, packet("AUTH secret", "ECHO "+long)))
}

// TestStrangersMakeRoom: at the bound clients that have given no password are closed for new
// ones, whatever they send.
func TestStrangersMakeRoom(t *testing.T) {
	v, _ := start(t, memory.New(nil), withPassword)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := bounded.New(inner, 2, nil)
	go func() { _ = v.Serve(l) }()
	defer func() { _ = l.Close() }()
	dial := func() (ask func(line string) string) {
		c, err := net.Dial("tcp", inner.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		in := bufio.NewReader(c)
		return func(line string) string {
			_, _ = io.WriteString(c, packet(line))
			answer, err := in.ReadString('\n')
			if err != nil {
				return fmt.Sprint(err)
			}
			return answer
		}
	}
	client := dial()
	require.Equal(t, ok, client("AUTH secret"))
	for range 3 {
		stranger := dial()
		for _, line := range []string{"PING", "AUTH wrong", "HG.TAKE free k"} {
			require.Contains(t, stranger(line), "-")
		}
	}
	require.Equal(t, "+PONG\r\n", client("PING"))
}
