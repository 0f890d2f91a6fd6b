package postgres_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/stretchr/testify/require"
)

// TestSeveralKeysHaveTheirTurn: a call of several keys is decided soon, although other calls keep
// each of its keys busy all the time.
func TestSeveralKeysHaveTheirTurn(t *testing.T) {
	s := open(t, postgres.Options{})
	keys := []string{"a", "b", "c"}
	var done atomic.Bool
	var all sync.WaitGroup
	var singles atomic.Int64
	for i := range 24 {
		all.Add(1)
		go func() {
			defer all.Done()
			for !done.Load() {
				if _, err := ask(s, backend.Take, keys[i%3], daily(1<<30)); err != nil {
					t.Error(err)
					return
				}
				singles.Add(1)
			}
		}()
	}
	r := backend.Request{Op: backend.Take, Group: backend.Group{Key: "a", Policies: daily(1 << 30), Cost: 1}}
	for _, key := range keys[1:] {
		r.And = append(r.And, backend.Group{Key: key, Policies: daily(1 << 30), Cost: 1})
	}
	var most int64
	var slowest time.Duration
	for range 50 {
		began, before := time.Now(), singles.Load()
		own := r
		require.NoError(t, s.Do(context.Background(), &own, new(backend.Decision)))
		most, slowest = max(most, singles.Load()-before), max(slowest, time.Since(began))
	}
	done.Store(true)
	all.Wait()
	t.Logf("at most %d other calls meanwhile, and %v", most, slowest)
	require.Less(t, most, int64(1000))
}
