package denial

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestHigherCost: the RetryAfter of a higher cost than was denied is the store's for TokenBuckets
// and for one FixedWindow. For others it is a lower bound.
func TestHigherCost(t *testing.T) {
	redistest.Plain(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		f := &fake{}
		store := memory.New(&memory.Options{Now: f.Now})
		f.do = func(r *backend.Request) (d backend.Decision, err error) {
			err = store.Do(context.Background(), r, &d)
			return d, err
		}
		s, most := f.wrapper(Longest), 2+rnd.Int64N(1000)
		limit := algo.Per(1+rnd.Int64N(5000), time.Duration(1+rnd.Int64N(1e5))*time.Millisecond)
		bucket := algo.TokenBucket(limit, most)
		limit.Events = most
		all := []algo.Algorithm{bucket, algo.FixedWindow(limit), algo.SlidingWindow(limit), algo.SlidingLog(limit)}
		a, b := rnd.IntN(len(all)), rnd.IntN(len(all))
		ps := []backend.Policy{{Name: "a", Algorithm: all[a]}, {Name: "b", Algorithm: all[b]}}[:1+rnd.IntN(2)]
		for range 3 {
			_, err := layer.Ask(context.Background(), f, take("k", ps, 1+rnd.Int64N(most)))
			require.NoError(t, err)
			f.advance(time.Duration(rnd.Int64N(1e6)) * time.Microsecond / 100)
		}
		low, high := take("k", ps, 1+rnd.Int64N(most)), take("k", ps, 1+rnd.Int64N(most))
		if low.Cost > high.Cost {
			low.Cost, high.Cost = high.Cost, low.Cost
		}
		if rnd.IntN(2) == 0 {
			low.Each, high.Each = make([]backend.State, len(ps)), make([]backend.State, len(ps))
		}
		if ask(t, s, low).Allowed {
			continue
		}
		f.advance(time.Duration(rnd.Int64N(100)) * time.Microsecond)
		d := ask(t, s, high)
		if d.Source != backend.FromDenyCache {
			continue
		}
		peek := take("k", ps, high.Cost)
		peek.Op = backend.Peek
		want := ask(t, s, peek)
		require.LessOrEqual(t, d.RetryAfter, want.RetryAfter, "%v %d %d", ps, low.Cost, high.Cost)
		if len(ps) == 1 && a <= 1 || len(ps) == 2 && a+b == 0 {
			require.GreaterOrEqual(t, d.RetryAfter, want.RetryAfter, "%v %d %d", ps, low.Cost, high.Cost)
		}
	}
}
