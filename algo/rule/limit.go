package rule

import (
	"fmt"
	"math"
	"time"
)

// Limit is a number of units a period. The zero Limit is out of range and
// refused where it is used.
type Limit struct {
	Events int64         // units: 1 to 2^36 (1,000,000 for the logs, 10^15 - 1 for FixedWindow and Calendar)
	Period time.Duration // 1 ms to 400 days, whole microseconds
}

// PerSecond is documented in package algo.
func PerSecond(n int64) Limit { return Limit{n, time.Second} }

// PerMinute is documented in package algo.
func PerMinute(n int64) Limit { return Limit{n, time.Minute} }

// PerHour is documented in package algo.
func PerHour(n int64) Limit { return Limit{n, time.Hour} }

// PerDay is documented in package algo.
func PerDay(n int64) Limit { return Limit{n, 24 * time.Hour} }

// Per is documented in package algo.
func Per(n int64, d time.Duration) Limit { return Limit{n, d} }

// Rate is documented in package algo.
func Rate(perSecond float64) Limit {
	//mutant:rate-in-range
	if !(perSecond > 0 && perSecond <= MaxLimit) {
		return Limit{}
	}
	// The convergents n/d of the rate's continued fraction are its best approximations.
	whole, rest := math.Modf(perSecond)
	n, d, before, beneath := whole, 1.0, 1.0, 0.0
	for rest > 0 && n/d != perSecond {
		whole, rest = math.Modf(1 / rest)
		next, below := whole*n+before, whole*d+beneath
		//mutant:rate-within-limits
		if next > MaxLimit || below > MaxPeriod.Seconds() {
			break
		}
		n, d, before, beneath = next, below, n, d
	}
	if n == 0 {
		return Limit{}
	}
	return Limit{int64(n), time.Duration(d) * time.Second}
}

// String returns the limit as "100 per 1m0s", or as "100" where it has no period.
func (l Limit) String() string {
	if l.Period == 0 {
		return fmt.Sprint(l.Events)
	}
	return fmt.Sprintf("%d per %v", l.Events, l.Period)
}

// The ranges. Everything stored stays a whole number below 2^53, which Go's
// int64 and Lua's double both hold exactly, also for twice the greatest limit.
const (
	MaxLimit    = 1 << 36 // units of a limit or a burst
	MaxLogLimit = 1_000_000
	MaxCount    = 999_999_999_999_999 // units of a FixedWindow or a Calendar: the greatest integer of a structured header field
	MaxBuckets  = 240                 // of a BucketedWindow: its cost, in time and in bytes, grows with them
	MinPeriod   = time.Millisecond
	MaxPeriod   = 400 * 24 * time.Hour
)

// InvalidError is a value that is out of its range. Nothing was counted.
type InvalidError struct {
	What  string // what the value is for, as "limit"
	Value any    // the value
	Want  string // what it should have been
}

// Error names the value and its range.
func (e *InvalidError) Error() string {
	if s, ok := e.Value.(string); ok {
		return fmt.Sprintf("headgate: %s %.80q: want %s", e.What, s, e.Want)
	}
	return fmt.Sprintf("headgate: %s %v: want %s", e.What, e.Value, e.Want)
}

func within(what string, v, least, most int64) error {
	if v < least || v > most {
		return &InvalidError{What: what, Value: v, Want: fmt.Sprintf("%d to %d", least, most)}
	}
	return nil
}
