package headgate_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/headgate-go/headgate/internal/testclock"
	"github.com/stretchr/testify/require"
)

// TestDenialStands: after the server has died, a key that is known to be spent is denied
// without an error, whatever the failure mode and the verb. Other keys get the mode.
func TestDenialStands(t *testing.T) {
	for _, mode := range []headgate.FailureMode{headgate.FailOpen, headgate.FailClosed, headgate.FailLocal} {
		for _, shards := range []int{0, 4} {
			t.Run(fmt.Sprint(mode, " ", shards), func(t *testing.T) {
				t.Parallel()
				server, ctx := redistest.Start(t), context.Background()
				var ahead atomic.Int64
				now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
				store := standalone.New(testclock.Client{Processor: server.Client(t), Now: now}, nil)
				p := headgate.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.Per(8, algo.MaxPeriod)), OnFailure: mode, Shards: shards}
				l := limiter(t, store, &headgate.Options{Instances: 2}, p)
				require.Eventually(t, func() bool {
					d, err := l.Allow(ctx, "spent")
					require.NoError(t, err)
					return d.Source == headgate.FromDenyCache
				}, 10*time.Second, time.Millisecond)
				server.Kill()
				ahead.Store(int64(30 * time.Second))
				for verb, ask := range map[string]func(key string) (headgate.Decision, error){
					"Allow":  func(key string) (headgate.Decision, error) { return l.Allow(ctx, key) },
					"AtMost": func(key string) (headgate.Decision, error) { return l.AllowAtMost(ctx, key, 3) },
					"Peek":   func(key string) (headgate.Decision, error) { return l.Peek(ctx, headgate.Call{Key: key}) },
					"All":    func(key string) (headgate.Decision, error) { return headgate.All(ctx, l.Call(key), l.Call("other")) },
					"Reserve": func(key string) (headgate.Decision, error) {
						_, d, err := l.Reserve(ctx, headgate.Call{Key: key})
						return d, err
					},
				} {
					before := l.Stats().DenyCache
					d, err := ask("spent")
					require.NoError(t, err, verb)
					require.Equal(t, before+1, l.Stats().DenyCache, verb)
					require.NoError(t, d.Err, verb)
					require.False(t, d.Allowed, verb)
					require.Equal(t, headgate.FromDenyCache, d.Source, verb)
					require.Positive(t, d.RetryAfter, verb)
					d, err = ask("fresh for " + verb)
					require.NoError(t, err, verb)
					require.Error(t, d.Err, verb)
					require.Equal(t, mode != headgate.FailClosed, d.Allowed, verb)
				}
				ahead.Add(int64(31 * time.Second))
				d, err := l.Allow(ctx, "spent")
				require.NoError(t, err)
				require.Error(t, d.Err, "it was denied more than a minute ago")
			})
		}
	}
}

// TestResetEndsWhatStands: after a Reset in this process the failure mode decides, though
// the Reset has failed.
func TestResetEndsWhatStands(t *testing.T) {
	server, ctx := redistest.Start(t), context.Background()
	l := limiter(t, standalone.New(server.Client(t), nil), nil, headgate.Policy{
		Name: "p", Algorithm: algo.FixedWindow(algo.Per(1, algo.MaxPeriod)), OnFailure: headgate.FailOpen})
	for range 2 {
		_, err := l.Allow(ctx, "k")
		require.NoError(t, err)
	}
	server.Kill()
	d, err := l.Allow(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, headgate.FromDenyCache, d.Source)
	require.Error(t, l.Reset(ctx, "k"))
	d, err = l.Allow(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, headgate.FromFailOpen, d.Source)
}
