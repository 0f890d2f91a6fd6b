package batch

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/backend/internal/client"
)

// now is the time on the monotonic clock.
func now() time.Duration { return client.Now() }

// reserve is the part of a budget, at most a twentieth, that is kept for the
// answer itself. A caller that gets it at the end of the budget is late.
const reserve = 5 * time.Millisecond

// Deadline returns when a round trip has to be over whose first call began then.
func Deadline(begin, budget time.Duration) time.Duration {
	return begin + budget - min(budget/20, reserve)
}

// late reports whether the call has less time left than two round trips take, once
// half of its time has passed. So where calls come faster than they can be
// answered, the ones that go have most of their time left. A busy client does
// not work for answers that come late.
func (c *call) late(now, mean time.Duration) bool {
	return c.deadline-now <= min(2*mean, (c.deadline-c.came)/2)
}

// short reports whether the caller's context ends before a reply can come. If the budget
// does, see Server.tooFar.
func (c *call) short(now, trip, budget time.Duration) bool {
	return c.deadline-now < trip && c.deadline < Deadline(c.came, budget)
}

// ownTime is the context of commands that may begin a connection. Until a command is
// written they have the client's dial timeout, and no caller waits for that long. Then
// its reply has a deadline, which is looked up when the client begins to read.
type ownTime struct {
	context.Context
	reply func() (by time.Duration, written bool)
}

// withOwnTime returns the context of commands that are sent by the client, for the
// budget at least.
func withOwnTime(of Client, budget time.Duration, reply func() (by time.Duration, written bool)) (ctx context.Context, cancel func()) {
	ctx, cancel = context.WithTimeout(context.Background(), max(client.DialTimeout(of), budget))
	return ownTime{ctx, reply}, cancel
}

// Deadline is read by go-redis before it writes, and again before it reads.
func (o ownTime) Deadline() (time.Time, bool) {
	if by, written := o.reply(); written {
		return client.Epoch.Add(by), true
	}
	return o.Context.Deadline()
}

// lateReplies is for how long a reply is read that is late for its callers; a budget if that
// is longer. To close its connection and begin another one costs more than to wait.
const lateReplies = time.Second

// replyBy returns the deadline of the reply. One that is late for the callers is still
// read. So its connection is not lost and the link's time is known. That may not keep
// other calls waiting for a connection.
func (t *roundTrip) replyBy() (by time.Duration, written bool) {
	t.mu.Lock()
	at := t.mu.visit.at
	written, by = t.mu.wrote > 0, t.mu.ends
	t.mu.Unlock()
	//mutant:late-replies-read
	if written && at != nil && client.HalfFree(at.client) {
		by += max(at.Budget, lateReplies)
	}
	return by, written
}

// claim reports whether the caller is the first to end the round trip, and thus the one
// that answers its calls and leaves the server. The timer claims it at the deadline;
// where it rings before, it is set to that.
func (t *roundTrip) claim(rings bool) (v visit, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := now(); rings && !t.mu.over && t.prolonged(at) > at {
		t.mu.rings = t.mu.ends
		t.mu.timer.Reset(t.mu.ends - at)
		return visit{}, false
	}
	t.mu.timer.Stop()
	v, first = t.mu.visit, !t.mu.over
	t.mu.visit.leave, t.mu.over = nil, true
	return v, first
}

// hold notes why the round trip is not sent yet.
func (t *roundTrip) hold(why error) { t.held.Store(&why) }

// prolonged returns the deadline. Where that has come, it is one budget later if this process was
// late by itself. A timer that rings late shows that: meanwhile nothing could be sent, and no
// reply be read. A server that has answered others since has answered this one, too, and its
// reply is lost. prolonged is called under mu.
func (t *roundTrip) prolonged(at time.Duration) time.Duration {
	s, since := t.queue.server, t.began
	if t.mu.wrote > 0 {
		since = t.mu.written
	}
	t.mu.late = t.mu.late || at-t.mu.rings > max(busy, s.Budget/20)
	//mutant:own-lateness-is-no-time
	if last := Deadline(t.first, s.Budget); t.mu.late && at >= t.mu.ends && t.mu.ends == last && !s.answered(since) {
		t.mu.ends = last + s.Budget
	}
	return t.mu.ends
}

// ends returns the deadline.
func (t *roundTrip) ends() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.ends
}

// spent is why a round trip ended at its deadline. A caller whose own context ended has that
// error.
func (t *roundTrip) spent() error {
	if held := t.held.Load(); held != nil {
		return *held
	}
	return fmt.Errorf("%s: no answer within %v", t.queue.server.Node, t.queue.server.Budget)
}

// ring runs when the round trip is overdue, and at its deadline. Either way its place is
// free: its reply may be lost, and other calls must not wait for it.
func (t *roundTrip) ring() {
	v, first := t.claim(true)
	if first {
		t.queue.missed()
		t.abandon(v, t.spent())
	} else {
		t.overdue()
	}
	if t.queue.yield(t, first) {
		t.queue.run()
	}
}
