package breaker_test

import (
	"log/slog"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// logger leaves out what differs per run.
func logger(l *faulttest.Log) *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "node" {
			return slog.Attr{}
		}
		return a
	}}))
}

// TestLogOfGarbage: a stored value that is not Headgate's opens no circuit, and is logged once
// per second at most.
func TestLogOfGarbage(t *testing.T) {
	server, logged := redistest.Start(t), &faulttest.Log{}
	s, err := standalone.Open("redis://"+server.Addr(), &standalone.Options{Budget: 2 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	l, err := headgate.New(s, []headgate.Policy{policy}, &headgate.Options{Logger: logger(logged)})
	require.NoError(t, err)
	c := server.Client(t)
	require.NoError(t, c.Set(t.Context(), "headgate:{k}", "another program's", 0).Err())
	begin := time.Now()
	for range 50 {
		d, err := l.Allow(t.Context(), "k")
		require.NoError(t, err)
		require.ErrorAs(t, d.Err, new(*headgate.CorruptError))
	}
	got := logged.Lines()
	require.NotEmpty(t, got)
	require.LessOrEqual(t, len(got), 2+int(time.Since(begin)/time.Second))
	require.Regexp(t, `^level=WARN msg="headgate: calls are decided by their failure modes" err="headgate: stored value of key .*k.* is not Headgate's`, got[0])
}

// TestLogOfACircuit: what opens a circuit is a warning with its cause, in the event too.
// The steps back are none, and have no cause.
func TestLogOfACircuit(t *testing.T) {
	server, logged := redistest.Start(t), &faulttest.Log{}
	s, err := standalone.Open("redis://"+server.Addr(), &standalone.Options{Budget: 2 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	events := make(chan headgate.Event, 1000)
	l, err := headgate.New(s, []headgate.Policy{policy}, &headgate.Options{Logger: logger(logged), Observer: func(e headgate.Event) {
		if e.Type == headgate.EventCircuit {
			events <- e
		}
	}})
	require.NoError(t, err)
	call := func(state string) {
		require.Eventually(t, func() bool {
			_, _ = l.Allow(t.Context(), "k")
			return l.Stats().Circuits[server.Addr()] == state
		}, 20*time.Second, time.Millisecond)
	}
	server.Kill()
	call("open")
	require.ErrorIs(t, (<-events).Err, syscall.ECONNREFUSED)
	server.Restart(t)
	call("closed")
	for e := range events {
		require.Equal(t, e.Circuit.To == "open", e.Err != nil, "%+v", e.Circuit)
		if e.Circuit.To == "closed" {
			break
		}
	}
	require.Eventually(t, func() bool { return strings.Contains(strings.Join(logged.Lines(), ""), "to=closed") }, 10*time.Second, time.Millisecond)
	got := logged.Lines()
	require.Regexp(t, `^level=WARN msg="headgate: circuit" from=closed to=open err="headgate: node failed: dial tcp .*refused"$`, got[0])
	require.Equal(t, `level=INFO msg="headgate: circuit" from=open to=half_open`, got[1])
	require.Equal(t, `level=INFO msg="headgate: circuit" from=half_open to=closed`, got[len(got)-1])
	runtime.KeepAlive(l)
}
