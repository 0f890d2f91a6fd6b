package flight

import "time"

// out is how many flights to a server may be out at once: few calls wait for
// one that lands while the server is not crowded (bench: latency/paced).
const out = 8

// afar is how many may be out where the server is farther than near: a call that
// finds no place there waits for a good part of a long round trip, and so many
// in that time cost little. Of calls that come by chance, four or five on their
// way at a time, one in 11 finds eight out, and one in 58 ten (bench:
// latency/poisson-1ms/30). Ten are half of the connections that a client of two
// cores may have, by go-redis' default.
const afar = 10

// crowd is how many may be out where flights carry more than a few calls and
// follow each other quickly: each costs both sides what dozens of calls of one
// key do. With one out the server waits for the client (a third less on 100,000
// keys), with two it does now and then.
const crowd = 3

// Flights are a crowd from more than many calls each, or from more than several
// where the server is no farther than near: over longer links there are too few
// round trips for it to matter what they cost, and a call that waits for one of
// fewer waits for longer (bench: latency/poisson-1ms/60, p50 1.13 of
// redis_rate's without this, 1.04 with it).
const (
	several = 2
	many    = 16
	near    = 900 * time.Microsecond
)

// pair is how many of a crowd may be out where a flight carries more than alike
// calls of each of its groups, to a server no farther than beside. Each of those
// calls costs the server a fraction of what it costs the client: the client is
// the bound, and fewer flights that carry more cost it less. On an Intel Xeon
// with two cores two make 4 to 9 % more decisions of 512 callers on one key than
// three, about a tenth more of 32, 64 and 128; one no more than two. Over a link
// the round trip is the bound: where that takes 0.3 ms two make a tenth fewer of
// 64 and 128 callers.
const (
	pair   = 2
	alike  = 4
	beside = 200 * time.Microsecond
)

// No more than a pair is out where even the shortest round trip of late took
// longer than its link and what it carried can explain, as three of them
// queueing behind each other: others keep the server busy, or the cores beside
// it. Then fewer flights that carry more serve all. Of 16 processes with 8
// callers each, on two cores with their server, 38,000 decisions a second became
// 107,000 of one key and 36,000 became 74,000 of 100,000 keys; of 8 with 16
// callers 119,000 and 78,000 became 218,000 and 111,000. With one out they were up
// to two fifths more, but all would wait for one that hangs.
const (
	slack  = 200 * time.Microsecond
	aGroup = 50 * time.Microsecond
)

// all is out where every call is a flight of its own.
const all = 1 << 30

// few groups a flight may always carry: fewer even ones cost more than they
// bring.
const few = 8

// crowded is how many flights may be out now, and how many groups each may
// carry: in a crowd as many as waited when one landed, of late. Redis answers
// all whom it found at its door at once, so flights of a crowd land together,
// and without that those who were aboard leave together too: of 512 callers on
// Zipf's keys one flight carried 20 calls and the next 220, and by turns server
// and client waited for each other.
func (q *Queue) crowded() (out int32, share int) {
	t := &q.mu.trips
	share = min(max(few, t.waiting/smooth), keys)
	switch load, link := t.load, t.link; {
	case q.most == all:
		return q.most, keys
	case link <= near && t.least > link+slack+time.Duration(t.groups/smooth)*aGroup:
		return min(pair, q.most), share
	case load <= many*smooth && link > near:
		return q.afar, keys
	case load <= several*smooth:
		return q.most, keys
	case load > alike*t.groups && link <= beside:
		return min(pair, q.most), share
	}
	return min(crowd, q.most), share
}

// trips is what is known of a server's last round trips.
type trips struct {
	load    int           // calls a flight, of the last dozen or so, times smooth
	groups  int           // and its groups, likewise
	waiting int           // and the groups that waited when it landed, likewise
	least   time.Duration // the shortest of late
	link    time.Duration // the shortest since then: how long one takes that nobody is in the way of
	since   time.Duration
}

const (
	smooth = 8 // how many flights weigh in the means of their calls and groups
	// A server that moves away is known to be far after this. A busy one shows
	// its link much sooner: in each second some trips find nobody in their way.
	while = 10 * time.Second
)

// note notes a round trip that carried so many calls in so many groups, at
// whose end so many groups waited, and that took so long.
func (t *trips) note(now time.Duration, calls, groups, waiting int, took time.Duration) {
	t.load += calls - t.load/smooth
	t.groups += groups - t.groups/smooth
	t.waiting += waiting - t.waiting/smooth
	t.least = min(took, t.least+t.least/smooth+time.Microsecond)
	if t.link == 0 || now-t.since > while {
		t.since, t.link = now, took
	}
	t.link = min(t.link, took)
}
