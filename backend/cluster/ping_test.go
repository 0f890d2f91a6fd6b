package cluster_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestPing(t *testing.T) {
	c := redistest.SharedCluster(t)
	store := open(c.Addrs(), &cluster.Options{Budget: 2 * time.Second})
	l := faulttest.Limiter(t, store, faulttest.Wide)
	warnings, err := l.Ping(context.Background())
	require.NoError(t, err)
	require.Empty(t, warnings)
	coverage := func(set string) {
		require.NoError(t, c.Primary(0).Client(t).ConfigSet(context.Background(), "cluster-require-full-coverage", set).Err())
	}
	coverage("yes")
	defer coverage("no")
	warnings, err = l.Ping(context.Background())
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "cluster-require-full-coverage")
	require.NoError(t, store.Close())
	require.NoError(t, store.Close())
	_, err = l.Ping(context.Background())
	require.ErrorIs(t, err, headgate.ErrClosed)
	_, err = l.Allow(context.Background(), "k")
	require.ErrorIs(t, err, headgate.ErrClosed)
}

// endpoints is a client whose options name a node that nobody listens for.
type endpoints struct{}

func (endpoints) Options() *redis.ClusterOptions {
	return &redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}
}

// TestPingNamesMissingRights: a right that one primary does not grant is named,
// with that primary, whatever the others grant and whatever they have cached.
func TestPingNamesMissingRights(t *testing.T) {
	ctx := context.Background()
	c := redistest.SharedCluster(t)
	store, err := cluster.Open(c.Addrs(), patient)
	require.NoError(t, err)
	defer store.Close()
	l := faulttest.Limiter(t, store, faulttest.Wide)
	require.NoError(t, callAll(l)) // the script is loaded on all nodes
	rights := []string{
		"+evalsha", "+script|load", "+time", "+info", "+ping", "+cluster|slots", "+asking",
		"+hget", "+hmget", "+hrandfield", "+hset", "+hdel", "+unlink", "+pttl", "+pexpire", "+get", "+set",
		"+zadd", "+zrange", "+zcount", "+zcard", "+zrem", "+zremrangebyrank",
	}
	for i, right := range rights {
		victim := c.Primary(i % 3 * slot.Count / 3)
		admin := victim.Client(t)
		require.NoError(t, admin.Do(ctx, "acl", "setuser", "default", "-"+right[1:]).Err())
		_, err := l.Ping(ctx)
		var missing *backend.RightError
		require.ErrorAs(t, err, &missing, right)
		require.Equal(t, victim.Addr(), missing.Node, right)
		require.Equal(t, []string{right}, missing.Rights)
		require.ErrorIs(t, err, headgate.ErrUnavailable)
		require.ErrorContains(t, err, right+" on "+victim.Addr())
		require.NoError(t, admin.Do(ctx, "acl", "setuser", "default", right).Err())
	}
	_, err = l.Ping(ctx)
	require.NoError(t, err)
}

// TestPingNamesTheCause, also once it has opened the circuit of one primary.
func TestPingNamesTheCause(t *testing.T) {
	c := redistest.SharedCluster(t)
	store := open(c.Addrs(), patient)
	defer store.Close()
	l := faulttest.Limiter(t, store, faulttest.Wide)
	require.NoError(t, callAll(l))
	victim := c.Primary(slot.Count / 2)
	set := func(maxmemory string) {
		require.NoError(t, victim.Client(t).ConfigSet(t.Context(), "maxmemory", maxmemory).Err())
	}
	set("1")
	defer set("0")
	key := inSlot(slot.Count/2, 1, "k")[0]
	for l.Stats().Circuits[victim.Addr()] != "open" {
		d, err := l.Allow(t.Context(), key)
		require.NoError(t, err)
		require.Error(t, d.Err)
	}
	_, err := l.Ping(t.Context())
	require.ErrorIs(t, err, headgate.ErrUnavailable)
	require.ErrorContains(t, err, "OOM")
	require.ErrorContains(t, err, victim.Addr())
}

