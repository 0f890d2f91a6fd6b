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

// clientDeadline returns when the client has to return from the round trip. It is
// a little sooner, so that calls get the client's error, which has the reason: a
// client that can't connect tries again until then.
func clientDeadline(deadline, budget time.Duration) time.Duration {
	return deadline - min(budget/40, reserve/2)
}
