package standalone_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestDeadSentinel: without a deadline, what inspects the server ends within ten budgets or
// 5 s, whichever is more. By go-redis' defaults a silent Sentinel would take most of a
// minute.
func TestDeadSentinel(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody answers
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{silent.Addr().String()}})
	t.Cleanup(func() { go client.Close() }) // it waits for the dials
	s := standalone.New(client, &standalone.Options{Name: "main"})
	l, err := headgate.New(s, []headgate.Policy{wide}, nil)
	require.NoError(t, err)
	for name, inspect := range map[string]func() error{
		"ping":   func() error { _, err := l.Ping(context.Background()); return err },
		"stored": func() error { _, err := s.Stored(context.Background(), "k"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			late, begin := redistest.Lateness(t, time.Second), time.Now()
			err := inspect()
			took := time.Since(begin)
			require.ErrorIs(t, err, headgate.ErrUnavailable)
			require.ErrorContains(t, err, "no answer in ")
			require.Less(t, took, 5*time.Second+late.Max()+100*time.Millisecond)
			t.Logf("%v: %v", took, err)
		})
	}
}
