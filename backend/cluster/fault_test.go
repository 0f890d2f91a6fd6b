package cluster_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/faulttest"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// Set, Every and Hit make proxies faulttest.Faults.
func (p *proxies) Set(f redistest.Fault) { p.each(func(x *redistest.Proxy) { x.Set(f) }) }

func (p *proxies) Every(n int) { p.each(func(x *redistest.Proxy) { x.Every(n) }) }

func (p *proxies) Hit() int { return p.hit() }

func TestAtMostOnce(t *testing.T) {
	c := redistest.StartCluster(t)
	p := &proxies{t: t}
	through := cluster.New(with{p.options(c)}, nil)
	defer through.Close()
	direct := cluster.Open(c.Addrs(), patient)
	defer direct.Close()
	faulttest.AtMostOnce(t, []*headgate.Limiter{faulttest.Limiter(t, through, faulttest.Wide)}, faulttest.Limiter(t, direct, faulttest.Wide), p, cluster.DefaultBudget)
	c.NoImmortals(t, "")
}

func addrs(c *redistest.Cluster) []string {
	if c != nil {
		return c.Addrs()
	}
	return strings.Split(os.Getenv("ADDRS"), ",")
}

func env(c *redistest.Cluster) string { return "ADDRS=" + strings.Join(c.Addrs(), ",") }

func TestRaces(t *testing.T) {
	var c *redistest.Cluster
	faulttest.Races(t, func() backend.Store { return cluster.Open(addrs(c), patient) }, func() string {
		c = redistest.StartCluster(t)
		return env(c)
	})
	if c != nil {
		c.NoImmortals(t, "")
	}
}

func TestScriptFlush(t *testing.T) {
	var c *redistest.Cluster
	open := func() (backend.Store, redis.UniversalClient) {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs(c)})
		return cluster.New(client, patient), client
	}
	faulttest.Flush(t, open, func() faulttest.Servers {
		c = redistest.StartCluster(t)
		client := c.Client(t)
		return faulttest.Servers{
			Env: env(c), Nodes: 3, Client: client,
			Flush: func() error {
				return client.ForEachMaster(context.Background(), func(ctx context.Context, n *redis.Client) error {
					return n.ScriptFlush(ctx).Err()
				})
			},
			Stats: func() map[string]redistest.Stat { return c.CommandStats(t) },
		}
	})
}
