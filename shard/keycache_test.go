package shard_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/shard"
	"github.com/stretchr/testify/require"
)

// spentStore denies everything, and keeps nothing.
type spentStore struct {
	shared layer.Shared
	asked  atomic.Int64
}

func (s *spentStore) Check([]backend.Policy) error       { return nil }
func (s *spentStore) Capabilities() backend.Capabilities { return backend.Basic }
func (s *spentStore) Close() error                       { return nil }
func (s *spentStore) Shared() *layer.Shared              { return &s.shared }
func (s *spentStore) Do(_ context.Context, r *backend.Request, d *backend.Decision) error {
	s.asked.Add(1)
	for i := range r.Policies {
		d.State = backend.State{Policy: r.Policies[i].Name, Limit: 1, Used: 1, RetryAfter: time.Hour, ResetAfter: time.Hour}
		if r.Each != nil {
			r.Each[i] = d.State
		}
	}
	return nil
}

// TestWhatIsKnownIsBoundedInBytes, of keys and of lists, and who is asked for
// all the time is not the one that leaves.
func TestWhatIsKnownIsBoundedInBytes(t *testing.T) {
	redistest.Plain(t)
	counts := &spentStore{shared: layer.Shared{Clock: func() time.Time { return time.UnixMicro(0) }}}
	s := shard.New(plain{counts}, counts)
	list := func(i int) spreadList {
		return one(algo.FixedWindow(algo.PerDay(int64(1024+i))), shard.MaxShards)
	}
	hot, before := list(0), heap()
	do(t, s, take("hot", hot, 1))
	for i := range redistest.Steps(300, 400) {
		do(t, s, take(fmt.Sprint("key", i), hot, 1))
		do(t, s, take("key", list(1+i), 1))
		counts.asked.Store(0)
		do(t, s, take("hot", hot, 1))
		require.Zero(t, counts.asked.Load())
	}
	counted, young, all := s.Cells()
	require.Equal(t, young, counted)
	require.LessOrEqual(t, all, shard.MaxCells)
	require.Greater(t, all, shard.MaxCells/2-2*shard.MaxShards)
	require.Less(t, heap()-before, float64(64<<20), "bytes")
	runtime.KeepAlive(s)
}

func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// TestCellsAreCounted, whoever comes and goes at the same time.
func TestCellsAreCounted(t *testing.T) {
	s, _, _ := counting(t)
	ps := one(algo.FixedWindow(algo.PerDay(1<<20)), 256)
	faulttest.Go(8, func(i int) {
		for j := range 160 { // of keys for a generation and a half
			r := take(fmt.Sprint(i+2*j), ps, 1)
			if j%5 == 0 {
				r.Op = backend.Reset
			}
			if _, err := layer.Ask(context.Background(), s, r); err != nil {
				t.Error(err)
			}
		}
	})()
	counted, young, all := s.Cells()
	require.Equal(t, young, counted)
	require.LessOrEqual(t, all, shard.MaxCells)
}
