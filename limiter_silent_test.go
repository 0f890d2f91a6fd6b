package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestOwnClientsPrintNothing: a process whose server is dead, or dies, writes
// nothing to its standard error by way of the clients that Open makes.
func TestOwnClientsPrintNothing(t *testing.T) {
	redistest.Plain(t)
	require.Empty(t, again(t, "TestOnADeadServer", "HEADGATE_SILENT=1"))
	require.Empty(t, again(t, "TestOnADyingServer", "HEADGATE_SILENT=1"))
	require.Empty(t, again(t, "TestOnAClosingStore", "HEADGATE_SILENT=1"))
}

func silent(t *testing.T) {
	if os.Getenv("HEADGATE_SILENT") == "" {
		t.Skip("TestOwnClientsPrintNothing runs it")
	}
}

// opened returns a limiter on each kind of store that Open makes.
func opened(t *testing.T, server, node string) (ls []*headgate.Limiter) {
	one, err := standalone.Open("redis://"+server, nil)
	require.NoError(t, err)
	several, err := cluster.Open([]string{node}, nil)
	require.NoError(t, err)
	for _, s := range []backend.Store{one, several} {
		t.Cleanup(func() { _ = s.Close() })
		ls = append(ls, limiter(t, s, &headgate.Options{DenyCacheTTL: -1}, perMinute)) // a cached denial is no decision of the store
	}
	return ls
}

// ownNode starts the only node of a cluster.
func ownNode(t *testing.T) *redistest.Server {
	// A node that is back refuses calls for its node timeout, 5 s at most.
	node := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--cluster-node-timeout", "500")
	require.NoError(t, node.Client(t).ClusterAddSlotsRange(context.Background(), 0, 16383).Err())
	return node
}

// TestOnADeadServer is what TestOwnClientsPrintNothing runs.
func TestOnADeadServer(t *testing.T) {
	silent(t)
	for _, l := range opened(t, "127.0.0.1:1", "127.0.0.1:1") {
		for range 8 {
			d, err := l.Allow(context.Background(), "k")
			require.NoError(t, err)
			require.ErrorIs(t, d.Err, headgate.ErrUnavailable)
		}
	}
	alone := opened(t, "127.0.0.1:1", "127.0.0.1:1")[0]
	d, err := alone.Allow(context.Background(), "k")
	require.NoError(t, err)
	require.ErrorIs(t, d.Err, syscall.ECONNREFUSED)
	require.ErrorContains(t, d.Err, "dial tcp 127.0.0.1:1")
	_, err = alone.Ping(context.Background())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// TestOnADyingServer is what TestOwnClientsPrintNothing runs: a server and the
// node of a cluster die under load, and come back.
func TestOnADyingServer(t *testing.T) {
	silent(t)
	server, node := redistest.Start(t), ownNode(t)
	ls := opened(t, server.Addr(), node.Addr())
	decided := func() bool { return decides(ls[0]) && decides(ls[1]) }
	require.Eventually(t, decided, 10*time.Second, 10*time.Millisecond)
	stop := make(chan struct{})
	wait := faulttest.Go(16, func(i int) {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				_, _ = ls[i%2].Allow(context.Background(), fmt.Sprint(i, n))
			}
		}
	})
	server.Kill()
	node.Kill()
	require.Eventually(t, func() bool { return !decides(ls[0]) && !decides(ls[1]) }, 10*time.Second, time.Millisecond)
	server.Restart(t)
	node.Restart(t)
	require.Eventually(t, decided, time.Minute, 10*time.Millisecond, "with the same clients")
	close(stop)
	wait()
}

func decides(l *headgate.Limiter) bool {
	d, err := l.Allow(context.Background(), "k")
	return err == nil && d.Source == headgate.FromStore
}

// TestOnAClosingStore is what TestOwnClientsPrintNothing runs: stores are closed under load.
func TestOnAClosingStore(t *testing.T) {
	silent(t)
	server, node := redistest.Start(t), ownNode(t)
	for turn := range redistest.Steps(20, 200) {
		unbatched := turn%2 == 0
		one, err := standalone.Open("redis://"+server.Addr(), &standalone.Options{DisableBatching: unbatched})
		require.NoError(t, err)
		several, err := cluster.Open([]string{node.Addr()}, &cluster.Options{DisableBatching: unbatched})
		require.NoError(t, err)
		for _, s := range []backend.Store{one, several} {
			l := limiter(t, s, &headgate.Options{DenyCacheTTL: -1}, perMinute)
			wait := faulttest.Go(32, func(i int) {
				for err := error(nil); !errors.Is(err, headgate.ErrClosed); {
					_, err = l.Allow(context.Background(), fmt.Sprint("k", i))
				}
			})
			time.Sleep(20 * time.Millisecond)
			require.NoError(t, s.Close())
			wait()
		}
	}
}
