package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestReloadsArePaced: while a node is down every call to it asks for a new
// picture of the cluster; the living nodes are asked at most four times a
// second.
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
	witness := c.Primary(8000)
	victim.Kill()
	witness.ResetStats(t)
	begin := time.Now()
	for i := 0; time.Since(begin) < 2*time.Second; i++ {
		_, err := l.Allow(context.Background(), fmt.Sprint(i%100))
		require.NoError(t, err)
	}
	asked := witness.CommandStats(t)["cluster|slots"].Calls
	t.Logf("%d reloads in %v", asked, time.Since(begin))
	require.LessOrEqual(t, asked, int64(time.Since(begin)/(250*time.Millisecond))+1)
	require.Positive(t, asked)
}
