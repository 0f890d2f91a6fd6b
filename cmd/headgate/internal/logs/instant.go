package logs

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"time"
)

// clock reads the instants of one file.
type clock struct {
	zone   *time.Location // of times that name none
	unit   int64          // µs: the finest step of an instant so far; 0: none was read
	bare   int64          // instants without a zone
	twice  int64          // of these, those of an hour that the clocks repeat
	last   []byte         // the text that was read last, and its instant
	lastAt int64
}

// Instants that the rules can count by: from 1970 until 2112.
const (
	leastInstant = int64(0)
	mostInstant  = int64(1) << 52
)

const second = int64(time.Second / time.Microsecond)

var errInstant = errors.New("no time that can be read")

// read returns an instant in µs of the Unix epoch. after is the instant that it is not before, if
// its text has two meanings.
func (c *clock) read(text []byte, after int64) (int64, error) {
	if len(text) > 0 && bytes.Equal(text, c.last) {
		return c.lastAt, nil
	}
	at, unit, bare, err := c.parse(text, after)
	if err == nil && (at < leastInstant || at > mostInstant) {
		err = errors.New("a time before 1970 or after 2112")
	}
	if err != nil {
		return 0, err
	}
	if c.unit == 0 || unit < c.unit {
		c.unit = unit
	}
	if bare { // what it means depends on the lines before: it is read each time
		c.last = c.last[:0]
		return at, nil
	}
	c.last, c.lastAt = append(c.last[:0], text...), at
	return at, nil
}

// parse reads the forms of a time: of Common logs, of ISO 8601 and RFC 3339, and numbers.
func (c *clock) parse(text []byte, after int64) (at, unit int64, bare bool, err error) {
	var f civil
	rest := text
	switch {
	case len(text) > 11 && text[2] == '/' && text[6] == '/':
		f.day, f.month, f.year = digits(text[:2]), month(text[3:6]), digits(text[7:11])
		rest = text[11:]
	case len(text) > 10 && (text[4] == '-' || text[4] == '/') && text[7] == text[4]:
		f.year, f.month, f.day = digits(text[:4]), digits(text[5:7]), digits(text[8:10])
		rest = text[10:]
	default:
		at, unit, err = number(text)
		return at, unit, false, err
	}
	if len(rest) < 9 || rest[0] != ':' && rest[0] != 'T' && rest[0] != 't' && rest[0] != ' ' || rest[3] != ':' || rest[6] != ':' {
		return 0, 0, false, errInstant
	}
	f.hour, f.minute, f.second = digits(rest[1:3]), digits(rest[4:6]), digits(rest[7:9])
	micros, unit, rest, ok := fraction(rest[9:])
	if !ok || !f.valid() {
		return 0, 0, false, errInstant
	}
	offset, zoned, ok := offset(rest)
	switch {
	case !ok:
		return 0, 0, false, errInstant
	case zoned:
		return (f.unix()-offset)*second + micros, unit, false, nil
	}
	c.bare++
	at, err = c.local(f, after-micros)
	return at + micros, unit, true, err
}

// local returns the instant of a time without a zone. An hour that the clocks repeat has two:
// the later one if the earlier one is too old to be meant.
func (c *clock) local(f civil, after int64) (int64, error) {
	if c.zone == time.UTC {
		return f.unix() * second, nil
	}
	var found []int64
	at := time.Date(int(f.year), time.Month(f.month), int(f.day), int(f.hour), int(f.minute), int(f.second), 0, c.zone)
	for _, near := range []time.Duration{-26 * time.Hour, 26 * time.Hour} { // the offsets before and after a change
		_, offset := at.Add(near).Zone()
		unix := f.unix() - int64(offset)
		if _, now := time.Unix(unix, 0).In(c.zone).Zone(); now == offset && (len(found) == 0 || found[0] != unix*second) {
			found = append(found, unix*second)
		}
	}
	switch {
	case len(found) == 0:
		return 0, errors.New("a time that the clocks of the zone leave out")
	case len(found) == 1:
		return found[0], nil
	}
	c.twice++
	first, later := min(found[0], found[1]), max(found[0], found[1])
	//mutant:repeated-hour
	if first < after {
		return later, nil
	}
	return first, nil
}

// civil is a time as a calendar and a clock show it. A field that is no number is negative.
type civil struct{ year, month, day, hour, minute, second int64 }

