package from

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/stretchr/testify/require"
)

// TestMiniredis: a fake that lacks Lua's struct is no outage. Calls are certainly not counted,
// and Ping names what it lacks.
func TestMiniredis(t *testing.T) {
	fake := miniredis.RunT(t)
	store, err := standalone.Open("redis://"+fake.Addr(), &standalone.Options{Budget: 10 * time.Second})
	require.NoError(t, err)
	defer store.Close()
	limiter, err := headgate.New(store, []headgate.Policy{{
		Name: "api", Algorithm: algo.TokenBucket(algo.PerMinute(10), 10), OnFailure: headgate.FailOpen,
	}}, nil)
	require.NoError(t, err)
	for range 20 {
		d, err := limiter.Allow(t.Context(), "k")
		require.NoError(t, err)
		require.ErrorAs(t, d.Err, new(*backend.ScriptError))
		require.NotErrorIs(t, d.Err, headgate.ErrPerhapsCounted)
	}
	require.Equal(t, map[string]string{fake.Addr(): "closed"}, limiter.Stats().Circuits)
	_, err = limiter.Ping(t.Context())
	require.ErrorIs(t, err, backend.ErrServerTooOld)
	require.ErrorContains(t, err, "'struct'")
}
