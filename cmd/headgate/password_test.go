package main

import (
	"bytes"
	"testing"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestErrorsHideThePassword: an error of an address quotes no part of the password.
func TestErrorsHideThePassword(t *testing.T) {
	for _, url := range []string{
		"redis://ops:s3cr%t@localhost:6379", "redis://ops:s3cr#t@localhost:6379", "redis://ops:s3cr/t@localhost:6379/0",
		"redis://ops:12/s3cr@localhost:6379", "redis://ops:12?s3cr@localhost:6379", "http://ops:s3cr@localhost",
		"redis://ops:s3cr@localhost:63x", "redis://ops:s3cr@localhost:6379/x", "redis://:s3cr",
		"redis://ops:s3cr@localhost:1,redis://ops:s3cr@localhost:2", "redis://localhost/s3cr",
	} {
		for _, mode := range [][]string{{"-redis", url}, {"-cluster", url}, {"-redis", url, "-sentinel", "mymaster"}} {
			var out bytes.Buffer
			require.NotZero(t, run(t.Context(), append(mode, "ping", "-timeout", "50ms"), &out, &out))
			require.NotContains(t, out.String(), "s3cr", "%q", mode)
		}
	}
}

// TestCommaInAPassword: commas before the last @ divide no addresses.
func TestCommaInAPassword(t *testing.T) {
	server := redistest.Start(t)
	require.NoError(t, server.Client(t).Do(t.Context(), "ACL", "SETUSER", "ops", "on", ">pa,ss", "~*", "&*", "+@all").Err())
	require.Empty(t, exec(t, 0, "keys", "-redis", "redis://ops:pa,ss@"+server.Addr()))
}

// TestServerThatQuotesThePassword: no command prints the password that a server without HELLO
// and AUTH quotes.
func TestServerThatQuotesThePassword(t *testing.T) {
	server := redistest.Start(t, "--rename-command", "HELLO", "", "--rename-command", "AUTH", "")
	for _, words := range [][]string{{"peek", "k"}, {"reset", "k"}, {"leases", "k"}, {"keys"}, {"top", "-every", "0", "-policies", write(t)}, {"ping"}} {
		for _, more := range [][]string{{"-redis"}, {"-cluster"}, {"-json", "-redis"}} {
			said := exec(t, 1, append(append(words, more...), "redis://ops:s3cret@"+server.Addr())...)
			require.NotContains(t, said, "s3cret")
			require.NotContains(t, said, "'ops'")
			require.Regexp(t, `unknown command 'auth'|has no command AUTH`, said)
		}
	}
}
