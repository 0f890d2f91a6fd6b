package breaker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestCancelledCallersAreExcused: contexts that end, before or while the
// server is asked, say nothing of the server.
func TestCancelledCallersAreExcused(t *testing.T) {
	r := build(t, &standalone.Options{Budget: 10 * time.Second})
	many(10_000, 64, func(i int) {
		ctx, cancel := context.WithCancel(context.Background())
		if i%2 == 0 {
			cancel()
		} else {
			go cancel()
		}
		_, _ = r.Allow(ctx, fmt.Sprint(i))
		cancel()
	})
	require.Equal(t, "closed", r.state())
	require.Empty(t, r.seen.list())
}

// stops holds each command before the client writes it.
type stops struct{ come, goOn chan struct{} }

func (s stops) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s stops) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s stops) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.come <- struct{}{}
		<-s.goOn
		return next(ctx, cmd)
	}
}

// TestWithdrawnCallsAreExcused: a batch whose callers have all left before it was
// written fails, and does not count for the node.
func TestWithdrawnCallsAreExcused(t *testing.T) {
	r := build(t, &standalone.Options{Budget: 10 * time.Second})
	s := stops{make(chan struct{}), make(chan struct{})}
	r.client.AddHook(s)
	var err error
	r.Limiter, err = headgate.New(standalone.New(r.client, &standalone.Options{Budget: 10 * time.Second}),
		[]headgate.Policy{policy}, &headgate.Options{Observer: r.seen.observe}) // a store that has the hook from its first call on
	require.NoError(t, err)
	for range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		go func() { <-s.come; cancel() }()
		_, err := r.Allow(ctx, "k")
		require.ErrorIs(t, err, context.Canceled)
		s.goOn <- struct{}{}
	}
	go func() { <-s.come; s.goOn <- struct{}{} }()
	d, err := r.Allow(context.Background(), "k")
	require.NoError(t, err)
	require.Equal(t, headgate.FromStore, d.Source)
	require.Empty(t, r.seen.list())
}

// TestImpatientCallersOnASlowNode: ten thousand callers with 5 ms to spare on
// a node that answers in 20: their batches end well without them.
func TestImpatientCallersOnASlowNode(t *testing.T) {
	r := build(t, &standalone.Options{Budget: 5 * time.Second}, func(o *redis.Options) { o.PoolSize = 256 })
	r.proxy.Set(redistest.Delay(20 * time.Millisecond))
	many(10_000, 256, func(i int) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		_, _ = r.Allow(ctx, fmt.Sprint(i))
	})
	require.Equal(t, "closed", r.state())
	require.Empty(t, r.seen.list())
}

// TestImpatientCallersOnAStoppedNode: the same callers can't hide that the
// node is stopped.
func TestImpatientCallersOnAStoppedNode(t *testing.T) {
	r := build(t, nil, func(o *redis.Options) { o.ReadTimeout = time.Minute }) // the client itself notices nothing
	r.server.Stop()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		_, _ = r.Allow(ctx, "k")
		return r.state() == "open"
	}, 30*time.Second, time.Millisecond)
	r.server.Cont()
	recovers(t, r)
}
