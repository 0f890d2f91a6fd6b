// Package algo has the rate limiting algorithms. A policy has one:
//
//   - [FixedWindow], [SlidingWindow] and [BucketedWindow] count calls per window.
//   - [TokenBucket] lets bursts pass, and a steady rate behind them.
//   - [LeakyQueue] delays calls to a steady rate, and denies what would wait too long.
//   - [SlidingLog] and [CompactLog] keep each call, and are exact.
//   - [Calendar] counts per day, week or month of a time zone.
//   - [InFlight] counts calls that run at once.
//
// [PerSecond], [PerMinute], [PerHour], [PerDay] and [Per] make the [Limit] of most
// algorithms. [Day], [Week] and [Month] make the period of a Calendar.
// docs/algorithms.md compares them.
//
// Each is one rule in whole numbers, with no clock, no lock and no I/O. What stores need
// of the rules stands in package rule.
package algo

import (
	"time"

	"github.com/headgate-go/headgate/algo/rule"
)

// Algorithm is a rule with its numbers. It is a comparable value, safe to
// copy and share. The zero Algorithm is none and refused.
//
// Of its methods users need Check, Worst, WithLimit and String.
type Algorithm = rule.Algorithm

// Limit is a number of units a period. The zero Limit is out of range and
// refused where it is used.
type Limit = rule.Limit

// CivilPeriod is a day, a week or a month of the calendar. It begins at the first
// instant of its first day, which is not midnight where the clocks skip midnight.
// Where they show midnight twice it is the first one. The zero CivilPeriod is
// none and refused.
type CivilPeriod = rule.CivilPeriod

// InvalidError is a value that is out of its range. Nothing was counted.
type InvalidError = rule.InvalidError

// The greatest numbers. A limit or a burst that has no other is at most MaxLimit.
const (
	MaxLimit    = rule.MaxLimit
	MaxLogLimit = rule.MaxLogLimit // of the logs
	MaxCount    = rule.MaxCount    // units of a FixedWindow or a Calendar
	MaxBuckets  = rule.MaxBuckets  // of a BucketedWindow: its cost, in time and in bytes, grows with them
	MaxPeriod   = rule.MaxPeriod
)

// FixedWindow counts in the clock-aligned window floor(now / period) and
// lets a call pass if the count has room. Two windows meet at a boundary, so
// a trailing window can hold twice the limit.
//
// Kept: the window's start and its count.
func FixedWindow(l Limit) Algorithm { return rule.FixedWindow(l) }

// SlidingWindow counts in two clock-aligned buckets and weighs the previous
// one by how much of it the trailing window still covers:
//
//	floor(previous * (period - elapsed) / period) + current
//
// It takes the previous bucket's calls as spread evenly. Traffic made for it
// can pass twice the limit in a trailing window. Over 400 million published
// requests 0.003 % were decided wrongly (Cloudflare, "How we built rate
// limiting capable of scaling to millions of domains", 2017).
//
// Kept: the current bucket's start, the previous count, the current count.
func SlidingWindow(l Limit) Algorithm { return rule.SlidingWindow(l) }

// BucketedWindow counts in b sub-windows of ceil(period / b) each; the
// oldest, partly expired one counts whole. So no trailing window holds more
// than the limit, and what it admits under saturation is at least
// period / ((b+1) * sub-window) of it.
//
// Kept: the newest bucket's start, the sum, and b + 1 counts (b whole
// sub-windows and two partial ones can overlap a period).
func BucketedWindow(l Limit, buckets int64) Algorithm { return rule.BucketedWindow(l, buckets) }

// SlidingLog keeps every admitted call until it is exactly one period old:
// exact, and the dearest, one entry a call. Its limit is at most 1,000,000.
//
// Kept in Redis: a sorted set scored by time. Each member is a call that carries
// the sum of costs so far and its own. So counting is a subtraction and
// the exact RetryAfter a binary search, however costs vary. Kept in memory:
// the same as a ring.
func SlidingLog(l Limit) Algorithm { return rule.SlidingLog(l) }

// CompactLog decides as SlidingLog does, in every field, from packed entries: some
// 8 bytes per call instead of 16 in memory and 100 in Redis. No call takes long,
// also where many entries expire at once. Its limit is at most 1,000,000.
//
// Kept in memory: a ring of entries, each a time and a cost in one word, and the
// sum of each 64 of them. Kept in Redis: a hash of packed blocks; see
// lua/compactlog.lua.
func CompactLog(l Limit) Algorithm { return rule.CompactLog(l) }

