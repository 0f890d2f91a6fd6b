package batch

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// noted returns trips after a hundred round trips of one kind, over a link.
func noted(link time.Duration, calls, groups int, took time.Duration) *recent {
	t := &recent{}
	t.add(0, 1, 1, link)
	for range 100 {
		t.add(0, calls, groups, took)
	}
	return t
}

// TestLimit: many batches may be in flight while they carry few calls or the
// server is far away, three of a crowd, two where one side is the bottleneck.
func TestLimit(t *testing.T) {
	for _, test := range []struct {
		about         string
		link          time.Duration
		calls, groups int
		took          time.Duration
		limit         int
	}{
		{"a call or two", 100 * us, 2, 1, 100 * us, many},
		{"a call or two, over a link", 500 * us, 2, 1, 500 * us, many},
		{"a call or two of each key", 100 * us, 100, 50, 100 * us, few},
		{"several calls of one key", 100 * us, 8, 1, 100 * us, few},
		{"several calls of each key", 100 * us, 100, 20, 100 * us, few},
		{"many calls of one key, over a link", 500 * us, 100, 1, 500 * us, few},
		{"one call at a time, which takes long", 30 * us, 1, 1, 600 * us, few},
		{"as many keys as take so long", 30 * us, 10, 10, 600 * us, few},
		{"not much longer than the link", 30 * us, 4, 1, 220 * us, few},
		{"far away, a call", 5 * ms, 1, 1, 5 * ms, far},
		{"far away, many keys", 5 * ms, 100, 100, 7 * ms, far},
	} {
		require.Equal(t, test.limit, noted(test.link, test.calls, test.groups, test.took).limit(200), test.about)
	}
	require.Equal(t, 10, noted(5*ms, 1, 1, 5*ms).limit(20), "half of the connections")
	require.Equal(t, many, noted(5*ms, 1, 1, 5*ms).limit(4), "connections bound it elsewhere")
}

// TestAServerThatMovedAway is taken for a busy one for ten seconds at most.
func TestAServerThatMovedAway(t *testing.T) {
	s := &recent{}
	s.add(0, 5, 1, 30*us)
	for i := range 100 {
		s.add(remembered/100*time.Duration(i+1), 5, 1, 2*ms)
	}
	require.Equal(t, few, s.limit(200))
	s.add(remembered+time.Second, 5, 1, 2*ms)
	require.Equal(t, far, s.limit(200))
}

// TestOverdue: a batch keeps its place for ten round trips, half of the budget
// while nothing is known, and never less than a busy machine delays it.
func TestOverdue(t *testing.T) {
	require.Equal(t, 50*ms, (&recent{}).overdue(100*ms))
	require.Equal(t, soonest, noted(100*us, 1, 1, 100*us).overdue(100*ms))
	require.Equal(t, 50*ms, noted(5*ms, 1, 1, 5*ms).overdue(100*ms))
}

// TestStale: the estimate of a round trip holds for ten of them.
func TestStale(t *testing.T) {
	require.True(t, (&recent{}).stale(0))
	s := noted(5*ms, 1, 1, 5*ms)
	require.False(t, s.stale(50*ms))
	require.True(t, s.stale(51*ms))
}

var policies = []backend.Policy{{Name: "p", Algorithm: algo.FixedWindow(algo.PerMinute(1))}}

func newQueue(single bool) *Queue {
	return NewQueue(NewServer(nil, "node", Settings{Budget: 100 * ms, DisableBatching: single}), nil)
}

func pendingCall(came, deadline time.Duration) *call {
	c := &call{key: "k", tag: "k", came: came, deadline: deadline, policies: policies}
	c.answered = make(chan struct{}, 1)
	c.Ask(&backend.Group{Cost: 1})
	return c
}

