package headgate

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestWaitQueuesLeave: queues that are empty for a second go while others come.
func TestWaitQueuesLeave(t *testing.T) {
	l, err := New(memory.New(nil), []Policy{{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(10)), OnFailure: FailClosed}}, nil)
	require.NoError(t, err)
	qs := l.queues
	for i := range 1000 {
		_, err := l.Wait(context.Background(), Call{Key: strconv.Itoa(i)})
		require.NoError(t, err)
	}
	require.Len(t, qs.mu.queues, 1000)
	for _, q := range qs.mu.queues {
		q.emptied = q.emptied.Add(-2 * remembered)
	}
	for i := range 500 {
		_, err := l.Wait(context.Background(), Call{Key: "new" + strconv.Itoa(i)})
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(qs.mu.queues), 800)
}

// TestWaitAlone: a queue without rivals wakes when it was told to, one with rivals
// later, and the less so the older its head is.
func TestWaitAlone(t *testing.T) {
	var c contest
	const spread, round = 50 * time.Millisecond, 100 * time.Millisecond
	require.Zero(t, c.late(2, spread, round, 0))
	c.told = true
	c.denied()
	young, old := c.late(2, spread, round, 0), c.late(2, spread, round, 300*time.Millisecond)
	require.Equal(t, spread, young)
	require.Less(t, old, young/2)
	require.Positive(t, old)
	for range maxRivals + 1 {
		c.told = true
		c.won(0, 0)
	}
	require.Zero(t, c.late(2, spread, round, 0))
	c = begun
	require.Equal(t, spread, c.late(2, spread, round, 0), "others may have begun at the same time")
	require.Zero(t, c.late(1, spread, round, 0))
}

// TestWaitLeavesOnce: a waiter whose context ends calls leave twice, and the head may be
// decided in between.
func TestWaitLeavesOnce(t *testing.T) {
	l := &Limiter{policies: []Policy{{Name: "a", Algorithm: algo.FixedWindow(algo.PerSecond(1))}}}
	qs := newQueues(true)
	waiters := make([]*waiter, 4)
	var q *queue
	for i := range waiters {
		waiters[i] = &waiter{limiter: l, call: Call{Key: "k"}, since: time.Now(), notify: make(chan struct{}, 1)}
		q, _ = qs.join(waiters[i], time.Time{})
	}
	a, w, c, d := waiters[0], waiters[1], waiters[2], waiters[3]
	<-a.notify
	qs.leave(q, w) // left, its context has ended
	group := qs.group(a, 1)
	qs.decide(q, group, answer{})
	qs.end(group)
	qs.leave(q, w) // the defer of wait
	<-c.notify     // the head
	group = qs.group(c, 1)
	qs.decide(q, group, answer{})
	qs.end(group)
	select {
	case <-d.notify:
	case <-time.After(time.Second):
		t.Fatal("the last waiter never became the head")
	}
}
