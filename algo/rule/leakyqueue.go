package rule

import (
	"fmt"
	"time"
)

// KindLeakyQueue is LeakyQueue's number.
const KindLeakyQueue Kind = 9

// LeakyQueue is documented in package algo.
//
// A call passes if the level, as it will be at now + maxDelay, has room within burst.
func LeakyQueue(rate Limit, burst int64, maxDelay time.Duration) Algorithm {
	own := maxDelay.Microseconds()
	if maxDelay%time.Microsecond != 0 {
		own = -1
	}
	return leakyQueue.make(rate, burst, own)
}

// The words are TokenBucket's. A View's Used is what will count after the longest delay. It is
// below 0 while all of the burst would pass without the longest delay.

var leakyQueue = rule{
	kind: KindLeakyQueue, name: "LeakyQueue", storage: StoredWords, mark: "Q", words: 2, beside: 1, most: MaxLimit, rate: true, queues: true,

	derive: queueDerive,
	check:  queueCheck,
	own: func(a *Algorithm) string {
		return fmt.Sprintf("burst %d, delay %v", a.max, time.Duration(a.own)*time.Microsecond)
	},
	random: func(r *rule, l Limit, pick func(least, most int64) int64) Algorithm {
		unit := func(n int64) int64 { return mulDiv(n, l.Period.Microseconds(), max(l.Events, 1)) }
		own := min(max(unit(pick(1, MaxLimit)), MinPeriod.Microseconds()), unit(MaxLimit), MaxPeriod.Microseconds())
		return r.make(l, pick(1, MaxLimit), own)
	},
	widest:  func(r *rule, _ Identity) Algorithm { return r.make(Limit{1, MaxPeriod}, 1, MinPeriod.Microseconds()) },
	numbers: func(a *Algorithm, _ int64) (period, x, y, fill int64) { return a.own, a.a, a.b, a.fill },
	worst: func(a *Algorithm, t int64) int64 {
		return a.max + min(mulDiv(t+a.own, a.limit.Events, a.period), 1<<62)
	},

	roll:    queueRoll,
	charge:  tokenBucket.charge,
	reserve: tokenReserve,
	refund:  queueGiveBack,
	retryAt: func(a *Algorithm, _ []int64, v View, n int64) int64 {
		return v.y + a.leaks(v.x-(a.max-n)*fraction-a.waits())
	},
	resetAt: tokenBucket.resetAt,
	shown:   func(w words) int64 { return (w.z + fraction - 1) >> fractionBits },
	delay: func(a *Algorithm, w words, at int64) int64 {
		// By x and y: z is rounded, and the next call would have less than its distance to this one.
		//mutant:delay-rounds-once
		return max(0, w.y+a.leaks(max(0, w.x-a.max*fraction))-at)
	},
}

// waits returns how many fractions wait at most: what leaks in the longest delay.
func (a *Algorithm) waits() int64 { return mulDiv(a.own, a.a, a.b) }

func queueDerive(a *Algorithm) {
	tokenDerive(a)
	if own := a.own; own > 0 {
		a.fill = a.leaks(a.max*fraction + min(a.waits(), MaxLimit*fraction))
	}
}

func queueCheck(a *Algorithm) error {
	if err := tokenBucket.check(a); err != nil {
		return err
	}
	delay, most := time.Duration(a.own)*time.Microsecond, min(MaxPeriod, time.Duration(mulDiv(MaxLimit, int64(a.limit.Period), a.limit.Events)))
	if delay < MinPeriod || delay > most {
		return &InvalidError{What: "max delay", Value: delay, Want: fmt.Sprintf("%v to %v in whole microseconds", MinPeriod, most)}
	}
	return nil
}

func queueRoll(a *Algorithm, w words, now int64) (used, at int64, rolled words) {
	_, at, rolled = tokenRoll(a, w, now)
	return (rolled.z - a.waits() + fraction - 1) >> fractionBits, at, rolled
}

// queueGiveBack gives back what nothing was charged behind.
func queueGiveBack(a *Algorithm, w []int64, v View, c Charge, n int64) []int64 {
	//mutant:queue-gives-back-last
	if w[total] != c.Total {
		return w
	}
	return tokenGiveBack(a, w, v, c, n)
}
