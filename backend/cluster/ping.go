package cluster

import (
	"context"
	"fmt"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/inspect"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/redis/go-redis/v9"
)

// MinRedisVersion is the lowest version of Redis that the store works with.
const MinRedisVersion = inspect.MinRedisVersion

// Ping checks that each primary is reachable and new enough. It checks that its
// user has each right that the scripts need, SCRIPT LOAD too. A missing right
// is a *backend.RightError that names the primary. Ping warns where a node may
// evict counts, and where its round trip takes over a quarter of the budget. It
// also warns where cluster-require-full-coverage makes every node refuse while
// one primary is missing. It ends within ten budgets or 5 s, whichever is more.
func (s *Store) Ping(ctx context.Context) (warnings []string, err error) {
	if err := backend.CheckContext(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, inspect.Patience(s.set.Budget))
	defer cancel()
	nodes, err := s.inspect(ctx)
	for _, n := range nodes {
		w, err := s.pingNode(ctx, n)
		for _, w := range w {
			warnings = append(warnings, n.addr+": "+w)
		}
		if err != nil { // names the node
			return warnings, err
		}
	}
	return warnings, err
}

// pingNode checks one primary, and what is a matter of its cluster.
func (s *Store) pingNode(ctx context.Context, n *node) (warnings []string, err error) {
	//mutant:ping-each-primary
	warnings, err = n.inspected().Ping(ctx, s, n.server.PastCircuit(s.top), s.top.keyOf(n))
	if w := coverage(ctx, n.client); w != "" {
		warnings = append(warnings, w)
	}
	return warnings, err
}

// inspected is the node as its operator sees it.
func (n *node) inspected() inspect.Node {
	set := &n.server.Settings
	return inspect.Node{Client: n.server.Client(), Name: n.addr, Prefix: set.Prefix, Budget: set.Budget, Cluster: true}
}

// coverage returns a warning where one missing primary makes every node refuse.
// It is empty without the right to CONFIG GET, which Headgate does not need
// otherwise.
func coverage(ctx context.Context, c *redis.Client) string {
	const name = "cluster-require-full-coverage"
	if c.ConfigGet(ctx, name).Val()[name] != "yes" {
		return ""
	}
	return name + " is yes: while one primary is missing every node answers CLUSTERDOWN, and every key gets its failure mode"
}

// keyOf returns a key for Ping that lies on the node. A node with few slots may
// need thousands of trials, which Ping can afford. If the node has lost its
// slots meanwhile, the key lies elsewhere, and the request is redirected there.
func (t *topology) keyOf(n *node) (key string) {
	for i := range slot.Count {
		key = fmt.Sprint(inspect.PingKey, i)
		if t.owner[slot.Of(slot.Tag(key, ""))].Load() == n {
			break
		}
	}
	return key
}

// primaries returns the nodes that have slots.
func (t *topology) primaries() []*node {
	var ns []*node
	seen := map[*node]bool{}
	for i := range t.owner {
		if n := t.owner[i].Load(); n != nil && !seen[n] {
			seen[n] = true
			ns = append(ns, n)
		}
	}
	return ns
}
