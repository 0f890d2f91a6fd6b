package headgate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestFirstFloors: each of 100 tenants has a share that no other can take, and all share the rest
// of the limit, by the limiters of Example_guaranteedShares. Each gets its share or what it asks
// for, in every window, whatever the others do. The sum is never above the limit, and a lone tenant
// gets its share and all of the rest.
func TestFirstFloors(t *testing.T) {
	redistest.Plain(t)
	const tenants, total = 100, 3_000
	begin, r := time.Unix(1_745_000_040, 0), rand.New(rand.NewPCG(1, 5))
	var names [tenants]string
	var floors [tenants]int64
	of, sum := map[string]int64{}, int64(0)
	for i := range floors {
		names[i], floors[i] = fmt.Sprint("tenant ", i), 1+r.Int64N(30)
		of[names[i]] = floors[i]
		sum += floors[i]
	}
	now := begin
	shares, err := newShares(memory.New(&memory.Options{Now: func() time.Time { return now }}), total, of)
	require.NoError(t, err)
	call := func(i int) bool {
		d, err := shares.allow(t.Context(), names[i])
		require.NoError(t, err)
		return d.Allowed
	}
	least, most, fromPool := 1.0, int64(0), int64(0)
	for range 50 {
		begin = begin.Add(time.Minute)
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
		for k, i := range asks {
			now = begin.Add(time.Duration(k) * time.Minute / time.Duration(len(asks)))
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
	now = begin.Add(time.Minute)
	lone := int64(0)
	for range 2 * total {
		if call(7) {
			lone++
		}
	}
	t.Logf("%d tenants of %d units: at least %.3f of the lesser of floor and demand, at most %d of %d in a minute, %d from the pool of %d; a lone tenant %d",
		tenants, sum, least, most, total, fromPool, total-sum, lone)
	require.GreaterOrEqual(t, least, 0.99)
	require.Equal(t, floors[7]+total-sum, lone)
}
