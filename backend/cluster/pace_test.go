package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/starved"
	"github.com/stretchr/testify/require"
)

// TestReloadsArePaced: while a node is down every call to it asks for a new
// picture of the cluster, at most four times a second. One node is asked after the other, until
// one has answered.
func TestReloadsArePaced(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	store := open(c.Addrs(), nil)
	defer store.Close()
	l := faulttest.Limiter(t, store, faulttest.Wide)
	for i := range 30 {
		_, err := l.Allow(context.Background(), fmt.Sprint(i))
		require.NoError(t, err)
	}
	victim := c.Primary(0)
	victim.Kill()
	c.ResetStats(t)
	begin := time.Now()
	for i := 0; time.Since(begin) < 2*time.Second; i++ {
		_, err := l.Allow(context.Background(), fmt.Sprint(i%100))
		require.NoError(t, err)
	}
	asked := int64(0)
	for _, n := range c.Nodes() {
		if n != victim {
			asked += n.CommandStats(t)["cluster|slots"].Calls
		}
	}
	reloads := int64(time.Since(begin)/(250*time.Millisecond)) + 1
	t.Logf("%d questions, and %d reloads may be", asked, reloads)
	require.LessOrEqual(t, asked, 2*reloads, "of five living nodes one or two are asked")
	require.Positive(t, asked)
}

// TestReloadsOnAStarvedHost: calls that fail on a host without a free processor ask for the slots
// once a second, not four times.
func TestReloadsOnAStarvedHost(t *testing.T) {
	server := redistest.Start(t) // it names no slots
	store := open([]string{server.Addr()}, nil)
	defer store.Close()
	l := faulttest.Limiter(t, store, faulttest.Wide)
	t.Cleanup(starved.Pretend(true))
	for begin := time.Now(); time.Since(begin) < 950*time.Millisecond; time.Sleep(5 * time.Millisecond) {
		_, err := l.Allow(context.Background(), "key")
		require.NoError(t, err)
	}
	require.LessOrEqual(t, server.CommandStats(t)["cluster|slots"].Calls, int64(2))
}
