package standalone_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// unhurried: the budget is not the subject here.
var unhurried = &standalone.Options{Budget: 10 * time.Second}

// TestLeastRights holds the ACL lines of docs/operations.md: a user with these rights
// decides with every algorithm, and there is no right that isn't used.
func TestLeastRights(t *testing.T) {
	redistest.Plain(t)
	ctx := context.Background()
	rights := documentedRights(t)
	server := redistest.Start(t)
	admin := server.Client(t)
	grant(t, admin, rights)
	limited := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "headgate", "secret" })

	s := trace.New(1)
	virtual := clock.Client{Processor: limited, Now: func() time.Time { return time.UnixMicro(s.Now()) }}
	lua := standalone.New(virtual, unhurried)
	model := trace.NewModel(s.Now)
	decisions := redistest.Steps(2000, 5000)
	for i := range decisions {
		r := s.Next()
		require.NoError(t, trace.Same(trace.Ask(ctx, model, r), trace.Ask(ctx, lua, r)), "step %d", i)
	}
	sent := server.CommandStats(t)["evalsha"]
	require.EqualValues(t, decisions, sent.Calls-sent.Failed, "one round trip a decision, however many policies")
	require.EqualValues(t, 1, sent.Failed, "the first, which found no script")

	leaseTwins(t, limited, 2, true, decisions) // of other keys

	own := standalone.New(limited, unhurried)
	_, err := own.Ping(ctx)
	require.NoError(t, err)
	for _, r := range costRows() { // on the server's own clock
		_, err := layer.Ask(ctx, own, backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Policies: r.policies, Cost: 1}})
		require.NoError(t, err, r.name)
	}
	used := server.CommandStats(t)
	for _, command := range commands(rights) {
		require.NotZero(t, used[command].Calls, "nothing needs +%s", command)
		require.Zero(t, used[command].Rejected, command)
	}
}

// TestRightsSufficeAnyClient: go-redis as it comes sends more commands than
// ours; that they are refused must not matter.
func TestRightsSufficeAnyClient(t *testing.T) {
	server := redistest.Start(t)
	grant(t, server.Client(t), documentedRights(t))
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "headgate", Password: "secret"})
	t.Cleanup(func() { _ = client.Close() })
	opened, err := standalone.Open("redis://headgate:secret@"+server.Addr(), unhurried)
	require.NoError(t, err)
	for _, s := range []*standalone.Store{standalone.New(client, unhurried), opened} {
		_, err := s.Ping(context.Background())
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
}

// TestRightsEndAtThePrefix: a user of the limiter can't reach other keys.
func TestRightsEndAtThePrefix(t *testing.T) {
	server := redistest.Start(t)
	grant(t, server.Client(t), documentedRights(t))
	limited := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "headgate", "secret" })
	require.ErrorContains(t, limited.HSet(context.Background(), "other:1", "f", 1).Err(), "NOPERM")
	require.ErrorContains(t, limited.FlushAll(context.Background()).Err(), "NOPERM")
}

// grant runs the documented lines.
func grant(t *testing.T, admin *redis.Client, lines [][]any) {
	t.Helper()
	for _, line := range lines {
		require.NoError(t, admin.Do(context.Background(), line...).Err())
	}
}

// serviceRights matches the first block of lines below the headline: those of a service.
var serviceRights = regexp.MustCompile("(?s)\n## Rights\n.*?```text\n(.*?)```")

// documentedRights returns the ACL lines of a service as commands.
func documentedRights(t *testing.T) (lines [][]any) {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	block := serviceRights.FindSubmatch(text)
	require.NotNil(t, block, "docs/operations.md has no ACL lines")
	for line := range strings.Lines(string(block[1])) {
		var args []any
		for _, word := range strings.Fields(line) {
			args = append(args, word)
		}
		lines = append(lines, args)
	}
	require.NotEmpty(t, lines)
	return lines
}

// commands returns the commands among the rights, as CommandStats names them.
func commands(lines [][]any) (names []string) {
	for _, line := range lines {
		for _, word := range line {
			if name, ok := strings.CutPrefix(word.(string), "+"); ok {
				names = append(names, name)
			}
		}
	}
	return names
}
