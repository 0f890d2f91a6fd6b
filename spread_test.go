package headgate_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestFloodOnASpreadKey: spent, it costs its servers a sum a second and
// process, with the deny cache and without.
func TestFloodOnASpreadKey(t *testing.T) {
	const k = 16
	p := headgate.Policy{Name: "tenant", Algorithm: algo.FixedWindow(algo.Per(160, algo.MaxPeriod)), OnFailure: headgate.FailClosed, Shards: k}
	for name, o := range map[string]*headgate.Options{"cache": nil, "no cache": {DenyCacheTTL: -1}} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			l := limiter(t, unhurried(t, server), o, p)
			for range 160 {
				d, err := l.Allow(context.Background(), "k")
				require.NoError(t, err)
				require.True(t, d.Allowed)
			}
			server.ResetStats(t)
			asked, passed := flood(t, l, "k", 64, time.Second, 0)
			sent := server.CommandStats(t)["evalsha"].Calls
			t.Logf("%d calls in 1 s, %d commands, %+v", asked, sent, l.Stats())
			require.Zero(t, passed)
			require.Greater(t, asked, 1000)
			require.LessOrEqual(t, sent, int64(3*(k+2)+64), "two sums, and what was under way")
			require.NoError(t, l.Reset(context.Background(), "k"))
			d, err := l.Allow(context.Background(), "k")
			require.NoError(t, err)
			require.True(t, d.Allowed, "a reset in this process shows at once")
		})
	}
}
