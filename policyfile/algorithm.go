package policyfile

import (
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo"
)

// numbers are the fields that some algorithms have, and others have not.
var numbers = []string{"period", "burst", "max-delay", "buckets", "week-start", "anchor", "zone"}

// algorithms are the names of the algorithms, each with those of the numbers that it
// has, and what makes it of them.
var algorithms = map[string]struct {
	has  []string
	make func(r rule, limit int64) (algo.Algorithm, error)
}{
	"fixed-window":    {[]string{"period"}, perPeriod(algo.FixedWindow)},
	"sliding-window":  {[]string{"period"}, perPeriod(algo.SlidingWindow)},
	"bucketed-window": {[]string{"period", "buckets"}, perPeriodAnd(algo.BucketedWindow, "buckets")},
	"sliding-log":     {[]string{"period"}, perPeriod(algo.SlidingLog)},
	"compact-log":     {[]string{"period"}, perPeriod(algo.CompactLog)},
	"token-bucket":    {[]string{"period", "burst"}, perPeriodAnd(algo.TokenBucket, "burst")},
	"leaky-queue":     {[]string{"period", "burst", "max-delay"}, rule.queue},
	"calendar":        {[]string{"period", "week-start", "anchor", "zone"}, rule.calendar},
	"in-flight":       {nil, func(_ rule, limit int64) (algo.Algorithm, error) { return algo.InFlight(limit), nil }},
}

// algorithm refuses a number that the algorithm does not have: a burst of a fixed
// window would be silently ignored.
func (r rule) algorithm() (a algo.Algorithm, err error) {
	v, name, err := r.word("algorithm", sorted(algorithms))
	if err != nil {
		return a, err
	}
	kind, ok := algorithms[name]
	if !ok {
		return a, v.unknown("algorithm", name, sorted(algorithms))
	}
	for _, field := range numbers {
		if v, ok := r.fields[field]; ok && !slices.Contains(kind.has, field) {
			return a, v.errorf("given; the algorithm %s has none", name)
		}
	}
	limit, err := r.number("limit", -1)
	if err != nil {
		return a, err
	}
	return kind.make(r, limit)
}

// perPeriod makes an algorithm of a limit per period.
func perPeriod(of func(algo.Limit) algo.Algorithm) func(rule, int64) (algo.Algorithm, error) {
	return func(r rule, limit int64) (algo.Algorithm, error) {
		period, err := r.period()
		return of(algo.Per(limit, period)), err
	}
}

// perPeriodAnd makes an algorithm of a limit per period and one number more.
func perPeriodAnd(of func(algo.Limit, int64) algo.Algorithm, field string) func(rule, int64) (algo.Algorithm, error) {
	return func(r rule, limit int64) (a algo.Algorithm, err error) {
		own, err := r.number(field, -1)
		if err != nil {
			return a, err
		}
		period, err := r.period()
		return of(algo.Per(limit, period), own), err
	}
}

// queue makes a LeakyQueue.
func (r rule) queue(limit int64) (a algo.Algorithm, err error) {
	delay, err := r.duration("max-delay", "500ms")
	if err != nil {
		return a, err
	}
	of := func(l algo.Limit, burst int64) algo.Algorithm { return algo.LeakyQueue(l, burst, delay) }
	return perPeriodAnd(of, "burst")(r, limit)
}

// period returns the field of that name, where it is a duration.
func (r rule) period() (time.Duration, error) { return r.duration("period", "1m") }

func (r rule) duration(field, example string) (time.Duration, error) {
	v, ok := r.fields[field]
	if !ok {
		return 0, r.at.missing(field, "a duration, as "+example)
	}
	return v.duration()
}

// calendar makes a Calendar. The period is a word, and the zone a name of time zone
// data: another host has to mean the same by both.
func (r rule) calendar(limit int64) (a algo.Algorithm, err error) {
	every, err := r.civil()
	if err != nil {
		return a, err
	}
	v, name, err := r.word("zone", []string{"UTC", "the name of a time zone, as Europe/Berlin"})
	if err != nil {
		return a, err
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return a, v.error(err)
	}
	return algo.Calendar(limit, every, zone), nil
}

var (
	civilPeriods = []string{"day", "week", "month"}
	weekdays     = []string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"} // as time.Weekday
)

// civil returns the period of a Calendar. Only a week has a first day, and only a
// month an anchor.
func (r rule) civil() (every algo.CivilPeriod, err error) {
	v, name, err := r.word("period", civilPeriods)
	if err != nil {
		return every, err
	}
	if !slices.Contains(civilPeriods, name) {
		return every, v.unknown("period", name, civilPeriods)
	}
	for _, only := range []struct{ field, period string }{{"week-start", "week"}, {"anchor", "month"}} {
		if v, ok := r.fields[only.field]; ok && only.period != name {
			return every, v.errorf("given; a %s has none", name)
		}
	}
	switch name {
	case "week":
		v, first, err := r.word("week-start", weekdays)
		if err != nil {
			return every, err
		}
		i := slices.Index(weekdays, strings.ToLower(first))
		if i < 0 {
			return every, v.unknown("day", first, weekdays)
		}
		return algo.Week(time.Weekday(i)), nil
	case "month":
		anchor, err := r.number("anchor", 1)
		return algo.Month(nearestInt(anchor)), err
	}
	return algo.Day(), nil
}
