package batch

import (
	"context"
	"github.com/headgate-go/headgate/backend/internal/client"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// noted returns round trips after a hundred round trips of one kind, over a link.
func noted(link time.Duration, calls int, took time.Duration) *recent {
	t := &recent{}
	t.add(0, 1, link)
	for i := range 100 {
		t.add(time.Duration(i+1)*took, calls, took)
	}
	return t
}

// TestAStallLeavesNoTrace: the round trips that meet one stall say nothing of the next
// one. Those to a slow server do, also where they overlap.
func TestAStallLeavesNoTrace(t *testing.T) {
	s := noted(100*us, 1, 100*us)
	stall := 10*ms + 90*ms
	for i := range far { // in flight when it begins, and some that leave during it
		s.add(stall, 1, 90*ms-time.Duration(i)*100*us)
	}
	s.add(stall+100*us, 1, 100*us)
	require.Equal(t, 100*us, s.mean)
	for i := range 100 {
		s.add(stall+time.Duration(i)*5*ms, 1, 40*ms) // eight in flight
	}
	require.Greater(t, s.mean, 25*ms)
}

// TestLimit: many batches may be in flight while they carry few calls and come back
// soon, few of a busy server, and most over a long link.
func TestLimit(t *testing.T) {
	for _, test := range []struct {
		about string
		link  time.Duration
		calls int
		took  time.Duration
		limit int
	}{
		{"a call or two", 100 * us, 2, 100 * us, many},
		{"a call or two, over a link", 500 * us, 2, 500 * us, many},
		{"not much longer than the link", 30 * us, 2, 320 * us, many},
		{"several calls", 100 * us, 8, 100 * us, few},
		{"many calls, over a link", 500 * us, 100, 500 * us, few},
		{"one call at a time, which takes long", 30 * us, 1, 600 * us, few},
		{"far away, a call", 5 * ms, 1, 5 * ms, far},
		{"far away, many keys", 5 * ms, 100, 7 * ms, far},
	} {
		require.Equal(t, test.limit, noted(test.link, test.calls, test.took).limit(), test.about)
	}
}

// TestAServerThatMovedAway is taken for a busy one for ten seconds at most.
func TestAServerThatMovedAway(t *testing.T) {
	s := &recent{}
	s.add(0, 5, 30*us)
	for i := range 100 {
		s.add(remembered/100*time.Duration(i+1), 5, 2*ms)
	}
	require.Equal(t, few, s.limit())
	s.add(remembered+time.Second, 5, 2*ms)
	require.Equal(t, far, s.limit())
}

// TestOverdue: a batch keeps its place for ten round trips, half of the budget
// while nothing is known, and never less than a busy machine delays it.
func TestOverdue(t *testing.T) {
	require.Equal(t, 50*ms, (&recent{}).overdue(100*ms))
	require.Equal(t, soonest, noted(100*us, 1, 100*us).overdue(100*ms))
	require.Equal(t, 50*ms, noted(5*ms, 1, 5*ms).overdue(100*ms))
}

var policies = []backend.Policy{{Name: "p", Algorithm: algo.FixedWindow(algo.PerMinute(1))}}

func newQueue(single bool) *Queue {
	return NewQueue(NewServer(nil, "node", Settings{Budget: 100 * ms, DisableBatching: single}), nil)
}

func pendingCall(came, deadline time.Duration) *call {
	c := &call{came: came, deadline: deadline}
	c.own.Op, c.own.Key, c.own.Tag, c.own.Policies = backend.Take, "k", "k", policies
	c.answered = make(chan struct{}, 1)
	c.Ask(&backend.Request{Group: backend.Group{Cost: 1}}, 0)
	return c
}

// TestLate: a call goes while it has two round trips left or more than half of its
// time.
func TestLate(t *testing.T) {
	for _, test := range []struct {
		about string
		mean  time.Duration
		left  time.Duration // of 2 ms
		late  bool
	}{
		{"fresh, of a quick server", 200 * us, 2 * ms, false},
		{"old, of a quick server", 200 * us, 500 * us, false},
		{"two round trips left", 200 * us, 400 * us, true},
		{"fresh, of a slow server", 3 * ms, 1100 * us, false},
		{"half of its time has passed", 3 * ms, 1000 * us, true},
		{"nothing is known", 0, 1, false},
		{"over", 0, 0, true},
	} {
		require.Equal(t, test.late, pendingCall(0, 2*ms).late(2*ms-test.left, test.mean), test.about)
	}
}

// TestTake: a batch takes pending calls in their order while there is room. It
// drops the calls whose callers left and refuses the late ones.
func TestTake(t *testing.T) {
	q := newQueue(false)
	var pending []*call
	left, late := pendingCall(0, 95*ms), pendingCall(0, 5*ms)
	ended, end := context.WithCancel(context.Background())
	end()
	require.Error(t, left.wait(ended))
	pending = append(pending, left, late)
	for range maxCalls + 1 {
		pending = append(pending, pendingCall(ms, 96*ms))
	}
	var b batch
	rest := b.take(pending, &q.room, 5*ms, 0, 0)
	require.Equal(t, maxCalls, b.calls)
	require.Equal(t, 1, len(b.groups))
	require.Len(t, rest, 1)
	require.NoError(t, late.wait(context.Background()))
	var d backend.Decision
	require.ErrorIs(t, late.Decide(&backend.Request{Op: backend.Take}, nil, &d), backend.ErrUnavailable)

	rest = append(rest, pendingCall(60*ms, 155*ms))
	rest = b.take(rest, &q.room, 61*ms, 0, 0)
	require.Equal(t, 1, b.calls, "a call does not join one that came much earlier")
	require.Len(t, rest, 1)
}

// TestTakeEarlier: a batch has the budget of the call that came first, also if that stands
// behind younger ones since it has waited for its slot. It does not join much younger ones.
func TestTakeEarlier(t *testing.T) {
	q := newQueue(false)
	pending := []*call{pendingCall(60*ms, 155*ms), pendingCall(55*ms, 150*ms), pendingCall(0, 95*ms)}
	var b batch
	rest := b.take(pending, &q.room, 60*ms, 0, 0)
	require.Equal(t, 2, b.calls)
	require.Equal(t, 55*ms, b.first)
	require.Equal(t, pending[2:], rest)
}

// TestTakeShortContexts: a call whose context ends before a reply can come is refused. One whose
// budget does is taken: a PING may show that the link is shorter by now.
func TestTakeShortContexts(t *testing.T) {
	q := newQueue(false)
	short, enough, far := pendingCall(0, 20*ms), pendingCall(0, 40*ms), pendingCall(0, 95*ms)
	var b batch
	require.Empty(t, b.take([]*call{short, enough}, &q.room, 0, 0, 30*ms))
	require.Equal(t, []*call{enough}, b.groups[0].calls)
	require.Equal(t, errLate, short.Err)
	require.Empty(t, b.take([]*call{far}, &q.room, 0, 0, 200*ms))
	require.Equal(t, 1, b.calls)
}

// TestPlace: a batch has its place to itself until it has taken the pending
// calls; there is none beyond the limit.
func TestPlace(t *testing.T) {
	q := newQueue(true)
	q.mu.limit = 2
	require.False(t, q.place(), "nothing is pending")
	q.mu.pending = append(q.mu.pending, pendingCall(0, 95*ms))
	require.True(t, q.place())
	require.False(t, q.place(), "the first is about to take what is pending")
	q.mu.filling = false
	require.True(t, q.place())
	q.mu.filling = false
	require.False(t, q.place(), "the limit")
	require.Equal(t, 2, q.mu.out)
}

// TestConnectionsInUse: without batching too, no more round trips are in flight than the
// client may have connections. They become more with answers, and fewer with failures.
func TestConnectionsInUse(t *testing.T) {
	client := redis.NewClient(&redis.Options{PoolSize: many + 2})
	defer client.Close()
	q := NewQueue(NewServer(client, "node", Settings{Budget: 100 * ms, DisableBatching: true, Shared: &layer.Shared{}}), nil)
	places := func() (n int) {
		q.mu.pending = []*call{pendingCall(0, 95*ms)}
		for q.place() {
			q.mu.filling = false
			n++
		}
		q.mu.out, q.mu.outstanding = 0, 0
		return n
	}
	answers := func(n int) {
		for range n {
			q.answered(&roundTrip{}, ms)
		}
	}
	require.Equal(t, many, places())
	answers(slow)
	require.Equal(t, many+1, places())
	answers(slow * many)
	require.Equal(t, many+2, places(), "its connections")
	q.lost()
	require.Equal(t, many+1, places())
	for range many {
		q.lost()
	}
	require.Equal(t, many, places(), "an outage leaves some")
}

// TestOneStallCountsOnce: the replies that a stall has held back together do not hide how
// long the link takes else. A link that has grown longer is known after four round trips.
func TestOneStallCountsOnce(t *testing.T) {
	const ms = time.Millisecond
	l := &link{Trips: &client.Trips{}}
	for i := range 4 {
		at := time.Duration(i) * ms
		l.Add(at, at+ms)
	}
	for i := range 10 {
		l.Add(5*ms+time.Duration(i), 95*ms)
	}
	require.Equal(t, ms, l.time())
	for i := range 4 {
		at := time.Duration(i+1) * 100 * ms
		l.Add(at, at+50*ms)
	}
	require.Equal(t, 50*ms, l.time())
	l.Add(450*ms, 480*ms)
	require.Equal(t, 30*ms, l.time(), "the shortest of those that were under way together")
}
