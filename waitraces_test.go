//go:build go1.25

package headgate_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestWaitRivals: queues of four processes share a bucket. None waits long, nothing
// that comes free is lost, and few calls reach the store. The instants at which they
// wake are random, so the longest wait is the median of ten runs.
func TestWaitRivals(t *testing.T) {
	var longest []time.Duration
	for range 10 {
		longest = append(longest, waitRivals(t))
	}
	slices.Sort(longest)
	require.LessOrEqual(t, longest[len(longest)/2], 3*320*time.Millisecond/2, "1.5 times that of one queue")
}

func waitRivals(t *testing.T) (longest time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		const length = 30 * time.Second
		counts := memory.New(nil)
		ctx, cancel := context.WithTimeout(context.Background(), length)
		defer cancel()
		var admitted, most atomic.Int64
		var stores []*counting
		var all sync.WaitGroup
		for i := range 4 {
			s := &counting{Store: counts, delay: time.Duration(200+100*i) * time.Microsecond}
			l := limiter(t, s, nil, bucket(100, 20))
			for range 8 {
				all.Add(1)
				go func() {
					defer all.Done()
					for begin := time.Now(); ; begin = time.Now() {
						if _, err := l.Wait(ctx, headgate.Call{Key: "k"}); err != nil {
							break
						}
						admitted.Add(1)
						most.Store(max(most.Load(), int64(time.Since(begin))))
					}
				}()
			}
			stores = append(stores, s)
		}
		all.Wait()
		var calls int64
		for _, s := range stores {
			calls += s.calls.Load()
		}
		longest = time.Duration(most.Load())
		t.Logf("admitted %d, %d calls, longest wait %v", admitted.Load(), calls, longest)
		require.Less(t, calls, admitted.Load())
		require.GreaterOrEqual(t, admitted.Load(), int64(2960), "0.98 of 100 · 30 + 20")
	})
	return longest
}

// TestWaitStarved: a queue of many is not starved by one that asks for single calls.
func TestWaitStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := memory.New(nil)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		var passed [2]int64
		var all sync.WaitGroup
		for i, callers := range []int{1, 16} {
			l := limiter(t, &counting{Store: counts, delay: 300 * time.Microsecond}, nil, bucket(100, 20))
			for range callers {
				all.Add(1)
				go func() {
					defer all.Done()
					for {
						if _, err := l.Wait(ctx, headgate.Call{Key: "k"}); err != nil {
							return
						}
						atomic.AddInt64(&passed[i], 1)
					}
				}()
			}
		}
		all.Wait()
		t.Log(passed)
		require.Greater(t, passed[1], int64(350), "of 2,020")
	})
}
