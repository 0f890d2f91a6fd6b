package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestNotOver: of many stores, each with connections of its own as processes have, exactly the
// limit passes, of one key, of a thousand, and of two keys in one decision, in either order.
func TestNotOver(t *testing.T) {
	calls := redistest.Steps(6_000, 1_000_000)
	if redistest.Raced {
		calls = 2_000
	}
	o := postgres.Options{Schema: schema(), Budget: 20 * time.Second}
	stores := make([]*postgres.Store, 32)
	for i := range stores {
		stores[i] = postgres.New(pool(t, postgrestest.Shared(t).Addr(), "pool_max_conns=4"), &o)
	}
	require.NoError(t, stores[0].Migrate(context.Background()))
	for _, keys := range []int{1, 1_000} {
		list := daily(int64(max(calls/keys/2, 1)))
		for _, several := range []bool{false, true} {
			var passed atomic.Int64
			name := func(i int) string { return fmt.Sprintf("%d %v %d", keys, several, i%keys) }
			var all sync.WaitGroup
			for n := range stores {
				for caller := range 4 {
					all.Add(1)
					go func() {
						defer all.Done()
						for i := caller; i < calls/len(stores); i += 4 {
							r := backend.Request{Op: backend.Take, Group: backend.Group{Key: name(i), Policies: list, Cost: 1}}
							if several {
								r.And = []backend.Group{{Key: name(i + 1 + n%3), Policies: list, Cost: 1}}
								if r.And[0].Key == r.Key {
									r.And[0].Key += "and"
								}
							}
							var d backend.Decision
							if err := stores[n].Do(context.Background(), &r, &d); err != nil {
								t.Error(err)
								return
							}
							if d.Allowed {
								passed.Add(int64(1 + len(r.And)))
							}
						}
					}()
				}
			}
			all.Wait()
			sum := int64(0)
			for i := range keys {
				n := used(t, stores[0], name(i), list)
				require.LessOrEqual(t, n, list[0].Algorithm.Max())
				sum += n
			}
			if several && keys == 1 {
				sum += used(t, stores[0], name(0)+"and", list)
			}
			require.Equal(t, sum, passed.Load(), "each call that passed is counted, and no other")
			if !several {
				require.EqualValues(t, int64(min(keys, calls/len(stores)))*list[0].Algorithm.Max(), sum, "nothing is denied below the limit")
			}
		}
	}
}
