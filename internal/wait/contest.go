package wait

import (
	"time"

	"github.com/headgate-go/headgate/backend"
)

// contest is what a queue remembers of the queues of other processes on the same key.
// They have no common order. The store answers all heads with one instant, all wake at
// it, one takes the units. The takes of the others are denied: they lost the race.
//
// So a queue takes for several waiters at once; see burst.go. A queue that has lost a
// race also wakes a little later than the store answered. The delay is shorter the
// longer its head has waited, so the head that has waited longest takes first. A queue
// that loses maxLost races in a row, because other queues wait for fewer units, takes
// the units that are free.
type contest struct {
	lost       int           // races lost in a row
	rivals     int           // takes for which the queue still expects other processes to wait
	lostBefore bool          // any race was lost
	asAnswered bool          // the head has slept until the instant that the store answered
	lastWait   time.Duration // of the last head that passed
	free       int64         // calls that the last take left units for
}

// fresh is a contest without history. It expects other processes for two takes. Without
// that, one of several queues that start at the same time would win for long. It would
// get no denial, and the others would give way to it.
var fresh = contest{rivals: 2}

const (
	maxLost   = 8 // twice as many as a queue loses to four others in turn
	maxRivals = 8
)

// calls returns for how many waiters the head may take.
func (c *contest) calls(burst int64) int64 { return max(burst, c.free) }

// won notes a take that passed, after a wait of the head, and left units for free calls.
func (c *contest) won(free int64, waited time.Duration) {
	c.lastWait = waited
	if c.asAnswered && c.rivals > 0 {
		c.rivals--
	}
	if c.lost >= maxLost {
		c.lost = maxLost - 1 // so the next lost race is one too many again
	} else {
		c.lost = 0
	}
	c.asAnswered, c.free = false, free
}

// denied notes a take that was denied. If the store had answered that its units would be
// free by then, a race was lost.
func (c *contest) denied() {
	if c.asAnswered {
		c.lost++
		c.lostBefore = true
		c.rivals = maxRivals
	}
	c.asAnswered, c.free = false, 0
}

// delay returns how much later than the store answered a queue wakes, up to longest. Its
// next take is for so many calls, and its head has waited for so long.
func (c *contest) delay(calls int64, longest, burst, waited time.Duration) time.Duration {
	//mutant:alone-on-time
	if c.rivals == 0 || c.lost >= maxLost || calls == 1 && !c.lostBefore {
		return 0
	}
	if usual := max(c.lastWait*5/4, 4*burst); waited < usual {
		return time.Duration(float64(longest) * (1 - float64(waited)/float64(usual)))
	}
	return 0
}

// maxDelay returns the longest delay of a head. A bucket goes on filling meanwhile. A
// window loses the units that are not taken in time, so its delay is at most a hundredth
// of its period.
func (c *Call) maxDelay(b burst) time.Duration {
	longest := min(b.length, maxBurst) / 2
	for _, p := range backend.Enforced(c.Policies) {
		if !p.Algorithm.Kind().Rates() {
			longest = min(longest, p.Algorithm.Limit().Period/100)
		}
	}
	return longest
}
