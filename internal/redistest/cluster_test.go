package redistest

import (
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
	c := StartCluster(t, "--maxmemory-policy", "noeviction")
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
		{"moves a slot", moves},
		{"moves what is left", movesRest},
		{"grows and shrinks", grows},
		{"takes over from the living", takeover},
		{"changes places", failover},
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
	assert.Equal(t, 12182, c.Slot("foo"))
	assert.Equal(t, c.Slot("user"), c.Slot("x{user}y"))
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
	r := observe(t, func(t testing.TB) { c.NoImmortals(t, "im:") })
	assert.Len(t, r.errors, 30, "each once, though the replicas have it too")
	c.NoImmortals(t, "served:")
}

// away is a primary that does not serve the slot.
func away(c *Cluster, slot int) *Server { return c.Primary((slot + slots/2) % slots) }

func fill(t *testing.T, c *Cluster, tag string, n int) (client *redis.ClusterClient, slot int) {
	t.Helper()
	client = c.Client(t)
	for i := range n {
		require.NoError(t, client.Set(t.Context(), fmt.Sprintf("{%s}%d", tag, i), i, time.Minute).Err())
	}
	return client, c.Slot(tag)
}

func moves(t *testing.T, c *Cluster) {
	client, slot := fill(t, c, "move", 10)
	from, to := c.Primary(slot), away(c, slot)
	c.BeginMove(t, slot, to)
	assert.Equal(t, 4, c.MoveKeys(t, slot, 4))
	plain := from.Client(t)
	ask := plain.Get(t.Context(), "{move}new").Err()
	require.ErrorContains(t, ask, fmt.Sprintf("ASK %d %s", slot, to.Addr()))
	keys := make([]string, 10)
	for i := range keys {
		keys[i] = fmt.Sprintf("{move}%d", i)
		assert.Equal(t, fmt.Sprint(i), client.Get(t.Context(), keys[i]).Val())
	}
	require.ErrorContains(t, plain.MGet(t.Context(), keys...).Err(), "TRYAGAIN")
	assert.Same(t, from, c.Primary(slot), "still open")
	assert.Equal(t, 6, c.MoveKeys(t, slot, 100))
	assert.Zero(t, c.MoveKeys(t, slot, 100))
	c.EndMove(t, slot)
	assert.Same(t, to, c.Primary(slot))
	require.ErrorContains(t, plain.Get(t.Context(), keys[0]).Err(), fmt.Sprintf("MOVED %d %s", slot, to.Addr()))
	assert.Positive(t, client.PTTL(t.Context(), keys[0]).Val(), "a moved key keeps its TTL")

	r := observe(t, func(t testing.TB) { c.MoveKeys(t, slot, 1) })
	assert.Contains(t, r.fatal, "not open")
}

func movesRest(t *testing.T, c *Cluster) {
	client, slot := fill(t, c, "rest", 10)
	to := away(c, slot)
	c.BeginMove(t, slot, to)
	c.EndMove(t, slot)
	assert.Same(t, to, c.Primary(slot))
	assert.Equal(t, "9", client.Get(t.Context(), "{rest}9").Val())
}

func grows(t *testing.T, c *Cluster) {
	client, slot := fill(t, c, "grown", 10)
	was, added := c.Primary(slot), c.Grow(t)
	assert.Contains(t, c.Nodes(), added)
	assert.Len(t, c.Nodes(), 7)
	c.Move(t, []int{slot, slot + 1}, added)
	assert.Same(t, added, c.Primary(slot+1))
	assert.Equal(t, "9", client.Get(t.Context(), "{grown}9").Val())
	c.Move(t, []int{slot, slot + 1}, was)
	c.Forget(t, added)
	assert.Len(t, c.Nodes(), 6)
	assert.NotContains(t, c.Addrs(), added.Addr())
	assert.Same(t, was, c.Primary(slot+1))
	assert.Equal(t, "PONG", added.Client(t).Ping(t.Context()).Val(), "the process lives on")
}

func takeover(t *testing.T, c *Cluster) {
	slot := c.Slot("taken")
	was := c.Primary(slot)
	heir := c.Replica(was)
	c.Takeover(t, heir)
	c.Promoted(t, slot, was)
	c.Settle(t)
	assert.Same(t, heir, c.Primary(slot))
	assert.Same(t, was, c.Replica(heir))
}

func failover(t *testing.T, c *Cluster) {
	client, slot := fill(t, c, "handed", 100)
	was := c.Primary(slot)
	heir := c.Replica(was)
	c.Failover(t, heir)
	c.Settle(t)
	assert.Same(t, heir, c.Primary(slot))
	for i := range 100 {
		assert.Equal(t, fmt.Sprint(i), client.Get(t.Context(), fmt.Sprintf("{handed}%d", i)).Val())
	}
}

func promotes(t *testing.T, c *Cluster) {
	slot := c.Slot("killed")
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
	slot := c.Slot("stopped")
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
	slot := c.Slot("lost")
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
	c.mu.nodes = []*node{{Server: s, id: "a", admin: s.Client(t)}}
	s.Kill()
	assert.Nil(t, c.Primary(0))
	assert.PanicsWithError(t, "redistest: no node lives", func() { c.Slot("k") })
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
	assert.Equal(t, "a", v.self().id)
	assert.True(t, v.self().importing(12))
	assert.False(t, v.self().importing(9), "it leaves")
	assert.Equal(t, []span{{0, 9}, {11, 11}}, v.self().serves)
	assert.Equal(t, "a", v.owner(11))
	assert.Equal(t, "c", v.owner(100))
	assert.Empty(t, v.owner(12))
	assert.Equal(t, "b", v.replica("a"))
	assert.ErrorContains(t, v.amiss(6, nil), "knows 3 of 6")
	assert.ErrorContains(t, v.amiss(3, nil), "serve 0 of 16384")
	a, c := &node{Server: &Server{port: 1}, id: "a"}, &node{Server: &Server{port: 4}, id: "c"}
	assert.ErrorContains(t, v.amiss(3, []*node{a, c}), "sees 127.0.0.1:4 as [master fail?], linked false")
}
