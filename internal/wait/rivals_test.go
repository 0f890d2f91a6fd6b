//go:build go1.25

package wait

import (
	"context"
	"fmt"
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
	"github.com/headgate-go/headgate/internal/lab/redistest"
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
func loop(ctx context.Context, all *sync.WaitGroup, s backend.Store, list []backend.Policy, n int, passed func(waited time.Duration)) {
	qs, call := NewQueues(true), callOn(s, "k", list)
	for range n {
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

// bucket is what queues share, and shadowed the same beside a shadow.
var (
	bucket   = policy(algo.TokenBucket(algo.PerSecond(100), 20))
	shadowed = append(policy(algo.TokenBucket(algo.PerSecond(100), 20)),
		backend.Policy{Name: "trial", Algorithm: algo.TokenBucket(algo.PerSecond(60), 20), OnFailure: backend.FailClosed, Shadow: true})
)

// TestRivals: queues of several processes share a bucket. None waits long, nothing that
// comes free is lost, and few calls reach the store. A shadow changes none of that. The
// instants at which they wake are random, so the figures are medians of some runs.
func TestRivals(t *testing.T) {
	redistest.Plain(t)
	const callers, runs = 32, 9
	one := callers * 10 * time.Millisecond // one queue's wait
	for _, processes := range []int{1, 4, 8} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			var longest [2][]time.Duration
			var calls [2][]float64
			for i, list := range [][]backend.Policy{bucket, shadowed} {
				for range runs {
					wait, perAdmission := rivals(t, processes, callers/processes, list)
					longest[i], calls[i] = append(longest[i], wait), append(calls[i], perAdmission)
				}
				slices.Sort(longest[i])
				slices.Sort(calls[i])
				t.Logf("%d policies: longest wait %.2f of one queue's, %.2f calls per admission", len(list), float64(longest[i][runs/2])/float64(one), calls[i][runs/2])
			}
			require.Less(t, longest[1][runs/2], longest[0][runs/2]*13/10)
			require.Less(t, calls[1][runs/2], calls[0][runs/2]*1.1)
			if processes < 8 { // of few callers each take is for one
				require.LessOrEqual(t, longest[0][runs/2], one*13/10)
				require.Less(t, calls[0][runs/2], 0.8)
			}
		})
	}
}

func rivals(t *testing.T, processes, callers int, list []backend.Policy) (longest time.Duration, perAdmission float64) {
	synctest.Test(t, func(t *testing.T) {
		counts := memory.New(nil)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		var admitted, most atomic.Int64
		var stores []*counting
		var all sync.WaitGroup
		for i := range processes {
			s := &counting{Store: counts, delay: time.Duration(200+100*i) * time.Microsecond}
			loop(ctx, &all, s, list, callers, func(waited time.Duration) {
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
		longest, perAdmission = time.Duration(most.Load()), float64(calls)/float64(admitted.Load())
		require.GreaterOrEqual(t, admitted.Load(), int64(2960), "0.98 of 100 · 30 + 20")
	})
	return longest, perAdmission
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
			loop(ctx, &all, &counting{Store: counts, delay: 300 * time.Microsecond}, bucket, callers, func(time.Duration) { passed[i].Add(1) })
		}
		all.Wait()
		t.Log(passed[0].Load(), passed[1].Load())
		require.Greater(t, passed[1].Load(), int64(300), "of 2,020")
	})
}
