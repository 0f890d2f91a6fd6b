package headgate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestFirstFloors: each of 100 tenants has a share that no other can take, and all share the rest
// of the limit. Each gets its share or what it asks for, in every second, whatever the others do.
// The sum is never above the limit, and a lone tenant gets its share and all of the rest.
func TestFirstFloors(t *testing.T) {
	const tenants, total = 100, 3_000
	now, r, ctx := time.Unix(1_745_000_000, 0), rand.New(rand.NewPCG(1, 5)), context.Background()
	s := memory.New(&memory.Options{Now: func() time.Time { return now }})
	pool := limiter(t, s, nil, perSecond("pool", 1))
	var floors [tenants]int64
	var of [tenants]*headgate.Limiter
	sum := int64(0)
	for i := range of {
		floors[i] = 1 + r.Int64N(30)
		sum += floors[i]
		var err error
		of[i], err = pool.With(perSecond("floor", floors[i]))
		require.NoError(t, err)
	}
	pool, err := pool.With(perSecond("pool", total-sum))
	require.NoError(t, err)
	call := func(i int) bool {
		key := fmt.Sprint("tenant ", i)
		d, err := headgate.First(ctx, of[i].Part(key), pool.Part("all"))
		require.NoError(t, err)
		return d.Allowed
	}
	least, most, fromPool := 1.0, int64(0), int64(0)
	for range 200 {
		now = now.Add(time.Second)
		var asks []int
		var demand, got [tenants]int64
		for i := range demand {
			if demand[i] = r.Int64N(3); r.IntN(2) == 0 {
				demand[i] = r.Int64N(8 * floors[i])
			}
			for range demand[i] {
				asks = append(asks, i)
			}
		}
		r.Shuffle(len(asks), func(a, b int) { asks[a], asks[b] = asks[b], asks[a] })
		all := int64(0)
		for _, i := range asks {
			if call(i) {
				got[i]++
				all++
			}
		}
		for i := range got {
			if want := min(floors[i], demand[i]); want > 0 {
				least = min(least, float64(got[i])/float64(want))
			}
			fromPool += max(0, got[i]-floors[i])
		}
		most = max(most, all)
		require.LessOrEqual(t, all, int64(total))
	}
	now = now.Add(time.Second)
	lone := int64(0)
	for range 2 * total {
		if call(7) {
			lone++
		}
	}
	t.Logf("%d tenants of %d units: at least %.3f of the lesser of floor and demand, at most %d of %d in a second, %d from the pool of %d; a lone tenant %d",
		tenants, sum, least, most, total, fromPool, total-sum, lone)
	require.GreaterOrEqual(t, least, 0.99)
	require.Equal(t, floors[7]+total-sum, lone)
}

func perSecond(name string, limit int64) headgate.Policy {
	return headgate.Policy{Name: name, Algorithm: algo.FixedWindow(algo.PerSecond(limit)), OnFailure: headgate.FailClosed}
}
