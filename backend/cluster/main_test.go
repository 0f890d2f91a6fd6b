package cluster_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// binary is a testing.TB whose cleanups run at the end of the process.
type binary struct {
	testing.TB // the test that runs
	cleanups   []func()
}

func (b *binary) Cleanup(f func()) { b.cleanups = append(b.cleanups, f) }

func (b *binary) TempDir() string {
	dir, err := os.MkdirTemp("", "headgate")
	require.NoError(b, err)
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

var shared struct {
	sync.Mutex
	owner   binary
	cluster *redistest.Cluster
}

// TestMain stops the shared cluster after the last test.
func TestMain(m *testing.M) {
	code := m.Run()
	for _, f := range shared.owner.cleanups {
		f()
	}
	os.Exit(code)
}

// sharedCluster returns the one cluster that tests of this package may use one
// after the other, without keys, scripts and statistics of an earlier test: a
// start takes seconds. A test must not stop a node, move a slot or keep a changed
// configuration.
func sharedCluster(t testing.TB) *redistest.Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.owner.TB = t; shared.cluster == nil {
		shared.cluster = redistest.StartCluster(&shared.owner)
	}
	c, ctx := shared.cluster, context.Background()
	for _, n := range c.Nodes()[:3] { // the primaries
		require.NoError(t, n.Client(t).FlushAll(ctx).Err())
		require.NoError(t, n.Client(t).ScriptFlush(ctx).Err())
	}
	c.Settle(t)
	c.ResetStats(t)
	return c
}
