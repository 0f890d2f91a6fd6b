package headgate

import (
	"time"

	"github.com/headgate-go/headgate/algo"
)

// contest is what a queue remembers of the other processes that wait for the same key.
// Their queues have no order among each other: all wake when the store said that there
// is room, one takes it, and the others have asked for nothing.
//
// So a queue takes for several waiters at once, and waits until there is room for all
// of them: as many as come free within maxRound, and at most half of what the policies
// can grant, so that nothing overflows meanwhile. And once a queue has lost a race it
// wakes a little later than told, the less so the longer its head has waited: the
// oldest head asks first. A queue that keeps losing, since others wait for less, takes
// what there is.
type contest struct {
	lost   int           // races that were lost in a row
	rivals int           // takes until the queue takes itself for alone
	beaten bool          // it has lost a race ever
	told   bool          // the head has slept for as long as the store said
	usual  time.Duration // how long the last head had waited that passed
	room   int64         // waiters for which the last take has left room
}

// begun is a contest of which nothing is known. The queue takes itself for alone only
// after two takes, or of several that begin at once one would win for long: it meets no
// denial, and the others give way to it.
var begun = contest{rivals: 2}

const (
	maxRound   = 100 * time.Millisecond
	maxLost    = 8 // twice as many as a queue loses to four others in turn
	maxRivals  = 8
	shareOfMax = 2 // a take is at most this part of what a policy can grant
)

// round returns how many calls as the waiter's one take may be for, and in which time
// so much comes free.
func (w *waiter) round() (calls int64, d time.Duration) {
	if w.reserves {
		return 1, maxRound
	}
	calls = 1 << 30
	for i := range w.limiter.policies {
		p := &w.limiter.policies[i]
		if p.Shadow {
			continue
		}
		if cost := w.cost(i); cost > 0 {
			calls = min(calls, p.Algorithm.Max()/int64(max(p.Shards, 1))/shareOfMax/cost, int64(maxRound/w.each(i)))
		}
		d = max(d, w.each(i))
	}
	calls = max(calls, 1)
	return calls, d * time.Duration(calls)
}

// most returns the maximum number of calls for one take that begins with this waiter's.
// The room that is remembered may be of calls that cost less, of a limiter with a higher
// limit, or of all sub-keys. A shadow would deny the take as a whole, so a list with
// shadows makes a take per call.
func (w *waiter) most() int64 {
	if w.limiter.shadows != nil { // mutant: shadow-of-each-waiter
		return 1
	}
	most := int64(1 << 30)
	for i := range w.limiter.policies {
		p := &w.limiter.policies[i]
		if cost := w.cost(i); cost > 0 {
			most = min(most, p.Algorithm.Max()/int64(max(p.Shards, 1))/cost) // mutant: wait-take-fits
		}
	}
	return max(most, 1)
}

// each returns in which time the i-th policy's units for one call come free.
func (w *waiter) each(i int) time.Duration {
	l := w.limiter.policies[i].Algorithm.Limit()
	each := float64(w.cost(i)) * float64(l.Period) / float64(max(l.Events, 1))
	return max(1, time.Duration(min(each, float64(maxWait))))
}

// maxWait is the longest time that a head sleeps.
const maxWait = 400 * 24 * time.Hour

// calls returns for how many waiters the head may take.
func (c *contest) calls(round int64) int64 {
	return max(round, c.room)
}

// won notes a take that passed and left room for as many calls.
func (c *contest) won(room int64, age time.Duration) {
	c.usual = age
	if c.told && c.rivals > 0 {
		c.rivals--
	}
	if c.lost >= maxLost {
		c.lost = maxLost - 1 // the next race that is lost is one too many again
	} else {
		c.lost = 0
	}
	c.told, c.room = false, room
}

// denied notes a denial. It is a lost race where the store had said that there would be
// room.
func (c *contest) denied() {
	if c.told {
		c.lost++
		c.beaten = true
		c.rivals = maxRivals
	}
	c.told, c.room = false, 0
}

// late returns how much later than told a queue wakes that asks for so many calls and
// whose head is so old. spread is how late it wakes at most.
func (c *contest) late(calls int64, spread, round, age time.Duration) time.Duration {
	if c.rivals == 0 || c.lost >= maxLost || calls == 1 && !c.beaten { // mutant: alone-on-time
		return 0
	}
	if usual := max(c.usual*5/4, 4*round); age < usual {
		return time.Duration(float64(spread) * (1 - float64(age)/float64(usual)))
	}
	return 0
}

// spread returns how late a head may wake. A bucket goes on filling meanwhile. A window
// loses what it does not pass in time, so it gets a hundredth of its period.
func (w *waiter) spread(round time.Duration) time.Duration {
	spread := min(round, maxRound) / 2
	for i := range w.limiter.policies {
		if a := &w.limiter.policies[i].Algorithm; a.Kind() != algo.KindTokenBucket && !w.limiter.policies[i].Shadow {
			spread = min(spread, a.Limit().Period/100)
		}
	}
	return spread
}
