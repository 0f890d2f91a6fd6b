package batch

import "time"

// epoch is what now counts from.
var epoch = time.Now()

// now is the time on the monotonic clock: reading that one alone costs half of
// what time.Now does.
func now() time.Duration { return time.Since(epoch) }

// reserve is the part of a budget, at most a twentieth, that is kept for the
// answer itself: a caller that gets it at the end of the budget is late.
const reserve = 5 * time.Millisecond

// Deadline returns when a round trip has to be over whose first call began then.
func Deadline(begin, budget time.Duration) time.Duration {
	return begin + budget - min(budget/20, reserve)
}

// late reports whether the call has less time left than two round trips take, once
// half of its time has passed. So where calls come faster than they can be
// answered, the ones that go have most of their time left, and a busy client does
// not work for answers that come late.
func (c *call) late(now, mean time.Duration) bool {
	return c.deadline-now <= min(2*mean, (c.deadline-c.came)/2)
}
