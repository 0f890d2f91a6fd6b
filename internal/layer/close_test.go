//go:build go1.25

package layer_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestClose: the functions run at once. A Close beside another, as by one of them, does nothing.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s layer.Shared
		begin := time.Now()
		for key := range 3 {
			s.OnClose(key, func() {
				require.True(t, s.Closing.Load())
				require.False(t, s.Closed.Load())
				require.True(t, s.Close())
				time.Sleep(time.Second)
			})
		}
		s.OnClose(2, nil)
		require.False(t, s.Close())
		require.Equal(t, time.Second, time.Since(begin))
		<-s.Done()
		require.True(t, s.Close())
	})
}

// TestOnCloseAfterClose: what comes after Close is not called, and not kept.
func TestOnCloseAfterClose(t *testing.T) {
	var s layer.Shared
	s.Close()
	kept := func() weak.Pointer[[1 << 10]byte] {
		limiter := new([1 << 10]byte)
		s.OnClose("key", func() { t.Error(limiter[0]) })
		return weak.Make(limiter)
	}()
	runtime.GC()
	require.Nil(t, kept.Value())
	require.True(t, s.Close())
}
