package headgate_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// serviceRights matches the first block below the headline; backend/standalone holds its
// lines to be the least.
var serviceRights = regexp.MustCompile("(?s)\n## Rights\n.*?```text\n(.*?)```")

// clusterRights matches the indented line, which only a cluster needs.
var clusterRights = regexp.MustCompile(`(?m)^  (ACL SETUSER headgate .*)$`)

// TestClusterRights: a user with the rights of docs/operations.md decides on a
// cluster, also in a slot that is on the move, and nothing of it is refused.
func TestClusterRights(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a cluster: some 2.5 s")
	}
	ctx := context.Background()
	c := redistest.StartCluster(t)
	for _, n := range c.Nodes() {
		grant(t, n.Client(t))
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Username: "headgate", Password: "secret"})
	defer client.Close()
	store := cluster.New(client, &cluster.Options{Budget: 10 * time.Second})
	defer store.Close()
	l, err := headgate.New(store, []headgate.Policy{perMinute}, nil)
	require.NoError(t, err)
	_, err = l.Ping(ctx)
	require.NoError(t, err)
	open(t, c, "headgate:{user:42}")
	for i := range 20 {
		for _, key := range []string{"user:42", fmt.Sprint("user:", i)} { // the first is asked for with ASK
			d, err := l.Allow(ctx, key)
			require.NoError(t, err)
			require.NoError(t, d.Err)
		}
	}
	used := c.CommandStats(t)
	for _, name := range []string{"cluster|slots", "asking", "script|load"} { // an EVALSHA that is redirected counts as rejected
		require.NotZero(t, used[name].Calls, name)
		require.Zero(t, used[name].Rejected, name)
	}
}

// grant runs the ACL lines of a service that docs/operations.md has, with those for a
// cluster.
func grant(t *testing.T, admin *redis.Client) {
	text, err := os.ReadFile("docs/operations.md")
	require.NoError(t, err)
	lines := serviceRights.FindStringSubmatch(string(text))
	require.NotNil(t, lines)
	more := clusterRights.FindStringSubmatch(string(text))
	require.NotNil(t, more)
	for line := range strings.Lines(lines[1] + more[1]) {
		var args []any
		for _, word := range strings.Fields(line) {
			args = append(args, word)
		}
		require.NoError(t, admin.Do(context.Background(), args...).Err())
	}
}

// open begins to move the key's slot and leaves it open: its owner answers ASK.
func open(t *testing.T, c *redistest.Cluster, key string) {
	ctx := context.Background()
	slot, err := c.Client(t).ClusterKeySlot(ctx, key).Result()
	require.NoError(t, err)
	from, to := c.Primary(int(slot)), c.Primary(0)
	if from == to {
		to = c.Primary(16383)
	}
	for _, side := range []struct {
		node, other *redistest.Server
		state       string
	}{{to, from, "IMPORTING"}, {from, to, "MIGRATING"}} {
		id, err := side.other.Client(t).ClusterMyID(ctx).Result()
		require.NoError(t, err)
		require.NoError(t, side.node.Client(t).Do(ctx, "CLUSTER", "SETSLOT", slot, side.state, id).Err())
	}
}
