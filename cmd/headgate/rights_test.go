package main

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const operations = "../../docs/operations.md"

// grants are the ACL lines of docs/operations.md for a user. Those for a
// cluster are indented.
func grants(t *testing.T, user string, cluster bool) (lines [][]any) {
	t.Helper()
	text, err := os.ReadFile(operations)
	require.NoError(t, err)
	for _, line := range regexp.MustCompile(`(?m)^ *ACL SETUSER `+user+` .*$`).FindAllString(string(text), -1) {
		if strings.HasPrefix(line, " ") && !cluster {
			continue
		}
		var args []any
		for _, word := range strings.Fields(line) {
			args = append(args, word)
		}
		lines = append(lines, args)
	}
	require.NotEmpty(t, lines)
	return lines
}

// users grants each of two users its documented rights, and returns the
// arguments with which the command is that user.
func users(t *testing.T) (places map[string]func(user string) []string) {
	server, nodes := redistest.Start(t), redistest.StartCluster(t)
	for _, user := range []string{"headgate", "headgate-ro"} {
		grantTo(t, server.Client(t), grants(t, user, false))
		for _, n := range nodes.Nodes() {
			grantTo(t, n.Client(t), grants(t, user, true))
		}
	}
	return map[string]func(string) []string{
		"standalone": func(user string) []string { return []string{"-redis", "redis://" + user + ":secret@" + server.Addr()} },
		"cluster": func(user string) []string {
			return []string{"-cluster", "redis://" + user + ":secret@" + nodes.Addrs()[0] + "," + nodes.Addrs()[1]}
		},
	}
}

func grantTo(t *testing.T, admin *redis.Client, lines [][]any) {
	t.Helper()
	for _, line := range lines {
		require.NoError(t, admin.Do(context.Background(), line...).Err(), "%v", line)
	}
}

// TestDocumentedRights: peek, keys, top and ping run under the read-only
// rights, and nothing can be written under them. reset runs under the full ones.
func TestDocumentedRights(t *testing.T) {
	t.Parallel()
	path := write(t)
	for where, as := range users(t) {
		t.Run(where, func(t *testing.T) {
			full, ro := as("headgate"), as("headgate-ro")
			exec(t, 0, append([]string{"ping"}, full...)...)
			for _, plan := range []string{"plain", "spread"} {
				p := place{store: open(t, full).store}
				take(t, p.limiter(t, plan), "user:42", 3, 7)
				peeked := decode[looked](t, 0, append([]string{"peek", "user:42", "-policies", path, "-plan", plan}, ro...)...)
				require.EqualValues(t, 21, peeked.Policies[0].Used)
				topped := decode[topped](t, 0, append([]string{"top", "-every", "0", "-policies", path, "-plan", plan}, ro...)...)
				require.Len(t, topped.Fullest, 1)
			}
			stored := decode[kept](t, 0, append([]string{"peek", "user:42"}, ro...)...)
			require.Len(t, stored.Counts, 8, "five policies and three that are spread")
			require.Contains(t, exec(t, 0, append([]string{"keys", "user:"}, ro...)...), "user:42\t")

			pinged := decode[pinged](t, 1, append([]string{"ping"}, ro...)...)
			require.Equal(t, "ACL SETUSER headgate-ro +hrandfield +hset +hdel +unlink +pexpire +set +pttl +zadd +zrem +zremrangebyrank", pinged.ACL)
			refused := exec(t, 1, append([]string{"reset", "user:42"}, ro...)...)
			require.Regexp(t, "NOPERM|can't run this command", refused, "nothing is deleted under the read-only rights")
			require.Equal(t, stored.Counts[0].Used, decode[kept](t, 0, append([]string{"peek", "user:42"}, ro...)...).Counts[0].Used)

			exec(t, 0, append([]string{"reset", "user:42", "-policies", path, "-plan", "spread"}, full...)...)
			exec(t, 0, append([]string{"reset", "user:42"}, full...)...)
			require.Contains(t, exec(t, 0, append([]string{"peek", "user:42"}, ro...)...), "nothing is stored")
		})
	}
}

// TestPeekWithoutScan: with a policy file, the answer needs no right to list keys. Where
// that would tell more, a note says so.
func TestPeekWithoutScan(t *testing.T) {
	server := redistest.Start(t)
	grantTo(t, server.Client(t), append(grants(t, "headgate-ro", false), []any{"acl", "setuser", "headgate-ro", "-scan"}))
	stdout, stderr := output(t, 0, "peek", "k", "-policies", write(t), "-redis", "redis://headgate-ro:secret@"+server.Addr())
	require.Contains(t, stdout, "k would pass")
	require.Contains(t, stderr, "note: what else is stored of the key could not be read:")
	require.Contains(t, stderr, "+scan")
}

func open(t *testing.T, args []string) *session {
	t.Helper()
	s := &session{}
	_, err := permuted(s.flags(os.Stderr), args)
	require.NoError(t, err)
	require.NoError(t, s.open(true))
	t.Cleanup(s.close)
	return s
}

// TestEachRightIsNeeded: without any one of the documented rights a command
// fails, and says which is missing.
func TestEachRightIsNeeded(t *testing.T) {
	path, server := write(t), redistest.Start(t)
	admin := server.Client(t)
	p := place{store: open(t, []string{"-redis", server.Addr()}).store}
	take(t, p.limiter(t, "plain"), "user:42", 1, 990)
	_, _, err := p.limiter(t, "one").Reserve(t.Context(), headgate.Call{Key: "user:42"})
	require.NoError(t, err)
	for _, line := range grants(t, "headgate-ro", false) {
		for _, right := range line {
			name, ok := strings.CutPrefix(right.(string), "+")
			if !ok {
				continue
			}
			t.Run(name, func(t *testing.T) {
				grantTo(t, admin, append([][]any{{"acl", "setuser", "headgate-ro", "reset"}}, grants(t, "headgate-ro", false)...))
				require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "headgate-ro", "-"+name).Err())
				ro := []string{"-redis", "redis://headgate-ro:secret@" + server.Addr()}
				var all strings.Builder
				for _, args := range [][]string{{"peek", "user:42"}, {"peek", "user:42", "-policies", path, "-cost", "100"}, {"keys"}, {"leases", "user:42"}, {"ping"}, {"peek", "user:42", "-policies", path, "-plan", "one"}} {
					run(t.Context(), append(args, ro...), &all, &all)
				}
				q := regexp.QuoteMeta(name)
				require.Regexp(t, `(?i)NOPERM.*`+q+`|\b`+q+`: .*(NOPERM|can't run)`, all.String())
			})
		}
	}
}
