package advise

import (
	"math"
	"math/bits"
)

// decide decides the calls of one key by a limit. It returns how many are denied, and the most
// units that counted at once. If none is denied, that is the smallest limit that denies none: up to
// the first denial the limit changes nothing.
//
// The functions that return one are the rules of package algo for a key whose clock does not step
// back. A denied call is not charged. A decide reuses its memory, so it has one goroutine.
type decide func(list []call, limit int64) (denied, peak int64)

// fixedWindow is algo.FixedWindow.
func fixedWindow(period int64) decide {
	return func(list []call, limit int64) (denied, peak int64) {
		end, used := int64(0), int64(0)
		for _, c := range list {
			if c.at >= end {
				end, used = c.at-c.at%period+period, 0
			}
			if c.cost > limit-used {
				denied++
				continue
			}
			used += c.cost
			peak = max(peak, used)
		}
		return denied, peak
	}
}

// slidingWindow is algo.SlidingWindow.
func slidingWindow(period int64) decide {
	return func(list []call, limit int64) (denied, peak int64) {
		end, before, now := int64(0), int64(0), int64(0)
		for _, c := range list {
			if c.at >= end {
				if before = now; c.at >= end+period {
					before = 0
				}
				end, now = c.at-c.at%period+period, 0
			}
			used := now
			if before > 0 {
				used += mulDiv(before, end-c.at, period)
			}
			if c.cost > limit-used {
				denied++
				continue
			}
			now += c.cost
			peak = max(peak, used+c.cost)
		}
		return denied, peak
	}
}

// slidingLog is algo.SlidingLog, and algo.CompactLog, which decides alike.
func slidingLog(period int64) decide {
	var log []call
	return func(list []call, limit int64) (denied, peak int64) {
		log = log[:0]
		first, used := 0, int64(0)
		for _, c := range list {
			for first < len(log) && log[first].at <= c.at-period {
				used -= log[first].cost
				first++
			}
			if c.cost > limit-used {
				denied++
				continue
			}
			log = append(log, c)
			used += c.cost
			peak = max(peak, used)
		}
		return denied, peak
	}
}

// fractionBits is what package algo splits a unit of a TokenBucket into.
const fractionBits = 15

// tokenBucket is algo.TokenBucket of a rate; the limit is its burst.
func tokenBucket(rate, period int64) decide {
	perMicro, micros := rate<<fractionBits, period
	return func(list []call, limit int64) (denied, peak int64) {
		level, since := int64(0), int64(0)
		for _, c := range list {
			left := max(0, level-mulDiv(c.at-since, perMicro, micros))
			used := (left + 1<<fractionBits - 1) >> fractionBits
			if c.cost > limit-used {
				denied++
				continue
			}
			level, since = left+c.cost<<fractionBits, c.at
			peak = max(peak, used+c.cost)
		}
		return denied, peak
	}
}

// mulDiv returns floor(a*b/c), at most the greatest int64. None is negative, and c is not 0.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi == 0 {
		return int64(min(lo/uint64(c), math.MaxInt64))
	}
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}
