package standalone_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestFailuresStartLittle: of a server that stops now and then, or for longer, a process tries
// its connections and begins others about once a second, not at each failure. The costs of
// many processes that fail at once add up.
func TestFailuresStartLittle(t *testing.T) {
	server := redistest.Start(t)
	s, err := standalone.Open("redis://"+server.Addr(), nil)
	require.NoError(t, err)
	defer s.Close()
	l, began := faulttest.Limiter(t, s, faulttest.Huge), time.Now()
	ctx, end := context.WithCancel(context.Background())
	wait := faulttest.Go(4, func(int) {
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			_, _ = l.Allow(context.Background(), "key")
		}
	})
	defer func() { end(); wait() }()
	stop := func(times int, stopped, between time.Duration) (connections, pings int64) {
		time.Sleep(between)
		server.ResetStats(t)
		begin := time.Now()
		for range times {
			server.Stop()
			time.Sleep(stopped)
			server.Cont()
			time.Sleep(between)
		}
		stats := server.CommandStats(t)
		t.Logf("stopped %d times for %v: %d connections and %d PINGs in %v, %v after the first call", times, stopped,
			stats["hello"].Calls, stats["ping"].Calls, time.Since(begin), time.Since(began))
		return stats["hello"].Calls, stats["ping"].Calls
	}
	connections, pings := stop(8, 140*time.Millisecond, 160*time.Millisecond)
	require.LessOrEqual(t, connections, int64(21))
	require.LessOrEqual(t, pings, int64(40))
	connections, _ = stop(1, 1500*time.Millisecond, 300*time.Millisecond)
	require.LessOrEqual(t, connections, int64(28))
}
