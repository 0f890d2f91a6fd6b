//go:build go1.25

package wait

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// counting is a store that counts its calls, and delays them.
type counting struct {
	backend.Store
	calls atomic.Int64
	delay time.Duration
}

func (s *counting) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	s.calls.Add(1)
	time.Sleep(s.delay/2 + rand.N(s.delay)) // or two processes that wake at one instant would take in the same order each time
	return s.Store.Do(ctx, r, d)
}

// loop waits again and again with so many callers, as one process does, until the context
// ends.
func loop(ctx context.Context, all *sync.WaitGroup, s backend.Store, callers int, passed func(waited time.Duration)) {
	qs, call := NewQueues(true), callOn(s, "k", policy(algo.TokenBucket(algo.PerSecond(100), 20)))
	for range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			for begin := time.Now(); ; begin = time.Now() {
				if _, err := qs.Wait(ctx, call); err != nil {
					return
				}
				passed(time.Since(begin))
			}
		}()
	}
}

// TestRivals: queues of four processes share a bucket. None waits long, nothing that
// comes free is lost, and few calls reach the store. The instants at which they wake are
// random, so the longest wait is the median of ten runs.
func TestRivals(t *testing.T) {
	var longest []time.Duration
	for range 10 {
		longest = append(longest, rivals(t))
	}
	slices.Sort(longest)
	require.LessOrEqual(t, longest[len(longest)/2], 3*320*time.Millisecond/2, "1.5 times that of one queue")
}

func rivals(t *testing.T) (longest time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		counts := memory.New(nil)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		var admitted, most atomic.Int64
		var stores []*counting
		var all sync.WaitGroup
		for i := range 4 {
			s := &counting{Store: counts, delay: time.Duration(200+100*i) * time.Microsecond}
			loop(ctx, &all, s, 8, func(waited time.Duration) {
				admitted.Add(1)
				most.Store(max(most.Load(), int64(waited)))
			})
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

// TestStarved: a queue of many is not starved by a process that takes for single calls.
func TestStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := memory.New(nil)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		var passed [2]atomic.Int64
		var all sync.WaitGroup
		for i, callers := range []int{1, 16} {
			loop(ctx, &all, &counting{Store: counts, delay: 300 * time.Microsecond}, callers, func(time.Duration) { passed[i].Add(1) })
		}
		all.Wait()
		t.Log(passed[0].Load(), passed[1].Load())
		require.Greater(t, passed[1].Load(), int64(300), "of 2,020")
	})
}