// TestPingNamesTheRightToSlots: no node grants the right without which the store finds
// none. The ACLs of a cluster's nodes are alike as a rule.
func TestPingNamesTheRightToSlots(t *testing.T) {
	c := redistest.SharedCluster(t)
	grant := func(right string) {
		for _, n := range c.Nodes() {
			require.NoError(t, n.Client(t).Do(context.Background(), "acl", "setuser", "default", right).Err())
		}
	}
	grant("-cluster|slots")
	defer grant("+cluster|slots")
	store := open(c.Addrs(), patient)
	defer store.Close()
	_, err := faulttest.Limiter(t, store, faulttest.Wide).Ping(t.Context())
	var missing *backend.RightError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, []string{"+cluster|slots"}, missing.Rights)
	require.Contains(t, c.Addrs(), missing.Node)
}

func TestNewRefuses(t *testing.T) {
	var none *redis.ClusterClient
	for what, s := range map[string]*cluster.Store{
		"client":    cluster.New(none, nil),
		"addresses": cluster.New(redis.NewClusterClient(&redis.ClusterOptions{}), nil),
		"budget":    cluster.New(endpoints{}, &cluster.Options{Budget: time.Hour}),
		"prefix":    cluster.New(endpoints{}, &cluster.Options{Prefix: "{a}"}),
	} {
		_, err := headgate.New(s, []headgate.Policy{faulttest.Wide}, nil)
		var invalid *headgate.InvalidError
		require.ErrorAs(t, err, &invalid, what)
		require.Equal(t, what, invalid.What)
		require.NoError(t, s.Close())
	}
}

// TestDeadCluster: nobody answers, and each mode gives its answer in time.
func TestDeadCluster(t *testing.T) {
	l := faulttest.Limiter(t, open([]string{"127.0.0.1:1", "127.0.0.1:2"}, nil), faulttest.Wide)
	late, longest := redistest.Lateness(t, cluster.DefaultBudget), time.Duration(0)
	for range 20 {
		begin := time.Now()
		d, err := l.Allow(context.Background(), "k")
		longest = max(longest, time.Since(begin))
		require.NoError(t, err)
		require.ErrorIs(t, d.Err, headgate.ErrUnavailable)
		require.Equal(t, headgate.FromFailClosed, d.Source)
	}
	require.LessOrEqual(t, longest, late.Within())
}

// TestTLS decides over TLS, on one server and on a node of a cluster, with
// nothing but the user's own TLSConfig; a server that is not trusted is not asked.
func TestTLS(t *testing.T) {
	args, trusting := redistest.Certificate(t)
	addr := redistest.Start(t, args...).ListenTLS(t)
	for _, c := range []struct {
		trusted bool
		config  *tls.Config
	}{{true, trusting}, {false, &tls.Config{}}} {
		client := redis.NewClient(&redis.Options{Addr: addr, TLSConfig: c.config})
		defer client.Close()
		d, err := faulttest.Limiter(t, standalone.New(client, &standalone.Options{Budget: time.Second}), faulttest.Wide).Allow(context.Background(), "k")
		require.NoError(t, err)
		require.Equal(t, c.trusted, d.Err == nil, d.Err)
	}
	// A cluster of one node, whose slots are all its own.
	s := redistest.Start(t, append(args, "--tls-port", redistest.AnyPort, "--cluster-enabled", "yes", "--cluster-announce-tls-port", redistest.AnyPort, "--tls-cluster", "yes")...)
	require.NoError(t, s.Client(t).Do(context.Background(), "cluster", "addslotsrange", 0, 16383).Err())
	store := cluster.New(with{&redis.ClusterOptions{Addrs: []string{net.JoinHostPort("127.0.0.1", s.TLSPort())}, TLSConfig: trusting}}, &cluster.Options{Budget: time.Second})
	defer store.Close()
	l := faulttest.Limiter(t, store, faulttest.Wide)
	require.Eventually(t, func() bool {
		d, err := l.Allow(context.Background(), "k")
		return err == nil && d.Err == nil
	}, 10*time.Second, 50*time.Millisecond)
}