func (f *civil) valid() bool {
	days := int64(31)
	switch f.month {
	case 4, 6, 9, 11:
		days = 30
	case 2:
		days = 28
		if f.year%4 == 0 && (f.year%100 != 0 || f.year%400 == 0) {
			days = 29
		}
	}
	return f.year >= 0 && f.month >= 1 && f.month <= 12 && f.day >= 1 && f.day <= days && f.hour >= 0 && f.hour <= 23 &&
		f.minute >= 0 && f.minute <= 59 && f.second >= 0 && f.second <= 60 // a leap second is the next minute's first
}

// unix returns the seconds of the epoch if the zone is UTC. The days are counted from March, so
// that a leap day is the last of its year (H. Hinnant, chrono-compatible date algorithms).
func (f *civil) unix() int64 {
	year, month := f.year, f.month-3
	if month < 0 {
		year, month = year-1, month+12
	}
	days := year*365 + year/4 - year/100 + year/400 + (153*month+2)/5 + f.day - 1 - 719468
	return days*86400 + f.hour*3600 + f.minute*60 + f.second
}

// digits returns a number of at most 19 digits only, else a negative one.
func digits(text []byte) (n int64) {
	for _, c := range text {
		if c < '0' || c > '9' {
			return math.MinInt32
		}
		n = n*10 + int64(c-'0')
	}
	return n
}

func month(text []byte) int64 {
	const names = "janfebmaraprmayjunjulaugsepoctnovdec"
	for i := 0; i < len(names); i += 3 {
		if text[0]|' ' == names[i] && text[1]|' ' == names[i+1] && text[2]|' ' == names[i+2] {
			return int64(i/3 + 1)
		}
	}
	return 0
}

// fraction reads the part of a second at the front, in µs. What is finer is cut.
func fraction(text []byte) (micros, unit int64, rest []byte, ok bool) {
	if len(text) == 0 || text[0] != '.' && text[0] != ',' {
		return 0, second, text, true
	}
	n := 1
	for unit = second; n < len(text) && text[n] >= '0' && text[n] <= '9'; n++ {
		if unit > 1 {
			unit /= 10
			micros += int64(text[n]-'0') * unit
		}
	}
	return micros, unit, text[n:], n > 1
}

// offset reads what follows a time: an offset from UTC in seconds, or nothing.
func offset(text []byte) (seconds int64, zoned, ok bool) {
	text = bytes.TrimSpace(text)
	switch {
	case len(text) == 0:
		return 0, false, true
	case string(text) == "Z" || string(text) == "z" || string(text) == "UTC":
		return 0, true, true
	case text[0] != '+' && text[0] != '-':
		return 0, false, false
	}
	text, sign := text[1:], int64(44-int(text[0])) // '+' is 43, '-' 45
	if len(text) == 5 && text[2] == ':' {
		text = append(append(make([]byte, 0, 4), text[:2]...), text[3:]...)
	}
	if len(text) != 4 {
		return 0, false, false
	}
	hours, minutes := digits(text[:2]), digits(text[2:])
	if hours < 0 || hours > 23 || minutes < 0 || minutes > 59 {
		return 0, false, false
	}
	return sign * (hours*3600 + minutes*60), true, true
}

// number reads an instant that is a number since the epoch: of seconds, or, as its size shows, of
// milli-, micro- or nanoseconds. Numbers of logs are of the years after 1973.
func number(text []byte) (at, unit int64, err error) {
	whole, part, pointed := bytes.Cut(text, []byte{'.'})
	n := digits(whole)
	if len(whole) == 0 || len(whole) > 19 || n < 0 || bytes.ContainsAny(part, "eE") {
		return exponent(text)
	}
	switch i := n; {
	case i < 1e11:
		if !pointed {
			return i * second, second, nil
		}
		micros, unit, rest, ok := fraction(text[len(whole):])
		if !ok || len(rest) > 0 {
			return 0, 0, errInstant
		}
		return i*second + micros, unit, nil
	case i < 1e14:
		return i * 1000, 1000, nil
	case i < 1e17:
		return i, 1, nil
	default:
		return i / 1000, 1, nil
	}
}

// exponent reads seconds as 1.7e+09, the form that JSON may give a number.
func exponent(text []byte) (at, unit int64, err error) {
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(f >= 0 && f < 1e11) {
		return 0, 0, errInstant
	}
	return int64(math.Round(f * 1e6)), 1, nil
}
