package resp_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/cmd/headgated/internal/resp"
	"github.com/stretchr/testify/require"
)

// packet returns commands as a client sends them.
func packet(lines ...string) string {
	var b strings.Builder
	for _, line := range lines {
		words := strings.Fields(line)
		fmt.Fprintf(&b, "*%d\r\n", len(words))
		for _, w := range words {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
		}
	}
	return b.String()
}

// exchange sends a packet, ends what it sends, and returns all answers.
func exchange(t testing.TB, addr, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(c, text)
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	answers, err := io.ReadAll(c)
	require.NoError(t, err)
	return string(answers)
}

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

const (
	ok      = "+OK\r\n"
	unknown = "-ERR unknown command '%s'\r\n"
	taken   = "*7\r\n:1\r\n$8\r\nrequests\r\n:5\r\n:4\r\n:0\r\n:RESET\r\n$5\r\nstore\r\n"
	infoHas = "INFO"
)

// TestHandshakes sends what clients send before their first command, byte by byte, with a first
// command and what they send when they close: by their public sources, and node_redis and
// redis-py by their documented behaviour.
func TestHandshakes(t *testing.T) {
	for name, c := range map[string]struct{ sent, want []string }{
		"ioredis 5": {
			[]string{"info", "client SETINFO LIB-NAME ioredis", "client SETINFO LIB-VER 5.4.1", "client setname app", "HG.TAKE free k", "quit"},
			[]string{infoHas, ok, ok, ok, taken, ok},
		},
		"ioredis 5 with a password that is not wanted": {
			[]string{"auth secret", "info", "HG.TAKE free k"},
			[]string{"-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n", infoHas, taken},
		},
		"node_redis 3": {[]string{"INFO", "HG.TAKE free k"}, []string{infoHas, taken}},
		"node_redis 5": {
			[]string{"HELLO 3", "CLIENT SETNAME app", "CLIENT SETINFO LIB-VER 5.5.6", "CLIENT SETINFO LIB-NAME node-redis", "HG.TAKE free k"},
			[]string{"%7\r\n", ok, ok, ok, taken},
		},
		"Jedis 5": {
			[]string{"CLIENT SETNAME app", "CLIENT SETINFO LIB-NAME jedis", "CLIENT SETINFO LIB-VER 5.1.0", "HG.TAKE free k", "PING"},
			[]string{ok, ok, ok, taken, "+PONG\r\n"},
		},
		"Jedis 5 with RESP3": {
			[]string{"HELLO 3", "CLIENT SETINFO LIB-NAME jedis", "CLIENT SETINFO LIB-VER 5.1.0", "HG.TAKE free k"},
			[]string{"%7\r\n", ok, ok, taken},
		},
		"Jedis 5 with a user": {
			[]string{"HELLO 3 AUTH default secret SETNAME app", "CLIENT GETNAME", "HG.TAKE free k"},
			[]string{"%7\r\n", bulk("app"), taken},
		},
		"StackExchange.Redis 2": {
			[]string{"CLIENT SETNAME app", "CLIENT SETINFO lib-name SE.Redis", "CLIENT SETINFO lib-ver 2.8.16", "CLIENT ID", "CONFIG GET slave-read-only", "CONFIG GET databases",
				"INFO replication", "INFO server", "CLUSTER NODES", "GET __Booksleeve_TieBreak", "ECHO b1946ac92492d2347c6235b4d2611184", "HG.TAKE free k", "PING"},
			[]string{ok, ok, ok, ":1\r\n", fmt.Sprintf(unknown, "CONFIG"), fmt.Sprintf(unknown, "CONFIG"), infoHas, infoHas, fmt.Sprintf(unknown, "CLUSTER"), fmt.Sprintf(unknown, "GET"),
				bulk("b1946ac92492d2347c6235b4d2611184"), taken, "+PONG\r\n"},
		},
		"StackExchange.Redis 2, its second connection": {
			[]string{"HELLO 3 SETNAME app", "ECHO b1946ac92492d2347c6235b4d2611184", "SUBSCRIBE __Booksleeve_MasterChanged", "PING"},
			[]string{"%7\r\n", bulk("b1946ac92492d2347c6235b4d2611184"), fmt.Sprintf(unknown, "SUBSCRIBE"), "+PONG\r\n"},
		},
		"redis-py 5": {
			[]string{"CLIENT SETNAME app", "CLIENT SETINFO LIB-NAME redis-py", "CLIENT SETINFO LIB-VER 5.2.1", "SELECT 0", "HG.TAKE free k"},
			[]string{ok, ok, ok, ok, taken},
		},
		"redis-py 5 with RESP3": {[]string{"HELLO 3", "HG.TAKE free k"}, []string{"%7\r\n", taken}},
	} {
		t.Run(name, func(t *testing.T) {
			_, addr := start(t, memory.New(nil), nil)
			rest := exchange(t, addr, packet(c.sent...))
			for i, want := range c.want {
				rest = answered(t, rest, want, c.sent[i])
			}
			require.Empty(t, rest)
		})
	}
}

