package batch_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const judgedBudget = 2 * time.Second

// judged returns a server whose next round trip meets the fault, a hook that can
// hold it before, and what the guard is told from now on.
func judged(t *testing.T, f redistest.Fault) (*batch.Server, *gate, *verdicts) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client, g := server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), &gate{}
	client.AddHook(g)
	hub, v := &layer.Shared{}, &verdicts{}
	s := batch.Alone(client, hub, judgedBudget)
	require.NoError(t, ask(s))
	hub.SetGuard(v)
	proxy.Set(f.Times(1))
	return s, g, v
}

func ask(s *batch.Server) error {
	return s.Run(context.Background(), []*batch.Asked{group("k", 1, policy(algo.FixedWindow(algo.PerMinute(5))))})
}

// excuses waits until the guard is told that a round trip is not the server's fault.
func (v *verdicts) excuses(t *testing.T) {
	require.True(t, v.excused())
	require.Zero(t, v.count(layer.ErrFailed))
}

// excused waits for a verdict, and reports whether there is an excuse.
func (v *verdicts) excused() bool {
	for end := time.Now().Add(3 * judgedBudget); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if v.count(layer.ErrExcused) > 0 || v.count(layer.ErrFailed) > 0 {
			break
		}
	}
	return v.count(layer.ErrExcused) > 0
}

// TestSentTooLate: a round trip that is sent with less than half of its budget left,
// after it waited for a connection, tells nothing of the server.
func TestSentTooLate(t *testing.T) {
	s, g, v := judged(t, redistest.LoseReply)
	g.shut()
	time.AfterFunc(judgedBudget*6/10, g.open)
	require.Error(t, ask(s))
	v.excuses(t)
}

// TestReadTooLate: the server is well if it answers a moment after a deadline has
// passed. The caller has its answer before.
func TestReadTooLate(t *testing.T) {
	s, _, v := judged(t, redistest.LoseReply)
	require.Error(t, ask(s))
	require.Zero(t, v.count(layer.ErrFailed), "the caller waits for no verdict")
	require.NoError(t, ask(s))
	v.excuses(t)
}

// TestLostConnection: the server is well if it answered another round trip since one
// was sent whose connection was lost.
func TestLostConnection(t *testing.T) {
	s, g, v := judged(t, redistest.SwallowReply(judgedBudget/4))
	lost := make(chan error)
	go func() { lost <- ask(s) }()
	require.Eventually(t, func() bool { return g.holds(2) }, judgedBudget, time.Millisecond)
	time.Sleep(judgedBudget / 20) // until it is sent
	require.NoError(t, ask(s))
	require.Error(t, <-lost)
	v.excuses(t)
}
