package rule

import (
	"fmt"
	"time"
)

// KindCalendar is Calendar's number.
const KindCalendar Kind = 7

// Calendar is documented in package algo.
func Calendar(limit int64, every CivilPeriod, zone *time.Location) Algorithm {
	return calendar.civil(limit, every, zone)
}

func (r *rule) civil(limit int64, every CivilPeriod, zone *time.Location) Algorithm {
	a := Algorithm{of: r, every: every, zone: zone}
	return a.with(Limit{limit, every.longest()}, limit)
}

// CivilPeriod is a day, a week or a month of the calendar. It begins at the first
// instant of its first day, which is not midnight where the clocks skip midnight.
// Where they show midnight twice it is the first one. The zero CivilPeriod is
// none and refused.
type CivilPeriod struct {
	unit  civilUnit
	first int // the weekday, or the day of the month
}

type civilUnit byte

// The units, as names of stored counts begin.
const (
	civilDay   civilUnit = 'd'
	civilWeek  civilUnit = 'w'
	civilMonth civilUnit = 'm'
)

// Day is documented in package algo.
func Day() CivilPeriod { return CivilPeriod{unit: civilDay} }

// Week is documented in package algo.
func Week(first time.Weekday) CivilPeriod { return CivilPeriod{civilWeek, int(first)} }

// Month is documented in package algo.
func Month(anchor int) CivilPeriod { return CivilPeriod{civilMonth, anchor} }

// String returns the period as "day", "week from Monday", "month from 15".
func (p CivilPeriod) String() string {
	switch p.unit {
	case civilDay:
		return "day"
	case civilWeek:
		return "week from " + time.Weekday(p.first).String()
	case civilMonth:
		return fmt.Sprintf("month from %d", p.first)
	}
	return none.name
}

// longest is how long the period is, of a month the longest.
func (p CivilPeriod) longest() time.Duration { return time.Duration(p.days(1, 7, 31)) * 24 * time.Hour }

func (p CivilPeriod) days(day, week, month int64) int64 {
	switch p.unit {
	case civilWeek:
		return week
	case civilMonth:
		return month
	}
	return day
}

// The words are x, the period's start, y, its end, and z, its count.

var calendar = rule{
	kind: KindCalendar, name: "Calendar", storage: StoredWords, mark: "c", words: 3, most: MaxCount, wall: true,
	derive: func(a *Algorithm) { a.identity.Period, a.identity.Label = 0, a.calendarName() },
	check:  calendarCheck,
	widest: calendarWidest,
	random: func(r *rule, l Limit, pick func(least, most int64) int64) Algorithm {
		hours := int(pick(1, 27)) - 13
		every := [...]CivilPeriod{Day(), Week(time.Weekday(pick(1, 7) - 1)), Month(int(pick(1, 31)))}[pick(1, 3)-1]
		return r.civil(l.Events, every, time.FixedZone(fmt.Sprintf("UTC%+d", hours), hours*3600))
	},
	worst:   calendarWorst,
	numbers: (*Algorithm).boundaries,

	roll:   calendarRoll,
	charge: func(_ *Algorithm, w words, _, n int64) words { return words{w.x, w.y, w.z + n} },
	giveBack: func(_ *Algorithm, w words, _ int64, c Charge, n int64) (words, bool) {
		if c.At < w.x || c.At >= w.y {
			return w, false
		}
		return words{w.x, w.y, w.z - min(n, w.z)}, w.z > 0
	},
	closes:  func(_ *Algorithm, w words) int64 { return w.y },
	retryAt: func(_ *Algorithm, _ []int64, v View, _ int64) int64 { return v.y },
	resetAt: func(_ *Algorithm, w words) int64 { return w.y },
}

func calendarRoll(a *Algorithm, w words, now int64) (used, at int64, rolled words) {
	if w.x <= now && now < w.y {
		return w.z, now, w // whatever this process takes for the boundary
	}
	from, to := a.civil(now)
	if w.x > now {
		if w.x <= now+(to-from) {
			return w.z, w.x, w
		}
		w = words{}
	}
	// Where others' time zone data ended the last period late, what is left of
	// this one may be short. It would be a limit of its own. So it joins the next.
	//mutant:short-rest-joins
	if left := to - w.y; w.y > 0 && 2*left < to-from {
		_, to = a.civil(to)
	}
	return 0, now, words{max(from, w.y), to, 0}
}

// boundaries returns what the twin picks from by the server's clock. These are the length
// of the period before, and of the present one the start and the length, and the next
// one's length.
func (a *Algorithm) boundaries(now int64) (before, start, length, next int64) {
	from, to := a.civil(now)
	first, _ := a.civil(from - 1)
	_, last := a.civil(to)
	return from - first, from, to - from, last - to
}

// calendarWorst counts the periods that t instants touch. The shortest are as
// short as a change of the clocks makes them. A day has 16 hours at least (Casey 1969)
// where a zone changes its offset. A week or a month loses a day where a zone
// crosses the date line.
func calendarWorst(a *Algorithm, t int64) int64 {
	shortest := a.every.days(16, 24*6-4, 24*27-4) * time.Hour.Microseconds()
	return saturate(ceilDiv(max(t-1, 0), shortest)+1, a.max)
}