// answered checks the first answer, and returns those after it.
func answered(t testing.TB, answers, want, sent string) string {
	t.Helper()
	rest := after(answers)
	got := strings.TrimSuffix(answers, rest)
	switch want {
	case infoHas:
		require.Contains(t, got, "\r\nloading:0\r\n", sent)
		require.Contains(t, got, "\r\nrole:master\r\n", sent)
		require.Contains(t, got, "\r\nredis_version:", sent)
	case taken:
		before, reset, _ := strings.Cut(taken, ":RESET")
		require.True(t, strings.HasPrefix(got, before) && strings.HasSuffix(got, reset), "%s: %q", sent, got)
	case "%7\r\n":
		require.True(t, strings.HasPrefix(got, want), "%s: %q", sent, got)
		require.Contains(t, got, bulk("proto")+":3\r\n")
		require.Contains(t, got, bulk("role")+bulk("master"))
	default:
		require.Equal(t, want, got, sent)
	}
	return rest
}

// after returns what comes after the first answer.
func after(answers string) string {
	line, rest, _ := strings.Cut(answers, "\r\n")
	n := 0
	if len(line) > 1 {
		_, _ = fmt.Sscan(line[1:], &n)
	}
	switch {
	case line == "":
	case line[0] == '$' && n >= 0:
		return rest[n+2:]
	case line[0] == '%':
		n *= 2
		fallthrough
	case line[0] == '*':
		for range n {
			rest = after(rest)
		}
	}
	return rest
}

// TestTransactions: all comes in one packet, and no count changes.
func TestTransactions(t *testing.T) {
	_, addr := start(t, memory.New(nil), nil)
	const notRun, aborted = "-ERR there are no transactions: the command was not run\r\n", "-EXECABORT Transaction discarded because of previous errors.\r\n"
	answers := exchange(t, addr, packet("HG.TAKE free k", "MULTI", "HG.TAKE free k", "hg.take free k", "CL.THROTTLE k 0 1 86400", "HG.RESET free k", "PING",
		"HELLO 3", "NOTHING", "EXEC", "HG.PEEK free k", "CL.THROTTLE k 0 1 86400",
		"MULTI", "MULTI", "HG.TAKE free k", "DISCARD", "HG.PEEK free k", "EXEC", "DISCARD", "MULTI", "RESET", "PING"))
	peeked := "*7\r\n:1\r\n$8\r\nrequests\r\n:5\r\n:4\r\n:0\r\n:RESET\r\n$5\r\nstore\r\n"
	for _, want := range []string{taken, ok, notRun, notRun, notRun, notRun, notRun, notRun, notRun, aborted, peeked} {
		answers = answered(t, answers, want, "")
	}
	require.True(t, strings.HasPrefix(answers, "*5\r\n:0\r\n:1\r\n:0\r\n"), "the first call of the bucket: %q", answers)
	answers = after(answers)
	for _, want := range []string{ok, "-ERR MULTI calls can not be nested\r\n", notRun, ok, peeked, "-ERR EXEC without MULTI\r\n", "-ERR DISCARD without MULTI\r\n", ok, "+RESET\r\n", "+PONG\r\n"} {
		answers = answered(t, answers, want, "")
	}
	require.Empty(t, answers)
}

