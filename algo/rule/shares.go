package rule

import "time"

// Share returns the algorithm with its numbers times num / den, rounded down
// so that shares never sum to more than the whole. A share below one unit is
// an Algorithm that Check refuses and that grants nothing.
func (a Algorithm) Share(num, den int64) Algorithm {
	l, k := a.limit, int64(1)
	//mutant:share-of-a-rate
	if a.rule().rate && l.Period > 0 { // over a longer period, or the share is rounded down
		k = max(1, min(den/max(num, 1), int64(MaxPeriod/l.Period)))
	}
	l.Events, l.Period = mulDiv(l.Events, num*k, den), l.Period*time.Duration(k)
	return a.with(l, mulDiv(a.max, num, den))
}

// Part returns the i-th of k parts of the algorithm, i from 0. The parts' limits
// and bursts sum exactly to the whole one's, also where k does not divide it.
// Each is floor or ceil of limit / k, the first the least. A TokenBucket's
// rate is exactly rate / k. A part that can't be kept, below one unit or with
// a rate of too long a period, is an Algorithm that Check refuses.
func (a Algorithm) Part(i, k int64) Algorithm {
	l := Limit{Events: part(a.limit.Events, i, k), Period: a.limit.Period}
	if a.rule().rate {
		l = a.limit.slowed(k)
	}
	return a.with(l, part(a.max, i, k))
}

// part returns floor(n * (i+1) / k) - floor(n * i / k).
//
//mutant:shares-sum-to-limit
func part(n, i, k int64) int64 { return mulDiv(n, i+1, k) - mulDiv(n, i, k) }

// slowed returns the limit's rate divided by k, without rounding. It is as many
// events in k times the period, or where that is too long the same fraction
// reduced.
func (l Limit) slowed(k int64) Limit {
	if l.Period <= MaxPeriod/time.Duration(k) || l.Events < 1 {
		return Limit{l.Events, l.Period * time.Duration(k)}
	}
	us := l.Period.Microseconds() * k // below 2^53 where the period and k are in range
	g := gcd(l.Events, us)
	shortest := Limit{l.Events / g, time.Duration(min(us/g, MaxPeriod.Microseconds()+1)) * time.Microsecond}
	if m := ceilDiv(MinPeriod.Microseconds(), max(us/g, 1)); m > 1 {
		return Limit{shortest.Events * m, shortest.Period * time.Duration(m)}
	}
	return shortest
}
