package standalone_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// patient is for tests that keep both cores busy: the budget is not their
// subject.
var patient = &standalone.Options{Budget: 20 * time.Second}

// patientAlone is patient, with a round trip for every call.
var patientAlone = &standalone.Options{Budget: 20 * time.Second, DisableBatching: true}

// TestOneLoadForAll: after a flush everybody gets NOSCRIPT at once, and one
// of them loads the script for all.
func TestOneLoadForAll(t *testing.T) {
	const rounds = 50
	server := redistest.Start(t)
	client := server.Client(t, func(o *redis.Options) { o.PoolSize = callers })
	l := limiter(t, client, patient, huge)
	for range rounds {
		require.NoError(t, client.ScriptFlush(context.Background()).Err())
		faulttest.Go(callers, func(int) {
			if d, err := l.Allow(context.Background(), "key"); err != nil || d.Err != nil {
				t.Error(err, d.Err)
			}
		})()
	}
	require.EqualValues(t, rounds, server.CommandStats(t)["script|load"].Calls)
	require.EqualValues(t, rounds*callers, peek(t, l, "key"))
}