// TokenBucket lets burst units pass at once and refills at rate: over any
// time t at most burst + rate*t. It is what people call token bucket, leaky
// bucket as a meter, and GCRA (ITU-T I.371, the virtual scheduling
// algorithm). The three decide alike and the code has one.
//
// Kept: the level, in 2^-15 of a unit, and its instant. A stored arrival
// time, as GCRA is usually written, would change its meaning with the rate.
// A changed rate applies from that instant on, also to the time before the change.
func TokenBucket(rate Limit, burst int64) Algorithm { return rule.TokenBucket(rate, burst) }

// LeakyQueue is the leaky bucket as a queue. Calls go on at rate, burst of them at once. A call
// that has to wait passes if its delay is at most maxDelay. The decision's
// Delay is how long its caller waits before it goes on. Callers that obey it never do more than
// burst + rate*t in any time t. By the instants of decisions it is burst + rate*(t + maxDelay).
//
// maxDelay is 1 ms to 400 days in whole microseconds, and at most 2^36 units wait. A cost is at
// most burst. The limit is burst. Used is the level with all that wait, so it may exceed the
// limit, and Remaining is what would pass without a delay.
//
// Kept is what a TokenBucket keeps, in a count of its own. Calls behind a reservation already
// have their delays. So it gives back only if nothing was charged since. Else the unit is lost.
func LeakyQueue(rate Limit, burst int64, maxDelay time.Duration) Algorithm {
	return rule.LeakyQueue(rate, burst, maxDelay)
}

// Calendar counts in civil periods: the days, weeks or months of a time zone, as
// quotas and bills have them. No period holds more than the limit. Two periods
// meet at a boundary, so a trailing window can hold twice the limit.
//
// A count belongs to the zone's name, so that processes with different time zone
// data share it. The period that one of them has begun stands for all, and the
// next begins no earlier than that one ends. Each offset of time.FixedZone needs a
// name of its own. time.Local is refused, since it is another zone on another host.
//
// The clock is the wall clock, also in a memory store.
//
// Kept: the period's start, its end and its count.
func Calendar(limit int64, every CivilPeriod, zone *time.Location) Algorithm {
	return rule.Calendar(limit, every, zone)
}

// InFlight counts calls that are running now, at most limit. A slot is taken by a
// Reserve, and held until its lease is settled or ends, whichever comes first. So
// the promise is of unexpired leases by the store's clock: a holder that is paused
// runs on beyond its lease. Its limit is at most 1,000,000, its costs are 0 and 1.
//
// RetryAfter is when the slot is free at the latest.
//
// Kept: when each lease ends, and whose it is.
func InFlight(limit int64) Algorithm { return rule.InFlight(limit) }

// PerSecond is n units a second.
func PerSecond(n int64) Limit { return rule.PerSecond(n) }

// PerMinute is n units a minute.
func PerMinute(n int64) Limit { return rule.PerMinute(n) }

// PerHour is n units an hour.
func PerHour(n int64) Limit { return rule.PerHour(n) }

// PerDay is n units in 24 hours.
func PerDay(n int64) Limit { return rule.PerDay(n) }

// Per is n units in every d.
func Per(n int64, d time.Duration) Limit { return rule.Per(n, d) }

// Rate is perSecond units a second, for a rate that is a float at run time, such as 2.5 or
// 1.0/3. The limit is a fraction of whole numbers, units per whole seconds: 5 per 2s, 1 per 3s.
// It differs from the float by less than one part in ten million. A rate above MaxLimit units
// a second or below a unit in MaxPeriod, and one that is no number, is the zero Limit.
//
// The period depends on the number. So Rate is for TokenBucket, whose counts do not depend on
// their period.
func Rate(perSecond float64) Limit { return rule.Rate(perSecond) }

// Day is the period from one day's first instant to the next one's.
func Day() CivilPeriod { return rule.Day() }

// Week is seven days from a weekday on.
func Week(first time.Weekday) CivilPeriod { return rule.Week(first) }

// Month is a month from a day of it on, 1 to 31: Month(1) is the calendar's, the
// others are billing months. Of a month without that day the last day counts.
func Month(anchor int) CivilPeriod { return rule.Month(anchor) }
