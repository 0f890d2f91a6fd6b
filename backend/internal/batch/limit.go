package batch

import "time"

// How many batches may be in flight to one server.
//
// Many while they carry two calls or fewer, so that a call seldom waits for a
// place. Few once they carry more, or once round trips take longer than the link
// and their keys explain: then the server is busy, and each batch costs both
// sides what dozens of calls cost. Over a long link the round trip is the
// bottleneck, and up to half of the connections are used.
const (
	many = 8
	few  = 2
	far  = 32
)

const (
	lone     = 2                      // calls per batch
	long     = 900 * time.Microsecond // a round trip over a long link, at least
	slack    = 200 * time.Microsecond // what a busy client adds to a round trip
	perGroup = 50 * time.Microsecond  // what a key adds at most
)

// limit returns the number, for a client with so many connections.
func (t *recent) limit(poolSize int) int {
	switch {
	case t.link > long:
		return min(far, max(poolSize/2, many))
	case t.calls > lone*smooth, t.mean > t.link+slack+time.Duration(t.groups/smooth)*perGroup:
		return few
	}
	return many
}

// recent is what is known of the recent round trips, from the instant when a
// command was written to its reply.
type recent struct {
	calls  int           // per batch, a moving average, times smooth
	groups int           // per batch, likewise
	mean   time.Duration // a moving average
	link   time.Duration // the shortest since then: the time of one that nothing delays
	since  time.Duration // as now
	last   time.Duration // when the last one ended, as now
}

const (
	smooth = 8 // how many batches weigh in a moving average
	// A server that moves away is taken for far after this. A busy one shows its
	// link sooner: in each second some round trips meet no others.
	remembered = 10 * time.Second
)

// add adds a round trip that carried so many calls in so many groups, took so
// long, and has just ended.
func (t *recent) add(now time.Duration, calls, groups int, took time.Duration) {
	t.calls += calls - t.calls/smooth
	t.groups += groups - t.groups/smooth
	if t.mean == 0 {
		t.mean = took
	}
	t.mean += (took - t.mean) / smooth
	if t.link == 0 || now-t.since > remembered {
		t.since, t.link = now, took
	}
	t.link, t.last = min(t.link, took), now
}

// A batch is overdue after ten round trips, and no sooner than this: a busy
// machine delays a goroutine for longer than a round trip takes.
const soonest = 2 * time.Millisecond

// overdue returns how long a batch keeps its place.
func (t *recent) overdue(budget time.Duration) time.Duration {
	if t.mean == 0 {
		return budget / 2
	}
	return max(10*t.mean, soonest)
}

// stale reports whether no recent round trip tells how long one takes.
func (t *recent) stale(now time.Duration) bool {
	return t.mean == 0 || now-t.last > max(10*t.mean, soonest)
}
