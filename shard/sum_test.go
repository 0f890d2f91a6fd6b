package shard_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/shard"
	"github.com/stretchr/testify/require"
)

// hooked runs after each answer.
type hooked struct {
	*memory.Store
	after func(r backend.Request, d *backend.Decision, err *error)
}

func (h *hooked) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	err := h.Store.Do(ctx, r, d)
	if f := h.after; f != nil {
		if f(*r, d, &err); err != nil {
			*d = backend.Decision{}
		}
	}
	return err
}

// hold stops the k-th answer to a Peek, the last of a sum over k, until goOn.
func (h *hooked) hold(k int64) (inPeek, goOn chan bool) {
	inPeek, goOn = make(chan bool), make(chan bool)
	var n atomic.Int64
	h.after = func(r backend.Request, d *backend.Decision, err *error) {
		if r.Op == backend.Peek && n.Add(1) == k {
			inPeek <- true
			<-goOn
		}
	}
	return inPeek, goOn
}

func hooking() (*shard.Store, *hooked, *atomic.Int64) {
	now := new(atomic.Int64)
	now.Store(1_745_000_145_000_000)
	h := &hooked{Store: memory.New(&memory.Options{Now: func() time.Time { return time.UnixMicro(now.Load()) }})}
	return shard.New(plain{h}, h), h, now
}

// TestAJoinedSumIsEstimated: a sum that was read before a call began says nothing
// exact to it.
func TestAJoinedSumIsEstimated(t *testing.T) {
	s, h, now := hooking()
	ps := one(algo.FixedWindow(algo.PerMinute(20)), 4)
	for do(t, s, take("k", ps, 1)).Allowed {
	}
	now.Add(1_100_000) // what is known lapses; every share is stale
	inPeek, goOn := h.hold(4)
	first := make(chan backend.Decision)
	go func() { d, _ := layer.Ask(context.Background(), s, take("k", ps, 1)); first <- d }()
	<-inPeek
	now.Add(70_000) // the answers are on their way for 70 ms
	second := make(chan backend.Decision)
	go func() { d, _ := layer.Ask(context.Background(), s, take("k", ps, 1)); second <- d }()
	time.Sleep(100 * time.Millisecond)
	goOn <- true
	<-first
	d := <-second
	h.after = nil
	want := do(t, ignorant(h), peek("k", ps, 1))
	if d.Known == backend.Exact {
		require.Equal(t, want.State, d.State)
	}
}

// TestAJoinedSumLeavesOutATake: nor to one that passes.
func TestAJoinedSumLeavesOutATake(t *testing.T) {
	s, h, now := hooking()
	ps := one(algo.FixedWindow(algo.PerMinute(40)), 4)
	for do(t, s, take("k", ps, 1)).Allowed {
	}
	now.Add(1_100_000)
	r := take("k", ps, 1)
	r.Op = backend.Reset
	do(t, ignorant(h), r)
	inPeek, goOn := h.hold(4)
	first, second := make(chan backend.Decision), make(chan backend.Decision)
	go func() { d, _ := layer.Ask(context.Background(), s, take("k", ps, 1)); first <- d }()
	<-inPeek
	other := ignorant(h)
	for range 8 {
		require.True(t, do(t, other, take("k", ps, 1)).Allowed)
	}
	now.Add(1000)
	go func() { d, _ := layer.Ask(context.Background(), s, take("k", ps, 1)); second <- d }()
	time.Sleep(100 * time.Millisecond)
	goOn <- true
	<-first
	b := <-second
	h.after = nil
	want := do(t, ignorant(h), peek("k", ps, 0))
	require.True(t, b.Allowed)
	if b.Known == backend.Exact { // it began after the eight had passed
		require.LessOrEqual(t, b.Remaining, want.Remaining+1)
	}
}

type hubbed struct {
	*hooked
	hub *layer.Shared
}

func (h hubbed) Shared() *layer.Shared { return h.hub }

// TestTheDenyCacheDoesNotOutlastASum: what a joined sum denied is not kept from
// when the call came.
func TestTheDenyCacheDoesNotOutlastASum(t *testing.T) {
	_, h, now := hooking()
	ps := one(algo.FixedWindow(algo.PerMinute(20)), 4)
	l, err := headgate.New(hubbed{h, &layer.Shared{Clock: layer.Of(h).Clock}}, ps.policies, &headgate.Options{Shards: ps.k})
	require.NoError(t, err)
	now.Store(1_745_000_160_000_000 + 57_700_000) // 2.3 s before the window's end: 1745000160 % 60 = 0
	for do(t, ignorant(h), take("k", ps, 1)).Allowed {
	}
	_, _ = l.Peek(context.Background(), headgate.Call{Key: "k"}) // all are known to be spent
	now.Add(2_100_000)                                           // and that lapses; 200 ms to go
	inPeek, goOn := h.hold(4)
	first, second := make(chan backend.Decision), make(chan backend.Decision)
	go func() { d, _ := l.Allow(context.Background(), "k"); first <- d }()
	<-inPeek
	now.Add(70_000) // the sum's answers are on their way for 70 ms
	go func() { d, _ := l.Allow(context.Background(), "k"); second <- d }()
	time.Sleep(100 * time.Millisecond)
	goOn <- true
	<-first
	<-second
	h.after = nil
	now.Add(135_000) // the window is over
	require.True(t, do(t, ignorant(h), peek("k", ps, 1)).Allowed)
	d, err := l.Allow(context.Background(), "k")
	require.NoError(t, err)
	require.True(t, d.Allowed, "%+v", d)
}
