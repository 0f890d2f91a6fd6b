//go:build go1.25

package headgate_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestFirstWithinBudget: a First ends within the store's budget. The call waits for what a part
// gives back until then, and not at all if no part follows.
func TestFirstWithinBudget(t *testing.T) {
	const budget = 100 * time.Millisecond
	for _, several := range []bool{false, true} {
		t.Run(fmt.Sprint("several keys ", several), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, begin := oneKey(memory.New(nil)), time.Now()
				s.shared = &layer.Shared{Budget: budget}
				s.do = func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
					trip := 20 * time.Millisecond
					if r.Op == backend.Settle {
						trip *= 4
					}
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(trip):
					}
					if err := next.Do(ctx, r, d); several || r.Op != backend.Reserve {
						return err
					}
					*d = backend.Decision{}
					return backend.ErrPerhapsCounted
				}
				m, ctx := newModels(t, s, nil, headgate.FailClosed), context.Background()
				parts := []headgate.Part{m.user.Part("u"), m.cheap.Part("u")}
				if several {
					parts[0].And = []headgate.Part{m.fast.Part("u", 2), m.fast.Part("v", 2)}
					_, err := m.fast.AllowN(ctx, "u", 2)
					require.NoError(t, err)
					begin = time.Now()
				}
				_, d, err := headgate.ReserveFirst(ctx, parts...)
				require.NoError(t, err)
				require.False(t, d.Allowed)
				if took := time.Since(begin); several {
					require.Equal(t, budget, took)
				} else {
					require.Equal(t, 20*time.Millisecond, took)
				}
				m.quiet(t)
				m.counts(t, map[bool]int64{true: 2}[several], 0, 0)
				requireCount(t, m.fast, "v", 0)
			})
		})
	}
}
