package batch

import "time"

// The bounds of a batch: what one round trip may cost the server while all
// others wait for it.
const (
	maxGroups   = 128
	maxPolicies = 256  // of all groups
	maxCalls    = 1024 // of all groups
)

// maxCallers is the maximum number of calls that wait for one server; more are
// refused at once. A variable for the tests.
var maxCallers int64 = 1 << 16

// How many batches may be in flight to one server.
//
// Many while they carry two calls or fewer and come back nearly as soon as the
// link allows. Few once they carry more or take longer: then the server is busy,
// and each batch costs both sides what dozens of calls cost. Most over a long link,
// where the round trip is the bottleneck.
const (
	many = 8
	few  = 2
	far  = 32

	lone  = 2                      // calls per batch
	long  = 900 * time.Microsecond // a round trip over a long link, at least
	slack = 300 * time.Microsecond // what a busy client and two keys add to a round trip

	smooth = 8 // how many batches weigh in a moving average
	// A server that moves away is taken for far after this. A busy one shows its
	// link sooner: in each second some round trips meet no others.
	remembered = 10 * time.Second
)

// No more are in flight than the client may have connections. There is one more per this
// many answers, and one fewer per round trip that failed. So only a part of a process's
// work goes into new connections. Each costs as much as dozens of calls. If all were
// made at once, they would be made too late for the calls that wait for them.
const slow = 4

// limit returns the number.
func (t *recent) limit() int {
	switch {
	case t.link > long:
		return far
	case t.calls > lone*smooth, t.mean > t.link+slack:
		return few
	}
	return many
}

// recent is what is known of the recent round trips, from the instant when a
// command was written to its reply.
type recent struct {
	calls int           // per batch, a moving average, times smooth
	mean  time.Duration // a moving average of those that none of the others overlaps
	last  time.Duration // the last of them
	ended time.Duration // when it did, as now
	link  time.Duration // the shortest since then: the time of one that nothing delays
	since time.Duration // as now
}

// add adds a round trip that carried so many calls, took so long, and has just
// ended.
//
// All round trips that meet one stall end with it, so they are one slow one among those
// that don't overlap. The mean takes the lesser of two in a row: a stall leaves no trace
// in it, and a server that is slow does.
func (t *recent) add(now time.Duration, calls int, took time.Duration) {
	if t.mean == 0 {
		t.mean, t.last = took, took
	}
	if t.link == 0 || now-t.since > remembered {
		t.since, t.link = now, took
	}
	t.calls += calls - t.calls/smooth
	//mutant:stall-counts-once
	if now-took >= t.ended {
		//mutant:stall-leaves-no-trace
		t.mean += (min(took, t.last) - t.mean) / smooth
		t.last, t.ended = took, now
	}
	t.link = min(t.link, took)
}

// A batch is overdue after ten round trips, and no sooner than this. A busy
// machine delays a goroutine for longer than a round trip takes.
const soonest = 2 * time.Millisecond

// overdue returns how long a batch keeps its place.
func (t *recent) overdue(budget time.Duration) time.Duration {
	if t.mean == 0 {
		return budget / 2
	}
	return max(10*t.mean, soonest)
}
