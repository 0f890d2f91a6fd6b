package redistest

import (
	"context"
	"os"
	"sync"
	"testing"
)

// ended is a testing.TB whose cleanups run at the end of the process.
type ended struct {
	testing.TB // the test that runs
	cleanups   []func()
}

func (e *ended) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

func (e *ended) TempDir() string {
	dir, err := os.MkdirTemp("", "headgate")
	check(e, err)
	e.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

var sharedCluster struct {
	sync.Mutex
	owner   ended
	cluster *Cluster
}

// SharedCluster returns the one cluster that tests of a package may use one after the
// other, since a start takes seconds. It has no keys, scripts and statistics of an earlier
// test. A test must not stop a node, move a slot or keep a changed configuration. TestMain
// of the package calls CloseShared.
func SharedCluster(t testing.TB) *Cluster {
	t.Helper()
	sharedCluster.Lock()
	defer sharedCluster.Unlock()
	if sharedCluster.owner.TB = t; sharedCluster.cluster == nil {
		sharedCluster.cluster = StartCluster(&sharedCluster.owner)
	}
	c, ctx := sharedCluster.cluster, context.Background()
	for _, n := range c.Nodes()[:primaries] {
		check(t, n.Client(t).FlushAll(ctx).Err())
		check(t, n.Client(t).ScriptFlush(ctx).Err())
	}
	c.Settle(t)
	c.ResetStats(t)
	return c
}

// CloseShared stops the cluster of SharedCluster.
func CloseShared() {
	for _, f := range sharedCluster.owner.cleanups {
		f()
	}
}
