package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// One cluster for all, since a start takes seconds: each subtest leaves it
// well, whoever is primary then.
func TestCluster(t *testing.T) {
	start := time.Now()
	c := StartCluster(t, append([]string{"--maxmemory-policy", "noeviction"}, Elections...)...)
	t.Logf("well after %v", time.Since(start).Round(time.Millisecond))
	for _, test := range []struct {
		name string
		run  func(*testing.T, *Cluster)
	}{
		{"begins in order", begins},
		{"serves", serves},
		{"names its nodes", names},
		{"takes our arguments", arguments},
		{"adds up", addsUp},
		{"finds immortals", immortals},
		{"grows and shrinks", grows},
		{"promotes for the dead", promotes},
		{"promotes for the stopped", promotesStopped},
		{"loses both of a pair", losesPair},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, c)
			c.Settle(t)
		})
	}
}

func begins(t *testing.T, c *Cluster) {
	nodes := c.Nodes()
	for i, slot := range []int{0, 5461, 10922} {
		assert.Same(t, nodes[i], c.Primary(slot))
		assert.Same(t, nodes[i], c.Primary(slot+5460))
		assert.Same(t, nodes[i+3], c.Replica(nodes[i]))
	}
	assert.Nil(t, c.Replica(nodes[3]), "nobody copies a replica")
}

func serves(t *testing.T, c *Cluster) {
	client := c.Client(t)
	for i := range 100 {
		require.NoError(t, client.Set(t.Context(), fmt.Sprint("served:", i), i, time.Minute).Err())
	}
	at, err := client.MasterForKey(t.Context(), "foo")
	require.NoError(t, err)
	assert.Equal(t, c.Primary(12182).Addr(), at.Options().Addr)
}

func names(t *testing.T, c *Cluster) {
	assert.Len(t, c.Addrs(), 6)
	for i, addr := range c.Addrs() {
		assert.Equal(t, addr, c.Nodes()[i].Addr())
	}
	assert.Panics(t, func() { c.Replica(nil) })
}

func arguments(t *testing.T, c *Cluster) {
	for _, s := range c.Nodes() {
		assert.Equal(t, "noeviction", s.Client(t).ConfigGet(t.Context(), "maxmemory-policy").Val()["maxmemory-policy"])
	}
}

func addsUp(t *testing.T, c *Cluster) {
	client := c.Client(t)
	require.NoError(t, client.Ping(t.Context()).Err())
	c.ResetStats(t)
	for i := range 90 {
		key := fmt.Sprint("added:", i)
		require.NoError(t, client.Eval(t.Context(), `return redis.call('STRLEN', KEYS[1])`, []string{key}).Err())
	}
	got := c.CommandStats(t)
	assert.EqualValues(t, 90, got["eval"].Calls)
	assert.EqualValues(t, 90, got["strlen"].Calls)
	assert.Positive(t, got["eval"].PerCall)
	const refused = "calls=0,usec=0,usec_per_call=0.00,rejected_calls=2,failed_calls=0"
	assert.Equal(t, Stat{Rejected: 3}, Stat{Rejected: 1}.plus(t, refused))
}

func immortals(t *testing.T, c *Cluster) {
	client := c.Client(t)
	for i := range 30 {
		require.NoError(t, client.Set(t.Context(), fmt.Sprint("im:", i), i, 0).Err())
	}
	r := observe(t, func(t testing.TB) { c.NoImmortals(t) })
	assert.Len(t, r.errors, 30, "each once, though the replicas have it too")
	require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, n *redis.Client) error {
		return n.FlushAll(ctx).Err()
	}))
	c.NoImmortals(t)
}

// away is a primary that does not serve the slot.
func away(c *Cluster, slot int) *Server { return c.Primary((slot + slots/2) % slots) }

