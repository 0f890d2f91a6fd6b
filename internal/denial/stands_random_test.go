package denial

import (
	"context"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestStandsAsTheStore compares denials that stand with what the store would say, after
// random calls by three lists of one key. The store denies the call too, for no less time.
// No one else changes the key.
func TestStandsAsTheStore(t *testing.T) {
	redistest.Plain(t)
	seeds := int64(500)
	if redistest.Long() {
		seeds = 20_000
	}
	stood := 0
	for seed := range seeds {
		stood += standsAsTheStore(t, seed)
	}
	require.Greater(t, stood, 1000)
}

func standsAsTheStore(t *testing.T, seed int64) (stood int) {
	rnd, now := rand.New(rand.NewSource(seed)), time.Unix(1_745_000_000, 0)
	clock := func() time.Time { return now }
	store := memory.New(&memory.Options{Now: clock})
	s := New(store, &layer.Shared{Clock: clock}, Longest)
	all := []backend.Policy{
		{Name: "bucket", Algorithm: algo.TokenBucket(algo.PerMinute(60), 8)},
		{Name: "fast", Algorithm: algo.TokenBucket(algo.PerMinute(120), 5)},
		{Name: "window", Algorithm: algo.FixedWindow(algo.Per(12, 17*time.Second))},
		{Name: "day", Algorithm: algo.Calendar(15, algo.Day(), time.UTC)},
		{Name: "log", Algorithm: algo.SlidingLog(algo.Per(10, 13*time.Second))},
		{Name: "sliding", Algorithm: algo.SlidingWindow(algo.Per(11, 11*time.Second))},
		{Name: "shadow", Algorithm: algo.TokenBucket(algo.PerMinute(60), 3), Shadow: true},
	}
	for i := range all {
		all[i].OnFailure = backend.FailOpen
	}
	var lists [3][]backend.Policy
	for i := range lists {
		for _, j := range rnd.Perm(len(all))[:1+rnd.Intn(4)] {
			lists[i] = append(lists[i], all[j])
		}
	}
	for range 200 {
		now = now.Add(time.Duration(rnd.Intn(1200)) * time.Millisecond)
		list := lists[rnd.Intn(len(lists))]
		r := take("k", list, 1+rnd.Int63n(4))
		if rnd.Intn(2) == 0 {
			r.Each = make([]backend.State, len(list))
		}
		switch rnd.Intn(8) {
		case 0:
			r.Cost, r.Run, r.UpTo = 1, 1+rnd.Int63n(20), true
		case 1, 2:
			r.Costs = slices.Repeat([]int64{1}, len(list))
			r.Costs[rnd.Intn(len(list))] += rnd.Int63n(4)
		}
		if rnd.Intn(2) == 0 {
			_ = s.Do(context.Background(), &r, new(backend.Decision)) // some cost more than a policy ever grants
			continue
		}
		r.Op = backend.Peek
		var d, want backend.Decision
		if !s.Stands(&r, &d) {
			continue
		}
		stood++
		q := r
		if q.Each != nil {
			q.Each = make([]backend.State, len(list))
		}
		if store.Do(context.Background(), &q, &want) != nil {
			continue
		}
		require.False(t, want.Allowed, "seed %d: %+v stands, and the store says %+v", seed, d, want)
		require.LessOrEqual(t, d.RetryAfter, want.RetryAfter+time.Millisecond, "seed %d", seed)
		require.Positive(t, d.RetryAfter, "seed %d", seed)
		for i := range r.Each {
			require.Equal(t, list[i].Name, r.Each[i].Policy)
			if r.Each[i].Policy == d.Policy {
				require.Equal(t, d.State, r.Each[i], "seed %d", seed)
			}
		}
	}
	return stood
}