// TestLate: a call goes while it has two round trips left or more than half of its
// time, and never where the link takes all that it has.
func TestLate(t *testing.T) {
	for _, test := range []struct {
		about      string
		link, mean time.Duration
		left       time.Duration // of 2 ms
		late       bool
	}{
		{"fresh, of a quick server", 100 * us, 200 * us, 2 * ms, false},
		{"old, of a quick server", 100 * us, 200 * us, 500 * us, false},
		{"two round trips left", 100 * us, 200 * us, 400 * us, true},
		{"fresh, of a slow server", 100 * us, 3 * ms, 1100 * us, false},
		{"half of its time has passed", 100 * us, 3 * ms, 1000 * us, true},
		{"less than the link takes", 5 * ms, 5 * ms, 2 * ms, true},
		{"nothing is known", 0, 0, 1, false},
		{"over", 0, 0, 0, true},
	} {
		b := &batch{link: test.link, mean: test.mean}
		c := pendingCall(0, 2*ms)
		require.Equal(t, test.late, b.late(c, 2*ms-test.left), test.about)
	}
}

// TestTake: a batch takes pending calls in their order while there is room. It
// drops the calls whose callers left and refuses the late ones.
func TestTake(t *testing.T) {
	q := newQueue(false)
	var pending list
	left, late := pendingCall(0, 95*ms), pendingCall(0, 3*ms)
	ended, end := context.WithCancel(context.Background())
	end()
	require.Error(t, left.wait(ended, ended.Done()))
	pending.push(left)
	pending.push(late)
	for range maxCalls + 1 {
		pending.push(pendingCall(ms, 96*ms))
	}
	b := &batch{budget: q.budget, byTag: map[string]*group{}}
	rest := b.take(pending, 5*ms)
	require.Equal(t, maxCalls, b.calls)
	require.Equal(t, 1, len(b.groups))
	require.NotNil(t, rest.first)
	require.Same(t, rest.first, rest.last)
	require.NoError(t, late.wait(context.Background(), nil))
	var d backend.Decision
	require.ErrorIs(t, late.Decide(backend.Take, &backend.Group{}, &d), backend.ErrUnavailable)

	rest.push(pendingCall(60*ms, 155*ms))
	b = &batch{budget: q.budget, byTag: map[string]*group{}}
	rest = b.take(rest, 61*ms)
	require.Equal(t, 1, b.calls, "a call does not join one that came much earlier")
	require.NotNil(t, rest.first)
}

// TestCrowded: a call is refused at once where even full and undelayed round
// trips would answer it too late.
func TestCrowded(t *testing.T) {
	q := newQueue(false)
	q.mu.recent = *noted(20*ms, 100, 100, 20*ms)
	q.mu.limit = 10
	c := pendingCall(0, 95*ms)
	require.False(t, q.crowded(c, 10*maxGroups*3))
	require.True(t, q.crowded(c, 10*maxGroups*4))
	require.False(t, q.crowded(pendingCall(0, ms), 10*maxGroups), "one round trip of full batches is no crowd")
	q.single = true
	require.False(t, q.crowded(c, 10*maxGroups*4))
}

// TestPlace: a batch has its place to itself until it has taken the pending
// calls; there is none beyond the limit.
func TestPlace(t *testing.T) {
	q := newQueue(true)
	q.mu.limit = 2
	require.False(t, q.place(), "nothing is pending")
	q.mu.pending.push(pendingCall(0, 95*ms))
	require.True(t, q.place())
	require.False(t, q.place(), "the first is about to take what is pending")
	q.mu.filling = false
	require.True(t, q.place())
	q.mu.filling = false
	require.False(t, q.place(), "the limit")
	require.Equal(t, 2, q.mu.out)
}

// TestRefusedAtOnce: a call that a crowd keeps from an answer in time is not
// pending, and counts for none that comes later.
func TestRefusedAtOnce(t *testing.T) {
	q := newQueue(false)
	q.mu.recent = *noted(20*ms, 100, 100, 20*ms)
	q.mu.limit = 10
	q.callers.Store(10 * maxGroups * 4)
	_, err := q.push(pendingCall(0, 95*ms), false)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.Nil(t, q.mu.pending.first)
	require.EqualValues(t, 10*maxGroups*4, q.callers.Load())
}
