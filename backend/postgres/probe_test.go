package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestProbes: while the circuit is open, one probe at a time connects to the server, whatever the
// number of calls. Without calls, or once the store is closed, none does.
func TestProbes(t *testing.T) {
	server := postgrestest.Start(t)
	relay := redistest.NewRelay(t, server.Addr(), 0)
	s := postgres.New(pool(t, relay.Addr(), ""), nil)
	require.NoError(t, s.Migrate(context.Background()))
	l, err := headgate.New(s, []headgate.Policy{{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(1 << 30)), OnFailure: headgate.FailClosed}}, nil)
	require.NoError(t, err)
	callFor := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); {
			_, _ = l.Allow(context.Background(), "k")
		}
	}
	server.Shutdown()
	opened := func() bool { return l.Stats().Circuits[relay.Addr()] == "open" }
	require.Eventually(t, func() bool { callFor(time.Millisecond); return opened() }, 5*time.Second, time.Millisecond)
	dialled := relay.Dialled()
	callFor(600 * time.Millisecond)
	probes := relay.Dialled() - dialled
	t.Log(probes, "probes in 600 ms")
	require.GreaterOrEqual(t, probes, 3)
	require.LessOrEqual(t, probes, 30)

	quiet := func() bool {
		before := relay.Dialled()
		time.Sleep(300 * time.Millisecond)
		return relay.Dialled() == before
	}
	require.Eventually(t, quiet, 5*time.Second, time.Millisecond, "a process without calls probes")
	server.Restart(t)
	require.Eventually(t, func() bool { // on a busy machine the last probe ends late
		time.Sleep(1200 * time.Millisecond)
		d, err := l.Allow(context.Background(), "k")
		return err == nil && d.Source == headgate.FromStore
	}, 15*time.Second, time.Millisecond, "the first call after a quiet time is the trial")

	server.Shutdown()
	require.Eventually(t, func() bool { callFor(time.Millisecond); return opened() }, 5*time.Second, time.Millisecond)
	callFor(100 * time.Millisecond)
	require.NoError(t, s.Close())
	time.Sleep(150 * time.Millisecond)
	require.True(t, quiet(), "a closed store probes")
}

// TestServes: a server that has no connection for the client, or that begins or ends, does not
// serve yet. One that refuses the client for another reason does: the next call shows why.
func TestServes(t *testing.T) {
	ctx, server := context.Background(), postgrestest.Start(t, "max_connections=6")
	admin := pool(t, server.Addr(), "pool_max_conns=1")
	_, err := admin.Exec(ctx, "create role plain login")
	require.NoError(t, err)
	store := func(settings string) *postgres.Store { return postgres.New(pool(t, server.Addr(), settings), nil) }
	require.True(t, store("user=plain").Serves())
	require.True(t, store("user=nobody").Serves(), "a role that is not there")
	several := pool(t, server.Addr(), "user=plain&pool_max_conns=2") // three are reserved, and one is the other pool's
	for range 2 {
		c, err := several.Acquire(ctx)
		require.NoError(t, err)
		defer c.Release()
	}
	require.False(t, store("user=plain").Serves(), "no connection is left")
	require.True(t, store("").Serves(), "one of those that are reserved")
	server.Shutdown()
	require.False(t, store("").Serves())
}
