package redistest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Cluster is a Redis Cluster on ports of 127.0.0.1. It begins with three
// primaries and three replicas, one for each. Safe for concurrent use: which
// node is primary of what is asked of the nodes each time.
type Cluster struct {
	args []string // of every server
	mu   struct {
		sync.Mutex
		nodes []*node // replaced, never changed in place
	}
}

type node struct {
	*Server
	id    string
	admin *redis.Client
}

// StartCluster runs a cluster for this test alone and kills it when the test
// ends. It takes some 2.5 s, of which a fresh primary spends 2 in refusing to
// serve. args go to all six servers, after our own, as in "--cluster-node-timeout",
// "500". Without a redis-server the test is skipped, or fails where CI=true.
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{args: append(slices.Clone(settings), args...)}
	for range 2 * primaries {
		c.mu.nodes = append(c.mu.nodes, join(t, c.args))
	}
	c.form(t)
	c.Settle(t)
	return c
}

// settings let a replica take over as soon as the node timeout allows: it may
// be late with its copy, and does not wait for company before it syncs.
var settings = []string{
	"--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1",
	"--cluster-require-full-coverage", "no", "--cluster-node-timeout", "1000",
	"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
}

func join(t testing.TB, args []string) *node {
	t.Helper()
	s := Start(t, args...)
	// One try, within bounds: what asks a node here asks again by itself, or
	// wants to know that it is gone.
	admin := s.Client(t, func(o *redis.Options) {
		o.MaxRetries, o.DialerRetries, o.DialTimeout = -1, 1, time.Second
	})
	id, err := admin.Do(context.Background(), "CLUSTER", "MYID").Text()
	if err != nil {
		t.Fatal(err)
	}
	return &node{s, id, admin}
}

// all returns the members of the cluster, living or not.
func (c *Cluster) all() []*node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.nodes
}

// Nodes are the servers, living or not, always in the same order. The first
// three began as primaries, the next three as their replicas; what Grow added
// follows.
func (c *Cluster) Nodes() []*Server {
	var servers []*Server
	for _, n := range c.all() {
		servers = append(servers, n.Server)
	}
	return servers
}

// Addrs are the addresses of Nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, n := range c.all() {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// Node returns the server at host:port, nil if there is none.
func (c *Cluster) Node(addr string) *Server {
	for _, n := range c.all() {
		if n.Addr() == addr {
			return n.Server
		}
	}
	return nil
}

// Client returns a client of the whole cluster that is closed when the test
// ends. As with Server.Client, all but noise is go-redis's default.
func (c *Cluster) Client(t testing.TB, opts ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	o := &redis.ClusterOptions{
		Addrs:                    c.Addrs(),
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for _, set := range opts {
		set(o)
	}
	client := redis.NewClusterClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Slot is the slot of a key, in a server's opinion: what we compute ourselves
// can be held against it. It panics when no node lives.
func (c *Cluster) Slot(key string) int {
	err := errors.New("redistest: no node lives")
	for _, n := range c.living() {
		var slot int64
		if slot, err = n.admin.ClusterKeySlot(context.Background(), key).Result(); err == nil {
			return int(slot)
		}
	}
	panic(err)
}

// Primary is who serves the slot in the eyes of more than half of the living
// nodes, even if it is dead and they have not noticed. Nil while there is no
// such majority.
func (c *Cluster) Primary(slot int) *Server {
	return c.majority(func(v view) string { return v.owner(slot) })
}

// Replica is who copies the given primary, in the eyes of more than half of the
// living nodes; nil without such a majority, or if it has none. Of several it
// is the one with the least id.
func (c *Cluster) Replica(of *Server) *Server {
	return c.majority(func(v view) string { return v.replica(c.of(of).id) })
}

// majority returns the server whose id more than half of the living nodes name.
func (c *Cluster) majority(name func(view) string) *Server {
	votes, living := map[string]int{}, c.living()
	for _, n := range living {
		if v, err := n.view(); err == nil {
			votes[name(v)]++
		}
	}
	for _, n := range c.all() {
		if 2*votes[n.id] > len(living) {
			return n.Server
		}
	}
	return nil
}

func (c *Cluster) living() []*node {
	var living []*node
	for _, n := range c.all() {
		if n.living() {
			living = append(living, n)
		}
	}
	return living
}

// of panics for a server of somewhere else, nil included: that is a mistake of
// the test.
func (c *Cluster) of(s *Server) *node {
	for _, n := range c.all() {
		if n.Server == s {
			return n
		}
	}
	panic("redistest: a server that is not of this cluster")
}
