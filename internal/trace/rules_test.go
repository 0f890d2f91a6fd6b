package trace

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// bench is a model with a clock of its own.
type bench struct {
	now int64
	*Model
}

func newBench() *bench {
	b := &bench{now: Start - Start%time.Minute.Microseconds()}
	b.Model = NewModel(func() int64 { return b.now })
	return b
}

func (b *bench) take(t *testing.T, a algo.Algorithm, n int64) backend.Decision {
	d, err := layer.Ask(context.Background(), b, backend.Request{Op: backend.Take, Group: backend.Group{
		Key: "k", Cost: n, Policies: []backend.Policy{{Name: "p", Algorithm: a}}}})
	require.NoError(t, err)
	return d
}

// TestBucketsOfAnotherShapeCountApart: neither more buckets nor a longer period
// changes what is used, or when it leaves.
func TestBucketsOfAnotherShapeCountApart(t *testing.T) {
	b := newBench()
	two, sixty := algo.BucketedWindow(algo.PerMinute(10), 2), algo.BucketedWindow(algo.PerMinute(10), 60)
	b.now += 29_900_000
	require.True(t, b.take(t, two, 10).Allowed)
	b.now += 100_000
	require.True(t, b.take(t, sixty, 10).Allowed)
	require.Equal(t, time.Minute+sec-time.Microsecond, b.take(t, sixty, 10).RetryAfter)
	require.Equal(t, time.Minute-time.Microsecond, b.take(t, two, 10).RetryAfter)
}

const sec = time.Second

// TestStepBackFreesOrWaitsOnce: what lay too far ahead is gone for good, and
// a RetryAfter told after a step back is kept.
func TestStepBackFreesOrWaitsOnce(t *testing.T) {
	for _, a := range []algo.Algorithm{algo.SlidingLog(algo.PerMinute(10)), algo.BucketedWindow(algo.PerMinute(10), 60)} {
		b := newBench()
		require.True(t, b.take(t, a, 5).Allowed)
		b.now += 59_900_000
		require.True(t, b.take(t, a, 5).Allowed)
		b.now -= 90_000_000
		d := b.take(t, a, 6)
		if !d.Allowed {
			b.now += d.RetryAfter.Microseconds()
			d = b.take(t, a, 6)
		}
		require.True(t, d.Allowed, a.String())
	}
}
