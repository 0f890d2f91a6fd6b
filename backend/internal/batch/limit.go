package batch

import "time"

// The number of batches in flight to one server.
//
// While batches carry few calls, many may be in flight, so that a call seldom
// waits for a place. Once they carry more, a near server is kept busy by three:
// each costs both sides what dozens of calls of one key cost. Two are enough
// where the server is the bottleneck, or the client.
const (
	relaxed = 8
	crowd   = 3
	pair    = 2
	far     = 32
)

// few is how many calls a batch carries on average at most while batches are
// not a crowd.
const few = 2

// near is the longest round trip of a near server. Over a longer link the round
// trip is the bottleneck: batches cost little there, and places a lot.
const near = 900 * time.Microsecond

// The server is taken for the bottleneck where even the shortest recent round
// trip took longer than the link and three batches one after the other explain.
const (
	slack    = 200 * time.Microsecond
	perGroup = 50 * time.Microsecond
)

// The client is the bottleneck where a batch carries more than alike calls per
// group, to a server no farther than beside.
const (
	alike  = 4
	beside = 200 * time.Microsecond
)

// limit is how many batches may be in flight now, of a client with so many
// connections.
func (t *trips) limit(poolSize int) int {
	switch {
	case t.link > near:
		return min(far, max(poolSize/2, relaxed))
	case t.least > t.link+slack+time.Duration(t.groups/smooth)*perGroup:
		return pair
	case t.load <= few*smooth:
		return relaxed
	case t.load > alike*t.groups && t.link <= beside:
		return pair
	}
	return crowd
}

// trips is what is known of the recent round trips, from the instant when a
// command was written to its reply.
type trips struct {
	load   int           // calls per batch, a moving average, times smooth
	groups int           // groups per batch, likewise
	mean   time.Duration // a moving average
	least  time.Duration // the shortest recent one
	link   time.Duration // the shortest since then: the time of one that nothing delays
	since  time.Duration
	heard  time.Duration // when the last one ended, as wire.Now
}

const (
	smooth = 8 // how many batches weigh in a moving average
	// A server that moves away is taken for far after this. A busy one shows its
	// link sooner: in each second some round trips meet no others.
	remembered = 10 * time.Second
)

// note notes a round trip that carried so many calls in so many groups and took
// so long.
func (t *trips) note(now time.Duration, calls, groups int, took time.Duration) {
	t.load += calls - t.load/smooth
	t.groups += groups - t.groups/smooth
	if t.mean == 0 {
		t.mean = took
	}
	t.mean += (took - t.mean) / smooth
	t.least = min(took, t.least+t.least/smooth+time.Microsecond)
	if t.link == 0 || now-t.since > remembered {
		t.since, t.link, t.least = now, took, max(t.least, took)
	}
	t.link, t.heard = min(t.link, took), now
}

// A batch is overdue after ten round trips, and no sooner than this: a busy
// machine delays a goroutine for longer than a round trip takes.
const soonest = 2 * time.Millisecond

// overdue is how long a batch keeps its place.
func (t *trips) overdue(budget time.Duration) time.Duration {
	if t.mean == 0 {
		return budget / 2
	}
	return max(10*t.mean, soonest)
}

// stale reports whether no recent round trip tells how long one takes.
func (t *trips) stale(now time.Duration) bool {
	return t.mean == 0 || now-t.heard > max(10*t.mean, soonest)
}
