//go:build go1.25

package layer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestClose: the subscribers are notified at once. A Close beside another, as by one of them,
// does nothing.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s layer.Shared
		begin := time.Now()
		for range 3 {
			s.Subscribe(func(n layer.Notice) {
				require.Equal(t, layer.Closing, n.Change)
				require.True(t, s.Closing.Load())
				require.False(t, s.Closed.Load())
				require.True(t, s.Close())
				time.Sleep(time.Second)
			})
		}
		require.False(t, s.Close())
		require.Equal(t, time.Second, time.Since(begin))
		<-s.Done()
		require.True(t, s.Close())
	})
}