// TestGreetings are answers of Redis 7.
func TestGreetings(t *testing.T) {
	_, addr := start(t, memory.New(nil), nil)
	for line, want := range map[string]string{
		"SELECT 0": ok, "SELECT 5": "-ERR DB index is out of range\r\n", "SELECT x": "-ERR value is not an integer or out of range\r\n",
		"HELLO 4": "-NOPROTO unsupported protocol version\r\n", "HELLO x": "-ERR Protocol version is not an integer or out of range\r\n", "HELLO 3 SETNAME": "-ERR syntax error\r\n",
		"AUTH default x": ok, "AUTH other x": "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
		"ECHO": "-ERR wrong number of arguments for 'echo' command\r\n", "CLIENT ID": ":9\r\n", "CLIENT REPLY OFF": "-ERR unknown subcommand or wrong number of arguments for 'REPLY'\r\n",
		"CLIENT TRACKING ON": ok, "COMMAND DOCS": "*0\r\n", "PING x": bulk("x"), "QUIT": ok,
	} {
		got := exchange(t, addr, packet(line))
		if line == "CLIENT ID" {
			require.Regexp(t, `^:\d+\r\n$`, got)
			continue
		}
		require.Equal(t, want, got, line)
	}
	require.True(t, strings.HasPrefix(exchange(t, addr, packet("HELLO")), "*14\r\n$6\r\nserver\r\n"))
	first, second := exchange(t, addr, packet("CLIENT ID")), exchange(t, addr, packet("CLIENT ID"))
	require.NotEqual(t, first, second)
}

// TestPassword: nothing is charged and nothing is told before AUTH.
func TestPassword(t *testing.T) {
	_, addr := start(t, memory.New(nil), func(o *resp.Options) { o.Password = func() string { return "secret" } })
	const noAuth, wrong = "-NOAUTH Authentication required.\r\n", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
	for sent, want := range map[string][]string{
		"HG.TAKE free k,INFO,PING,MULTI,EXEC,SELECT 0,CLIENT ID,NOTHING": {noAuth, noAuth, noAuth, noAuth, noAuth, noAuth, noAuth, noAuth},
		"AUTH secre,AUTH default x,AUTH other secret,HG.TAKE free k":     {wrong, wrong, wrong, noAuth},
		"HELLO 3 AUTH default x,PING":                                    {wrong, noAuth},
		"AUTH secret,PING,RESET,PING,QUIT":                               {ok, "+PONG\r\n", "+RESET\r\n", noAuth, ok},
		"AUTH default secret,PING":                                       {ok, "+PONG\r\n"},
		"HELLO 3 AUTH default secret,PING":                               {"%7\r\n", "+PONG\r\n"},
		"AUTH secret,HG.TAKE free k":                                     {ok, taken},
	} {
		lines := strings.Split(sent, ",")
		rest := exchange(t, addr, packet(lines...))
		for i, w := range want {
			rest = answered(t, rest, w, sent+": "+lines[i])
		}
		require.Empty(t, rest, sent)
	}
	require.True(t, strings.HasPrefix(exchange(t, addr, packet("HELLO 2")), "-NOAUTH HELLO must"))
}

// TestWebPage: a page's request charges nothing, whatever its body is.
func TestWebPage(t *testing.T) {
	for _, head := range []string{"POST / HTTP/1.1\r\nHost: 127.0.0.1:6380\r\n\r\n", "host: a\r\n", "PUT / HTTP/1.1\r\nHost: 127.0.0.1:6380\r\nContent-Length: 99\r\n\r\n"} {
		_, addr := start(t, memory.New(nil), nil)
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		_, err = io.WriteString(c, head+"HG.TAKE free k\r\nCL.THROTTLE k 0 1 86400\r\n")
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
		_, err = io.ReadAll(c) // a reset, or the end
		if e, ok := err.(net.Error); ok {
			require.False(t, e.Timeout(), "the connection ends")
		}
		_ = c.Close()
		require.True(t, strings.HasPrefix(exchange(t, addr, packet("CL.THROTTLE k 0 1 86400")), "*5\r\n:0\r\n"), "nothing was charged")
	}
}