func grows(t *testing.T, c *Cluster) {
	added := c.Grow(t)
	assert.Contains(t, c.Nodes(), added)
	assert.Len(t, c.Nodes(), 7)
	c.Forget(t, added)
	assert.Len(t, c.Nodes(), 6)
	assert.NotContains(t, c.Addrs(), added.Addr())
	assert.Equal(t, "PONG", added.Client(t).Ping(t.Context()).Val(), "the process lives on")
}

func promotes(t *testing.T, c *Cluster) {
	const slot = 0
	was := c.Primary(slot)
	heir, start := c.Replica(was), time.Now()
	was.Kill()
	assert.Same(t, was, c.Primary(slot), "nobody has noticed yet")
	at := c.Promoted(t, slot, was)
	t.Logf("promoted after %v", at.Sub(start).Round(time.Millisecond))
	assert.WithinRange(t, at, start.Add(time.Second), time.Now())
	c.Settle(t)
	assert.Same(t, heir, c.Primary(slot))

	was.Restart(t)
	c.Settle(t)
	t.Logf("whole again after %v", time.Since(start).Round(time.Millisecond))
	assert.Same(t, was, c.Replica(heir), "it comes back as a replica")
	assert.Equal(t, "slave", was.Client(t).Do(t.Context(), "ROLE").Val().([]any)[0])
}

func promotesStopped(t *testing.T, c *Cluster) {
	const slot = 6000
	was := c.Primary(slot)
	heir := c.Replica(was)
	was.Stop()
	c.Promoted(t, slot, was)
	c.Settle(t)
	assert.Same(t, heir, c.Primary(slot))
	was.Cont()
	c.Settle(t)
	assert.Same(t, was, c.Replica(heir))
}

// What no full coverage is for: two thirds of the slots stay in service.
func losesPair(t *testing.T, c *Cluster) {
	const slot = 16000
	was := c.Primary(slot)
	heir := c.Replica(was)
	heir.Kill()
	was.Kill()
	require.Error(t, c.unwell())
	other := away(c, slot)
	require.NoError(t, other.Client(t).Ping(t.Context()).Err())
	assert.Len(t, c.living(), 4)
	was.Restart(t)
	heir.Restart(t)
	c.Settle(t)
	assert.NotNil(t, c.Primary(slot))
}

func TestClusterOfDeadNodes(t *testing.T) {
	s := Start(t)
	c := new(Cluster)
	c.nodes.Store(&[]*node{{Server: s, id: "a", admin: s.Client(t)}})
	s.Kill()
	assert.Nil(t, c.Primary(0))
	assert.EqualError(t, c.unwell(), "no node lives")
}

func TestView(t *testing.T) {
	v := parseView(strings.Join([]string{
		"b 127.0.0.1:2@3,,shard-id=x slave a 0 0 1 connected",
		"a 127.0.0.1:1@2 myself,master - 0 0 1 connected 0-9 11 [12-<-c] [9->-c]",
		"nonsense",
		"c 127.0.0.1:4@5 master,fail? - 0 0 2 disconnected 100",
	}, "\n"))
	require.Len(t, v, 3)
	owner := func(slot int) string { return v.find(func(m member) bool { return m.owns(slot) }).id }
	assert.Equal(t, "a", v.self().id)
	assert.Equal(t, []span{{0, 9}, {11, 11}}, v.self().serves)
	assert.Equal(t, "a", owner(11))
	assert.Equal(t, "c", owner(100))
	assert.Empty(t, owner(12))
	assert.Equal(t, "b", v.find(func(m member) bool { return m.primary == "a" }).id)
	assert.ErrorContains(t, v.amiss(6, nil), "knows 3 of 6")
	assert.ErrorContains(t, v.amiss(3, nil), "serve 0 of 16384")
	a, c := &node{Server: &Server{port: 1}, id: "a"}, &node{Server: &Server{port: 4}, id: "c"}
	assert.ErrorContains(t, v.amiss(3, []*node{a, c}), "sees 127.0.0.1:4 as [master fail?], linked false")
}
