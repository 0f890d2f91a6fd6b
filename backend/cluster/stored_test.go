package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/slot"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// TestKeysAndStored: what limiters counted is found by name, and the search ends
// where the caller ends it.
func TestKeysAndStored(t *testing.T) {
	c := redistest.SharedCluster(t)
	s := cluster.New(c.Client(t), &cluster.Options{Budget: 10 * time.Second})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	l, err := headgate.New(s, []headgate.Policy{
		{Name: "api", Algorithm: algo.FixedWindow(algo.PerDay(9)), OnFailure: headgate.FailClosed},
	}, &headgate.Options{Shards: 2})
	require.NoError(t, err)
	faulttest.KeysAndStored(t, s, func(key string) error {
		_, err := l.Allow(t.Context(), key)
		return err
	})
}

// TestKeysAndStoredRefuse: an error, and one only.
func TestKeysAndStoredRefuse(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	closed, err := cluster.Open([]string{"127.0.0.1:1"}, nil)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	open, err := cluster.Open([]string{"127.0.0.1:1"}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, open.Close()) })
	for name, c := range map[string]struct {
		store *cluster.Store
		ctx   context.Context
		want  error
	}{
		"zero":        {&cluster.Store{}, t.Context(), &backend.InvalidError{}},
		"closed":      {closed, t.Context(), backend.ErrClosed},
		"nil context": {open, nil, &backend.InvalidError{}},
		"ended":       {open, ended, context.Canceled},
		"dead":        {open, t.Context(), backend.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) { faulttest.KeysAndStoredRefuse(t, c.store, c.ctx, c.want) })
	}
}

// TestInspectionWaits: while a reload has stored the owners of some slots only, a key of
// another node is found all the same.
func TestInspectionWaits(t *testing.T) {
	c := redistest.SharedCluster(t)
	client := c.Client(t)
	const key = "user:42"
	tag := slot.Of(slot.Tag(key, ""))
	l, err := headgate.New(cluster.New(client, &cluster.Options{Budget: 10 * time.Second}),
		[]headgate.Policy{{Name: "api", Algorithm: algo.FixedWindow(algo.PerDay(9)), OnFailure: headgate.FailClosed}}, nil)
	require.NoError(t, err)
	d, err := l.Allow(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, d.Err)

	seed := c.Primary(0).Addr()
	require.NotEqual(t, seed, c.Primary(tag).Addr(), "the key lies elsewhere")
	opts := *client.Options()
	opts.Addrs = []string{seed}
	opts.NewClient = func(o *redis.Options) *redis.Client {
		if o.Addr != seed {
			time.Sleep(50 * time.Millisecond) // the reload stores no owner meanwhile
		}
		o.DialTimeout = 10 * time.Second // dials of a busy machine are not the subject
		return redis.NewClient(o)
	}
	slow := redis.NewClusterClient(&opts)
	t.Cleanup(func() { require.NoError(t, slow.Close()) })
	s := cluster.New(slow, &cluster.Options{Budget: 10 * time.Second})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	var searches errgroup.Group
	for i := range 40 {
		searches.Go(func() error {
			time.Sleep(time.Duration(i) * 3 * time.Millisecond)
			parts, err := s.Stored(t.Context(), key)
			if err == nil && len(parts) != 1 {
				err = fmt.Errorf("search %d found %d parts", i, len(parts))
			}
			return err
		})
	}
	require.NoError(t, searches.Wait())
}

// TestOneDeadNode: a search returns what the living nodes have, and an error that names the
// dead one.
func TestOneDeadNode(t *testing.T) {
	c := redistest.SharedCluster(t)
	whole := cluster.New(c.Client(t), patient)
	t.Cleanup(func() { require.NoError(t, whole.Close()) })
	l, err := headgate.New(whole, []headgate.Policy{
		{Name: "api", Algorithm: algo.FixedWindow(algo.PerDay(900)), OnFailure: headgate.FailClosed},
	}, &headgate.Options{Shards: 16})
	require.NoError(t, err)
	for range 200 {
		d, err := l.Allow(t.Context(), "one dead node")
		require.NoError(t, err)
		require.NoError(t, d.Err)
	}
	for i := range 3 {
		dead := c.Primary(i * slot.Count / 3).Addr()
		opts := *c.Client(t).Options()
		opts.NewClient = func(o *redis.Options) *redis.Client {
			if o.DialTimeout = 10 * time.Second; o.Addr == dead {
				o.Addr = "127.0.0.1:1"
			}
			return redis.NewClient(o)
		}
		client := redis.NewClusterClient(&opts)
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		s := cluster.New(client, patient)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		fails := func(err error) {
			t.Helper()
			require.ErrorIs(t, err, backend.ErrUnavailable)
			require.ErrorContains(t, err, dead)
		}
		parts, err := s.Stored(t.Context(), "one dead node")
		fails(err)
		require.NotEmpty(t, parts)
		require.Less(t, len(parts), 16)
		_, err = s.Leases(t.Context(), "one dead node")
		fails(err)
		names := map[string]bool{}
		for k, err := range s.Keys(t.Context(), "") {
			if err != nil {
				fails(err)
			} else if k.Lease == (backend.LeaseID{}) && k.Sub != "" {
				names[k.Sub] = true
			}
		}
		for _, part := range parts {
			require.Contains(t, names, part.Sub)
		}
	}
}

// TestInspectionOfAPartialAnswer: it waits for the other nodes, which name what the first one
// does not.
func TestInspectionOfAPartialAnswer(t *testing.T) {
	c := redistest.StartCluster(t)
	l := faulttest.Limiter(t, cluster.New(with{&redis.ClusterOptions{Addrs: c.Addrs()}}, patient), faulttest.Wide)
	left := c.Primary(slot.Count - 1)
	var key string
	for i := 0; key == ""; i++ {
		if k := fmt.Sprint("k", i); c.Primary(slot.Of(slot.Tag(k, ""))) == left {
			key = k
		}
	}
	d, err := l.Allow(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, d.Err)

	first := c.Replica(c.Primary(0))
	for _, n := range []*redistest.Server{c.Replica(left), left} {
		require.NoError(t, command(first, "CLUSTER", "FORGET", id(t, n)).Err())
	}
	slow := redistest.NewRelay(t, c.Primary(0).Addr(), 20*time.Millisecond)
	store := cluster.New(with{&redis.ClusterOptions{Addrs: []string{first.Addr(), slow.Addr()}}}, patient)
	defer store.Close()
	stored, err := store.Stored(t.Context(), key)
	require.NoError(t, err)
	require.NotEmpty(t, stored, "no error, and nothing of a node that the second answer names")
}
