package headgate_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestIdleLimiters: limiters that rest after a call have no goroutine, and share what their
// store keeps.
func TestIdleLimiters(t *testing.T) {
	store, err := standalone.Open("redis://"+redistest.Start(t).Addr(), &standalone.Options{Budget: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	limiter := func(i int) *headgate.Limiter {
		l, err := headgate.New(store, []headgate.Policy{{
			Name: fmt.Sprint("p", i), Algorithm: algo.TokenBucket(algo.PerMinute(100), 100), OnFailure: headgate.FailOpen,
		}}, nil)
		require.NoError(t, err)
		d, err := l.Allow(context.Background(), "user:42")
		require.NoError(t, err)
		require.Equal(t, headgate.FromStore, d.Source)
		return l
	}
	many := redistest.Steps(1_000, 10_000)
	all := make([]*headgate.Limiter, many)
	_ = limiter(-1) // the store has its connections
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	goroutines, before := runtime.NumGoroutine(), heap()
	for i := range all {
		all[i] = limiter(i)
	}
	each := (heap() - before) / many
	t.Logf("%d bytes per limiter, %d goroutines before, %d after", each, goroutines, runtime.NumGoroutine())
	require.Less(t, each, 12<<10, "the tables of what may be lent are made when it is")
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+4 }, 10*time.Second, time.Millisecond)
	runtime.KeepAlive(all)
}
