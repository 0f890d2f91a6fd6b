package standalone_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/headgate-go/headgate/internal/script"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestLeastRights holds the README's ACL line: a user with these rights
// decides with every algorithm, and there is no right that isn't used.
func TestLeastRights(t *testing.T) {
	ctx := context.Background()
	rights := documentedRights(t)
	server := redistest.Start(t)
	admin := server.Client(t)
	grant(t, admin, rights)
	limited := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "headgate", "secret" })

	s := trace.New(1)
	virtual := script.Virtual{Client: limited, Now: func() time.Time { return time.UnixMicro(s.Now()) }}
	lua := standalone.New(virtual, &standalone.Options{Budget: 10 * time.Second})
	model := trace.NewModel(s.Now)
	for i := range 5000 {
		r := s.Next()
		require.NoError(t, trace.Same(trace.Ask(ctx, model, r), trace.Ask(ctx, lua, r)), "step %d", i)
	}

	own := standalone.New(limited, &standalone.Options{Budget: 10 * time.Second})
	_, err := own.Ping(ctx)
	require.NoError(t, err)
	for _, r := range costRows() { // on the server's own clock
		_, err := own.Do(ctx, backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Policies: r.policies, Cost: 1}, Last: true})
		require.NoError(t, err, r.name)
	}
	used := server.CommandStats(t)
	for _, command := range commands(rights) {
		require.NotZero(t, used[command].Calls, "nothing needs +%s", command)
		require.Zero(t, used[command].Rejected, command)
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

func grant(t *testing.T, admin *redis.Client, rights []string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "headgate", "on", ">secret"}
	for _, r := range rights {
		args = append(args, r)
	}
	require.NoError(t, admin.Do(context.Background(), args...).Err())
}

// documentedRights returns what the README's ACL line grants.
func documentedRights(t *testing.T) []string {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	block := regexp.MustCompile(`(?s)ACL SETUSER headgate on >\S+ (.*?)\n` + "```").FindSubmatch(readme)
	require.NotNil(t, block, "README.md holds no ACL line")
	return strings.Fields(strings.ReplaceAll(string(block[1]), "\\\n", " "))
}

// commands returns the commands among the rights, as CommandStats names them.
func commands(rights []string) (names []string) {
	for _, r := range rights {
		if name, ok := strings.CutPrefix(r, "+"); ok {
			names = append(names, name)
		}
	}
	return names
}
