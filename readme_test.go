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
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

var importPath = regexp.MustCompile(`"[^"]+"`)

// TestReadmeIsCompiled: every Go snippet of the README is part of an example,
// so that it compiles and does what its Output says.
func TestReadmeIsCompiled(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var source []byte
	for _, file := range []string{"example_test.go", "example_readme_test.go", "example_all_test.go", "middleware/grpclimit/example_test.go"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		source = append(source, text...)
	}
	examples := normal(string(source))
	blocks := goBlock.FindAllStringSubmatch(string(readme), -1)
	require.NotEmpty(t, blocks)
	for _, b := range blocks {
		code := b[1]
		if program.MatchString(code) {
			imports, body := program.FindStringSubmatch(code)[1], program.FindStringSubmatch(code)[2]
			for _, path := range importPath.FindAllString(imports, -1) {
				require.Contains(t, string(source), path, "README.md shows an import that no example has")
			}
			code = body
		}
		require.Contains(t, examples, normal(code), "README.md shows what no example runs:\n%s", code)
	}
}

// program matches a complete program: its imports, and the body of main.
var program = regexp.MustCompile(`(?s)^package main\s+import \((.*?)\)\s+func main\(\) \{(.*)\}\s*$`)

// normal takes indentation and line breaks out of the comparison.
func normal(s string) string { return strings.Join(strings.Fields(s), " ") }

// aclLine also finds the indented line, which only a cluster needs;
// backend/standalone holds the others to be the least.
var aclLine = regexp.MustCompile(`(?m)^ *(ACL SETUSER headgate .*)$`)

// TestReadmesClusterRights: a user with the README's rights decides on a
// cluster, also in a slot that is on the move, and nothing of it is refused.
func TestReadmesClusterRights(t *testing.T) {
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

func grant(t *testing.T, admin *redis.Client) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, line := range aclLine.FindAllStringSubmatch(string(readme), -1) {
		var args []any
		for _, word := range strings.Fields(line[1]) {
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