// calendarName is whose count it is beside the kind and the policy's name.
func (a *Algorithm) calendarName() string {
	name := string(a.every.unit)
	if a.every.unit != civilDay {
		name = fmt.Sprintf("%s%d", name, a.every.first)
	}
	if a.zone == nil {
		return name
	}
	return name + "/" + a.zone.String()
}

// calendarWidest reads a calendarName. Whoever looks at a count needs no time zone
// data, which may be missing: the stored period stands whatever the boundaries.
func calendarWidest(r *rule, id Identity) Algorithm {
	return r.civil(r.most, calendarEvery(id.Label), time.FixedZone(Parts{Label: id.Label}.Zone(), 0))
}

// calendarEvery returns the civil period of a calendarName.
func calendarEvery(name string) (every CivilPeriod) {
	if n, _ := fmt.Sscanf(name, "%c%d/", &every.unit, &every.first); n < 2 {
		every.first = 0
	}
	return every
}

// localZone is what time.Local was at first: programs set it to a zone of a name.
var localZone = time.Local

func calendarCheck(a *Algorithm) error {
	first, last := int(a.every.days(0, 0, 1)), int(a.every.days(0, 6, 31))
	if a.every.String() == none.name || a.every.first < first || a.every.first > last {
		return &InvalidError{What: "calendar period", Value: a.every, Want: "Day(), Week(a weekday) or Month(1 to 31)"}
	}
	if a.zone == nil {
		return &InvalidError{What: "time zone", Value: nil, Want: "a *time.Location, as time.UTC or one of time.LoadLocation"}
	}
	name := a.zone.String()
	if name == "Local" || a.zone == localZone && a.zone != time.UTC {
		return &InvalidError{What: "time zone", Value: "Local", Want: "a zone of a name, which is the same on every host"}
	}
	if !zoneNamed(name) {
		return &InvalidError{What: "time zone", Value: name, Want: "a name of 1 to 64 of A-Z a-z 0-9 _ + - / :"}
	}
	if _, offset := time.Unix(0, 0).In(a.zone).Zone(); max(offset, -offset) >= maxOffset {
		return &InvalidError{What: "time zone", Value: name, Want: "an offset of less than 26 hours"}
	}
	return nil
}

func zoneNamed(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '-' || c > ':' || c == '.') && c != '_' && c != '+' {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 64
}

const (
	secondsPerDay = 86400
	// maxOffset is more than any zone's offset, in seconds. The greatest that
	// time zone data holds is 15:13:42, before 1845.
	maxOffset = 26 * 3600
)

// civil returns the period that holds an instant. All are µs.
//
// The date at now does not show that. Where the clocks go back over midnight, the
// old day's date comes again after the new day has begun.
func (a *Algorithm) civil(now int64) (from, to int64) {
	if !a.sound {
		return now, now + 1
	}
	i := a.every.index(time.UnixMicro(now).In(a.zone).Date())
	to = firstInstant(a.zone, a.every.day(i+1))
	for from = firstInstant(a.zone, a.every.day(i)); to <= now; i++ {
		from, to = to, firstInstant(a.zone, a.every.day(i+2))
	}
	return from, to
}

// index numbers the periods: it returns the number of the one that has a date.
func (p CivilPeriod) index(year int, month time.Month, day int) int64 {
	switch p.unit {
	case civilWeek:
		n := dayNumber(year, month, day) + int64(time.Thursday) - int64(p.first) // the epoch began on a Thursday
		return (n - (n%7+7)%7) / 7
	case civilMonth:
		if day < p.anchor(year, month) {
			month--
		}
		return int64(year)*12 + int64(month) - 1
	}
	return dayNumber(year, month, day)
}

// day returns the number of a period's first day, in days since 1970-01-01.
func (p CivilPeriod) day(i int64) int64 {
	switch p.unit {
	case civilWeek:
		return i*7 + int64(p.first) - int64(time.Thursday)
	case civilMonth:
		year, month := int(i/12), time.Month(i%12+1)
		return dayNumber(year, month, p.anchor(year, month))
	}
	return i
}

// anchor returns the day on which the period that begins in a month does so.
func (p CivilPeriod) anchor(year int, month time.Month) int {
	last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return min(p.first, last)
}

func dayNumber(year int, month time.Month, day int) int64 {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / secondsPerDay
}

// firstInstant returns when the zone's clocks first show a day or a later one, in
// µs. It goes through the stretches of equal offset from before that. Package time
// ends the one at the end of a leap year too early, at least until Go 1.26.
func firstInstant(zone *time.Location, day int64) int64 {
	midnight := day * secondsPerDay
	at := time.Unix(midnight-maxOffset, 0).In(zone)
	for {
		_, offset := at.Zone()
		_, end := at.ZoneBounds()
		if !end.IsZero() && !end.After(at) {
			end = at.Add(time.Hour)
		}
		first := max(at.Unix(), midnight-int64(offset))
		if end.IsZero() || first < end.Unix() {
			return first * 1e6
		}
		at = end
	}
}
