package shard_test

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/storetest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/headgate-go/headgate/shard"
	"github.com/stretchr/testify/require"
)

// kinds are the algorithms with one limit.
func kinds(l algo.Limit) []algo.Algorithm {
	return []algo.Algorithm{algo.FixedWindow(l), algo.SlidingWindow(l), algo.BucketedWindow(l, 10), algo.SlidingLog(l), algo.TokenBucket(l, l.Events)}
}

// spreadList is a list of policies and its shards.
type spreadList struct {
	policies []backend.Policy
	k        int
}

func one(a algo.Algorithm, k int) spreadList {
	return spreadList{[]backend.Policy{{Name: "p", Algorithm: a, OnFailure: backend.FailClosed}}, k}
}

// plain is a store without failure modes: an error that they would answer is returned.
type plain struct{ backend.Store }

func (p plain) Do(ctx context.Context, r *backend.Request, d *backend.Decision) (err error) {
	if shared := layer.Of(p.Store); shared != nil {
		at := shared.Sending(r)
		defer func() { shared.Sent(r, d, at, err) }()
	}
	return p.Store.Do(ctx, r, d)
}

func (p plain) DoAll(ctx context.Context, rs []backend.Request, answers []backend.Answer) {
	if shared := layer.Of(p.Store); shared != nil && len(rs) > 0 {
		at := shared.Sending(&rs[0])
		defer func() { shared.Sent(&rs[0], &answers[0].Decision, at, answers[0].Err) }()
	}
	layer.DoAll(ctx, p.Store, rs, answers)
}

func (plain) Fail(_ context.Context, _ *backend.Request, _ *backend.Decision, err error, _ iter.Seq[*backend.Request]) error {
	return err
}

// over is a shard wrapper over a memory store on a clock of its own.
func over(t testing.TB) (*shard.Store, *atomic.Int64) {
	now := new(atomic.Int64)
	now.Store(trace.Start)
	s := memory.New(&memory.Options{Now: func() time.Time { return time.UnixMicro(now.Load()) }})
	t.Cleanup(func() { _ = s.Close() })
	return shard.New(plain{s}, s), now
}

func do(t testing.TB, s backend.Store, r backend.Request) backend.Decision {
	t.Helper()
	d, err := layer.Ask(context.Background(), s, r)
	require.NoError(t, err)
	return d
}

func take(key string, ps spreadList, n int64) backend.Request {
	return backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Policies: ps.policies, Shards: ps.k, Cost: n}}
}

func peek(key string, ps spreadList, n int64) backend.Request {
	r := take(key, ps, n)
	r.Op = backend.Peek
	return r
}

// TestSuiteWhole: a key that is not spread is answered as the store answers.
func TestSuiteWhole(t *testing.T) {
	redistest.Plain(t)
	storetest.Run(t, storetest.Harness{New: func(t *testing.T) storetest.Subject {
		s, now := over(t)
		return storetest.Subject{Store: s, SetNow: now.Store}
	}})
}

// TestTwinsWhole: K = 0 and 1 answer as the bare store, in every field.
func TestTwinsWhole(t *testing.T) {
	redistest.Plain(t)
	s := trace.Steady(3)
	clock := &memory.Options{Now: func() time.Time { return time.UnixMicro(s.Now()) }}
	bare, mem := memory.New(clock), memory.New(clock)
	wrapper := shard.New(plain{mem}, mem)
	for i := range redistest.Steps(15_000, 50_000) {
		r := s.Next()
		want := trace.Ask(context.Background(), bare, r)
		r.Shards = i % 2
		require.NoError(t, trace.Same(want, trace.Ask(context.Background(), wrapper, r)), "step %d: %v %+v", i, r.Op, r.Group)
	}
}

// TestWholeLimitPasses, in single units, and not one more; then the sum is
// exact, and RetryAfter that of the first share to let one pass.
func TestWholeLimitPasses(t *testing.T) {
	for _, k := range []int{2, 3, 4, 8, 16, 64} {
		for _, l := range []int64{64, 100, 1001} {
			for _, a := range kinds(algo.PerMinute(l)) {
				t.Run(fmt.Sprintf("%v/%d", &a, k), func(t *testing.T) {
					s, now := over(t)
					ps := one(a, k)
					require.NoError(t, s.CheckShards(ps.policies, ps.k))
					for i := range l {
						d := do(t, s, take("k", ps, 1))
						require.True(t, d.Allowed, "%d of %d: %+v", i, l, d)
						require.Equal(t, l, d.Limit)
						require.Equal(t, l-i-1, d.Remaining)
					}
					d := do(t, s, take("k", ps, 1))
					require.False(t, d.Allowed)
					require.Equal(t, l, d.Used)
					require.Positive(t, d.RetryAfter)
					p := do(t, s, peek("k", ps, 1))
					require.Equal(t, d.State, p.State)
					require.Equal(t, backend.Exact, p.Known)
					now.Add(p.RetryAfter.Microseconds() - 1)
					require.False(t, do(t, s, peek("k", ps, 1)).Allowed)
					require.False(t, do(t, s, take("k", ps, 1)).Allowed)
					now.Add(1)
					require.True(t, do(t, s, peek("k", ps, 1)).Allowed)
					require.True(t, do(t, s, take("k", ps, 1)).Allowed)
					require.Zero(t, s.Stats().WrongDenials)
				})
			}
		}
	}
}
