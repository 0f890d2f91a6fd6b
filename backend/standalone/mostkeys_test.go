package standalone_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestMostKeys: one request has at most backend.MaxKeys keys, and backend.MaxCounts policies of
// all of them. It logs how long the server takes for it.
func TestMostKeys(t *testing.T) {
	server := redistest.Start(t)
	s := standalone.New(server.Client(t), &standalone.Options{Budget: 10 * time.Second})
	for _, policies := range []int{1, 4, backend.MaxPolicies} {
		keys := min(backend.MaxKeys, backend.MaxCounts/policies)
		var list []backend.Policy
		for i := range policies {
			list = append(list, backend.Policy{Name: fmt.Sprint("p", i), Algorithm: algo.SlidingWindow(algo.PerDay(9)), OnFailure: backend.FailClosed})
		}
		request := func(n int) backend.Request {
			r := backend.Request{Op: backend.Take, Group: backend.Group{Key: fmt.Sprint(policies, " ", 0), Policies: list, Cost: 1}}
			for i := 1; i < n; i++ {
				r.And = append(r.And, backend.Group{Key: fmt.Sprint(policies, " ", i), Policies: list, Cost: 1})
			}
			return r
		}
		for i := range 10 {
			if i == 1 {
				server.ResetStats(t) // the first one loads the script
			}
			r, d := request(keys), backend.Decision{}
			require.NoError(t, s.Do(context.Background(), &r, &d))
			require.Equal(t, i < 9, d.Allowed, "%d policies", policies)
		}
		stats := server.CommandStats(t)["evalsha"]
		t.Logf("%d keys of %d policies: %.0f µs per request", keys, policies, stats.PerCall)
		r := request(keys + 1)
		err := s.Do(context.Background(), &r, new(backend.Decision))
		if keys == backend.MaxKeys {
			require.ErrorIs(t, err, backend.ErrUnsupported)
			continue
		}
		var invalid *backend.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, backend.MaxCounts+policies, invalid.Value)
	}
}
