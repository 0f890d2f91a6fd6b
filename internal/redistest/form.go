package redistest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	primaries = 3
	slots     = 16384
	// settling takes a failover's second or two; the rest is for a machine that
	// runs every package's tests at once under -race.
	settling = 60 * time.Second
	// glance is how often we look: six nodes that are asked more often have less
	// time for the test.
	glance = 5 * time.Millisecond
)

// form makes a cluster of six strangers. Each is told of each: gossip alone
// would get there too, and takes a second longer.
func (c *Cluster) form(t testing.TB) {
	t.Helper()
	ctx, nodes := context.Background(), c.all()
	for i, n := range nodes {
		pipe := n.admin.Pipeline()
		// Epochs of their own, or the nodes would have to settle who is right.
		pipe.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if i < primaries {
			pipe.ClusterAddSlotsRange(ctx, i*slots/primaries, (i+1)*slots/primaries-1)
		}
		for _, peer := range nodes[:i] {
			pipe.ClusterMeet(ctx, "127.0.0.1", fmt.Sprint(peer.port))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for i, replica := range nodes[primaries:] {
		// "Unknown node" until the two have met.
		await(t, func() error { return replica.admin.ClusterReplicate(ctx, nodes[i].id).Err() })
	}
}

// Settle waits until the cluster is well: all living nodes agree on who is who,
// living primaries serve every slot, and living replicas have their primary's
// data. It is where to wait after a Restart, and after whatever else a test did
// to a node before the next test relies on it.
func (c *Cluster) Settle(t testing.TB) {
	t.Helper()
	await(t, c.unwell)
}

// await fails the test with the last reason if that doesn't go away.
func await(t testing.TB, unfit func() error) {
	t.Helper()
	err := unfit()
	for end := time.Now().Add(settling); err != nil && time.Now().Before(end); err = unfit() {
		time.Sleep(glance)
	}
	if err != nil {
		t.Fatalf("redistest: after %v: %v", settling, err)
	}
}

func (c *Cluster) unwell() error {
	living := c.living()
	if len(living) == 0 {
		return errors.New("no node lives")
	}
	first := ""
	for _, n := range living {
		said, err := n.well(c, living)
		if err != nil {
			return fmt.Errorf("%s: %w", n.Addr(), err)
		}
		if first == "" {
			first = said
		}
		if said != first {
			return fmt.Errorf("%s says\n%s%s says\n%s", living[0].Addr(), first, n.Addr(), said)
		}
	}
	return nil
}

// well returns who is who in this node's eyes, if it sees nothing amiss.
func (n *node) well(c *Cluster, living []*node) (string, error) {
	ctx := context.Background()
	pipe := n.admin.Pipeline()
	state, copying, nodes := pipe.ClusterInfo(ctx), pipe.Info(ctx, "replication"), pipe.ClusterNodes(ctx)
	if _, err := pipe.Exec(ctx); err != nil {
		return "", err
	}
	if field(state.Val(), "cluster_state") != "ok" {
		return "", errors.New(state.Val())
	}
	if up := field(copying.Val(), "master_link_status"); up != "up" && up != "" { // a primary has none
		return "", errors.New("its link to the primary is " + up)
	}
	v := parseView(nodes.Val())
	return v.String(), v.amiss(len(c.all()), living)
}

// view fails when the node does not answer.
func (n *node) view() (view, error) {
	said, err := n.admin.ClusterNodes(context.Background()).Result()
	return parseView(said), err
}

func (n *node) do(t testing.TB, args ...any) *redis.Cmd {
	t.Helper()
	cmd := n.admin.Do(context.Background(), args...)
	if err := cmd.Err(); err != nil {
		t.Fatalf("redistest: %v at %s: %v", args, n.Addr(), err)
	}
	return cmd
}
