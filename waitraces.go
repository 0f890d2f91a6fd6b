package headgate

import (
	"time"

	"github.com/headgate-go/headgate/algo"
)

// contest is what a queue remembers of the other processes that wait for the same key.
// Their queues have no order among each other: all wake when the store said that there
// is room, one takes it, and the others have asked for nothing.
//
// So a queue takes for several waiters at once: see waitburst.go. And once a queue has
// lost a race it wakes a little later than told, the less so the longer its head has
// waited: the oldest head asks first. A queue that keeps losing, since others wait for
// less, takes what there is.
type contest struct {
	lost   int           // races that were lost in a row
	rivals int           // takes until the queue takes itself for alone
	beaten bool          // it has lost a race ever
	told   bool          // the head has slept for as long as the store said
	usual  time.Duration // how long the last head had waited that passed
	room   int64         // waiters for which the last take has left room
}

// begun is a contest of which nothing is known. The queue takes itself for alone only
// after two takes, or of several that begin at once one would win for long: it gets no
// denial, and the others give way to it.
var begun = contest{rivals: 2}

const (
	maxLost   = 8 // twice as many as a queue loses to four others in turn
	maxRivals = 8
)

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
