package batch_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const linkBudget = time.Second

// line is a server over a link.
type line struct {
	*batch.Server
	redis   *redistest.Server
	client  *redis.Client
	relay   *redistest.Relay
	verdict *verdicts // what the guard is told
}

func linked(t *testing.T, budget, trip time.Duration) line {
	server := redistest.Start(t)
	relay := redistest.NewRelay(t, server.Addr(), trip)
	client := server.Client(t, func(o *redis.Options) { o.Addr = relay.Addr() })
	hub, v := &layer.Shared{}, &verdicts{}
	hub.SetGuard(v)
	return line{batch.Alone(client, hub, budget), server, client, relay, v}
}

// idle makes n idle connections.
func (l line) idle(t *testing.T, n int) {
	var held []*redis.Conn
	for range n {
		c := l.client.Conn()
		require.NoError(t, c.Ping(context.Background()).Err())
		held = append(held, c)
	}
	for _, c := range held {
		require.NoError(t, c.Close())
	}
}

// TestLateReplyIsRead: a reply that is late for its callers is read. So its connection
// is used again, and the server is well.
func TestLateReplyIsRead(t *testing.T) {
	t.Parallel()
	l := linked(t, linkBudget, 0)
	require.NoError(t, ask(l.Server))
	excused := l.verdict.count(layer.ErrExcused)
	l.relay.SetRoundTrip(linkBudget * 11 / 10)
	require.ErrorIs(t, ask(l.Server), backend.ErrPerhapsCounted)
	l.relay.SetRoundTrip(0) // for what is sent from now on
	require.Eventually(t, func() bool { return l.verdict.count(layer.ErrExcused) > excused }, 10*linkBudget, time.Millisecond)
	require.Zero(t, l.verdict.count(layer.ErrFailed))
	require.NoError(t, ask(l.Server))
	require.LessOrEqual(t, l.relay.Dialled(), 2, "one and a look")
}

// TestBeginningConnection: a connection takes longer to begin than a budget. Its round
// trips wait for it, make no other one but a look, and are no failures of the server.
func TestBeginningConnection(t *testing.T) {
	t.Parallel()
	const budget = 200 * time.Millisecond
	l := linked(t, budget, 2*budget)
	for range 2 {
		require.Error(t, ask(l.Server)) // on a busy machine it is sent, and has no reply in time
	}
	require.LessOrEqual(t, l.relay.Dialled(), 2)
	require.Eventually(t, func() bool { return l.verdict.count(layer.ErrExcused) == 2 }, 10*linkBudget, time.Millisecond)
	require.Zero(t, l.verdict.count(layer.ErrFailed))
}

// TestBegunTooLate: what is left after a connection began is less than half of the
// budget, and nobody knows how long the link is: nothing is sent.
func TestBegunTooLate(t *testing.T) {
	t.Parallel()
	l := linked(t, linkBudget, linkBudget*3/4)
	require.ErrorIs(t, ask(l.Server), backend.ErrUnavailable)
	require.Equal(t, 1, l.relay.Dialled())
}

// TestEndedConnections: connections that end together are one failure of the server.
func TestEndedConnections(t *testing.T) {
	t.Parallel()
	l := linked(t, linkBudget, 0)
	require.NoError(t, ask(l.Server))
	l.idle(t, 4)
	l.relay.SetRoundTrip(linkBudget / 2)
	done := make(chan error)
	for range 4 {
		go func() { done <- ask(l.Server) }()
	}
	time.Sleep(linkBudget / 10) // until they are sent
	require.NoError(t, l.redis.Client(t).ClientKillByFilter(context.Background(), "TYPE", "normal", "SKIPME", "yes").Err())
	for range 4 {
		require.ErrorIs(t, <-done, backend.ErrPerhapsCounted)
	}
	require.Eventually(t, func() bool { return l.verdict.count(layer.ErrExcused) >= 4 }, 10*linkBudget, time.Millisecond)
	require.Equal(t, 1, l.verdict.count(layer.ErrFailed))
}

// TestForgottenConnections: all connections of a user's client were silent for more than
// a second, and something on the way has forgotten them.
func TestForgottenConnections(t *testing.T) {
	t.Parallel()
	l := linked(t, linkBudget, 0)
	require.NoError(t, ask(l.Server))
	l.idle(t, 5)
	l.relay.ForgetSilent(time.Second)
	time.Sleep(1100 * time.Millisecond)
	require.NoError(t, ask(l.Server))
}

// TestTimeOver: where the budget is over, the error says so and does not blame the link.
func TestTimeOver(t *testing.T) {
	l := linked(t, linkBudget, 0)
	require.EqualError(t, l.TooFar(-time.Millisecond), "the call could not be answered in time")
	require.NoError(t, l.TooFar(time.Millisecond))
}

// TestPoolOfOthers: the application has all connections of its client for a moment. No
// connection begins then, so a call that has met the full pool tries it again.
func TestPoolOfOthers(t *testing.T) {
	client := redistest.Start(t).Client(t, func(o *redis.Options) { o.PoolSize, o.PoolTimeout = 1, 5*time.Millisecond })
	s := batch.Alone(client, &layer.Shared{}, linkBudget)
	require.NoError(t, ask(s))
	for range 2 {
		held := client.Conn()
		require.NoError(t, held.Ping(context.Background()).Err())
		done := make(chan error)
		go func() { done <- ask(s) }()
		time.Sleep(linkBudget / 5)
		require.NoError(t, held.Close())
		require.NoError(t, <-done)
	}
}

// TestForgottenWhileFar: the link was longer than the budget when a call last came. Now it is
// short, and something on the way has forgotten all connections of a user's client.
func TestForgottenWhileFar(t *testing.T) {
	t.Parallel()
	const budget = linkBudget / 2
	l := linked(t, budget, budget*6/5)
	for range 3 {
		require.Error(t, ask(l.Server))
		time.Sleep(budget) // its answer comes
	}
	require.Error(t, l.TooFar(budget))
	time.Sleep(2 * budget) // the PING has ended
	l.relay.SetRoundTrip(0)
	l.idle(t, 5)
	l.relay.ForgetSilent(time.Second)
	time.Sleep(1100 * time.Millisecond)
	require.NoError(t, ask(l.Server))
}
