package wait

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// callOn returns a call of one unit of each policy on the store.
func callOn(s backend.Store, key string, policies []backend.Policy) Call {
	return Call{Key: key, Policies: policies, Take: func(ctx context.Context, n int64, d *backend.Decision, states []backend.State) error {
		r := backend.Request{Op: backend.Take}
		r.Key, r.Policies, r.Run, r.Cost, r.Each = key, policies, n, n, states
		return s.Do(ctx, &r, d)
	}}
}

func policy(a algo.Algorithm) []backend.Policy {
	return []backend.Policy{{Name: "p", Algorithm: a, OnFailure: backend.FailClosed}}
}

// joined puts the waiters into a queue, in this order.
func joined(qs *Queues, waiters ...*waiter) (q *queue) {
	call := Call{Key: "k", Policies: policy(algo.FixedWindow(algo.PerSecond(1000)))}
	for _, w := range waiters {
		w.call, w.since, w.notify = call, time.Now(), make(chan struct{}, 1)
		q, _ = qs.join(w, time.Time{})
	}
	return q
}

// TestShadowLimitsNoTake: a take is for as many calls as the enforced policies can grant.
func TestShadowLimitsNoTake(t *testing.T) {
	list := append(policy(algo.FixedWindow(algo.PerSecond(1000))),
		backend.Policy{Name: "trial", Algorithm: algo.FixedWindow(algo.PerSecond(5)), OnFailure: backend.FailClosed, Shadow: true})
	require.EqualValues(t, 1000, (&Call{Key: "k", Policies: list}).limit())
}

// TestQueuesLeave: queues that are empty for a second are deleted while others come.
func TestQueuesLeave(t *testing.T) {
	qs, s, policies := NewQueues(true), memory.New(nil), policy(algo.FixedWindow(algo.PerDay(10)))
	for i := range 1000 {
		_, err := qs.Wait(context.Background(), callOn(s, strconv.Itoa(i), policies))
		require.NoError(t, err)
	}
	require.Len(t, qs.mu.queues, 1000)
	for _, q := range qs.mu.queues {
		q.emptied = q.emptied.Add(-2 * remembered)
	}
	for i := range 500 {
		_, err := qs.Wait(context.Background(), callOn(s, "new"+strconv.Itoa(i), policies))
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(qs.mu.queues), 800)
}

// TestTakeOfARestGoesOn: the end of a take that has decided some of its waiters leaves the
// others in the take of the next head.
func TestTakeOfARestGoesOn(t *testing.T) {
	qs := NewQueues(true)
	waiters := make([]*waiter, 3)
	for i := range waiters {
		waiters[i] = new(waiter)
	}
	q := joined(qs, waiters...)
	first := qs.group(waiters[0], 3)
	qs.decide(q, first[:1], Answer{})
	<-waiters[1].notify // the head
	second := qs.group(waiters[1], 2)
	qs.end(first)
	require.NotNil(t, waiters[2].taking)
	qs.end(second)
	require.Nil(t, waiters[2].taking)
}

// TestLeavesOnce: a waiter whose context ends calls leave twice, and the head may be
// decided in between.
func TestLeavesOnce(t *testing.T) {
	qs := NewQueues(true)
	waiters := make([]*waiter, 4)
	for i := range waiters {
		waiters[i] = new(waiter)
	}
	q := joined(qs, waiters...)
	a, w, c, d := waiters[0], waiters[1], waiters[2], waiters[3]
	<-a.notify
	qs.leave(q, w) // its context has ended
	group := qs.group(a, 1)
	qs.decide(q, group, Answer{})
	qs.end(group)
	qs.leave(q, w) // the defer of head.wait
	<-c.notify     // the head
	group = qs.group(c, 1)
	qs.decide(q, group, Answer{})
	qs.end(group)
	select {
	case <-d.notify:
	case <-time.After(time.Second):
		t.Fatal("the last waiter never became the head")
	}
}

// TestLentUnitsMayComeBack: a denial that counts lent units as used refuses no call at
// once, whichever process they were lent to.
func TestLentUnitsMayComeBack(t *testing.T) {
	list := policy(algo.FixedWindow(algo.PerDay(10)))
	for lent, late := range map[int64]bool{3: false, 0: true} {
		ctx, cancel := context.WithTimeout(context.Background(), map[bool]time.Duration{false: 20 * time.Millisecond, true: time.Minute}[late])
		defer cancel()
		_, err := NewQueues(true).Wait(ctx, Call{Key: "k", Policies: list, Take: func(_ context.Context, _ int64, d *backend.Decision, _ []backend.State) error {
			d.Policy, d.RetryAfter, d.Lent, d.Known = "p", time.Hour, lent, backend.Exact
			return nil
		}})
		require.Equal(t, late, errors.As(err, new(TooLate)), "%v: %v", lent, err)
	}
}

// TestShadowOfEachCall: of the calls of a take the first have room in a shadow, as many as it
// was charged.
func TestShadowOfEachCall(t *testing.T) {
	list := append(policy(algo.FixedWindow(algo.PerSecond(1000))),
		backend.Policy{Name: "trial", Algorithm: algo.FixedWindow(algo.PerDay(2)), OnFailure: backend.FailClosed, Shadow: true})
	s, qs := memory.New(nil), NewQueues(true)
	h := head{queues: qs, ctx: t.Context()}
	waiters := []*waiter{&h.waiter, {}, {}}
	h.queue = joined(qs, waiters...)
	h.call = callOn(s, "k", list)
	for _, w := range waiters[1:] {
		w.call = h.call
	}
	d, size, err := h.take(3)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.EqualValues(t, 3, size)
	for i, w := range waiters {
		require.True(t, w.decided)
		require.Equal(t, i == 2, w.States[1].RetryAfter > 0, "call %d", i)
		require.EqualValues(t, 2, w.States[1].Used)
		require.EqualValues(t, 2-i, w.behind)
	}
}
