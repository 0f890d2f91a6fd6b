package cluster

import (
	"context"
	"fmt"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/script"
	"github.com/redis/go-redis/v9"
)

// Oldest is the lowest Redis version that the store works with: the oldest
// that its tests run on.
const Oldest = script.Oldest

// Ping asks every primary whether it is fit to serve: reachable, new enough,
// and able to run the script with this user's rights. It warns where a node
// may evict counts, where its round trip takes a good part of the budget, and
// where cluster-require-full-coverage makes every node refuse while one
// primary is missing.
func (s *Store) Ping(ctx context.Context) (warnings []string, err error) {
	return script.Within(ctx, s.ping)
}

func (s *Store) ping(ctx context.Context) (warnings []string, err error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if s.closed.Load() {
		return nil, backend.ErrClosed
	}
	if _, err := backend.Ask(ctx, s, script.Probe); err != nil { // the first look at the cluster, too
		return nil, err
	}
	for _, n := range s.top.primaries() {
		w, err := s.pingNode(ctx, n)
		for _, w := range w {
			warnings = append(warnings, n.addr+": "+w)
		}
		if err != nil {
			return warnings, fmt.Errorf("node %s: %w", n.addr, err)
		}
	}
	return warnings, nil
}

func (s *Store) pingNode(ctx context.Context, n *node) (warnings []string, err error) {
	info, err := script.ReadInfo(ctx, n.client)
	if err != nil {
		return nil, err
	}
	if err := info.Fit(); err != nil {
		return nil, err
	}
	slow, err := script.Slow(ctx, n.client, s.set.Budget)
	for _, w := range []string{info.Evicts(), coverage(ctx, n.client), slow} {
		if w != "" {
			warnings = append(warnings, w)
		}
	}
	return warnings, err
}

// coverage needs the right to CONFIG GET; without it there is nothing to say.
func coverage(ctx context.Context, c *redis.Client) string {
	const name = "cluster-require-full-coverage"
	if c.ConfigGet(ctx, name).Val()[name] != "yes" {
		return ""
	}
	return name + " is yes: while one primary is missing every node answers CLUSTERDOWN, and every key meets its failure mode"
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
