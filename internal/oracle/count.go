package oracle

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
)

// Span is the range in which a number must lie: one number, unless the
// specification leaves room.
type Span struct{ Lo, Hi int64 }

// Has reports whether the number is in the range.
func (s Span) Has(n int64) bool { return s.Lo <= n && n <= s.Hi }

// debit is units that were charged at an instant. A settle changes them.
type debit struct {
	at, units int64 // µs, units
	ends      int64 // of a slot: when it is free; else 0
	upTo      int64 // of a bucket: what was charged ever, with this
	undone    int64 // and what perhaps came and went
	gave      bool  // it gave something back, perhaps
	returned  int64 // of a bucket: units of it that were returned
}

// count is the history of one policy's count of one key: all charges with their
// instants. What it amounts to is worked out anew at each call, from the definition
// of the algorithm.
type count struct {
	id     rule.Identity
	shards int
	bucket *bucket // of a TokenBucket and a LeakyQueue; else nil

	charges []*debit
	limits  int // of those that ask: how many there are
	// over is whether more than the limit was recorded. uneven is whether a sub-key of a
	// spread key may hold more than its share while another one has room.
	over, uneven bool
}

// charge adds units at an instant, and a slot's end.
func (c *count) charge(now, units, ends int64) *debit {
	ch := &debit{at: now, units: units, ends: ends}
	if c.bucket != nil {
		c.bucket.charged += units
		ch.upTo, ch.undone = c.bucket.charged, c.bucket.undone
		c.bucket.events = append(c.bucket.events, event{at: now, units: units, of: ch})
	} else {
		c.charges = append(c.charges, ch)
	}
	return ch
}

// correct leaves of a charge what would stand had fewer units been charged.
// cost is what was charged, of which a Return may have taken units since.
func (c *count) correct(ch *debit, now, cost, units int64) {
	c.uneven = c.uneven || c.over && units < ch.units
	b := c.bucket
	ch.gave = b != nil && ch.upTo == b.charged
	if b != nil && units < ch.units && (!b.queue || ch.gave && ch.undone == b.undone) {
		b.events = append(b.events, event{at: now, gives: ch.units - units, of: ch})
	}
	// What the charge has left comes first. After a Return the rest is of others of its bucket.
	gives := max(0, cost-units)
	if b != nil {
		ch.units = min(ch.units, units)
		return
	}
	gives -= ch.less(gives)
	c.less(gives, func(o *debit) bool { return c.start(o.at) == c.start(ch.at) })
}

// less takes up to n units out of a charge, and returns how many.
func (d *debit) less(n int64) int64 {
	n = min(n, d.units)
	d.units -= n
	return n
}

// less takes n units out of the charges that are meant, the newest first.
func (c *count) less(n int64, meant func(*debit) bool) {
	for i := len(c.charges) - 1; i >= 0; i-- {
		if ch := c.charges[i]; meant(ch) {
			n -= ch.less(n)
		}
	}
}

// start returns where the bucket of an instant begins, by which a count keeps its charges.
func (c *count) start(at int64) int64 {
	p := c.id.Period
	switch c.id.Kind {
	case rule.KindFixedWindow, rule.KindSlidingWindow:
		return at / p * p
	case rule.KindCalendar:
		start, _ := civil(c.id.Label, at)
		return start
	case rule.KindBucketedWindow:
		sub := (p + c.id.Buckets - 1) / c.id.Buckets
		return at / sub * sub
	}
	return at
}

// returned takes n units out of what is counted, the newest first.
func (c *count) returned(now, n int64) {
	used := c.used(now)
	if n = min(n, used.Hi); n == 0 {
		return
	}
	if c.bucket != nil {
		c.bucket.returned(now, n)
		return
	}
	if c.id.Kind != rule.KindSlidingWindow {
		since := c.since(now)
		c.less(n, func(ch *debit) bool { return ch.at >= since })
		return
	}
	p := c.id.Period
	start := c.start(now)
	current, previous := c.sum(start, math.MaxInt64), c.sum(start-p, start)
	c.less(n, func(ch *debit) bool { return ch.at >= start })
	if n > current { // the previous bucket keeps as much as weighs no more
		most := ((used.Hi-n+1)*p - 1) / (p - (now - start))
		c.less(previous-most, func(ch *debit) bool { return ch.at < start })
	}
}

// exceeds notes that more than the limit was recorded.
func (c *count) exceeds(now int64, a *algo.Algorithm) {
	c.over = c.over || c.counts(now, a).Hi > a.Max()
}

// used returns the units that count at an instant.
func (c *count) used(now int64) Span {
	p := c.id.Period
	switch c.id.Kind {
	case rule.KindTokenBucket, rule.KindLeakyQueue:
		return c.bucket.used(now, int64(c.shards))
	case rule.KindSlidingWindow:
		start := now / p * p
		weighed := c.sum(start-p, start) * (p - (now - start)) / p
		n := weighed + c.sum(start, math.MaxInt64)
		return Span{n - min(weighed, int64(c.shards-1)), n} // each sub-key rounds down
	case rule.KindInFlight:
		n := int64(0)
		for _, ch := range c.charges {
			if ch.ends > now {
				n += ch.units
			}
		}
		return Span{n, n}
	default:
		n := c.sum(c.since(now), math.MaxInt64)
		return Span{n, n}
	}
}

// since returns the first instant whose charges count at now.
func (c *count) since(now int64) int64 {
	p := c.id.Period
	switch c.id.Kind {
	case rule.KindFixedWindow:
		return now / p * p
	case rule.KindCalendar:
		start, _ := civil(c.id.Label, now)
		return start
	case rule.KindBucketedWindow: // the oldest, partly expired bucket counts whole
		sub := (p + c.id.Buckets - 1) / c.id.Buckets
		return (now - p + 1) / sub * sub
	default: // a log: the window is (now - W, now]
		return now - p + 1
	}
}

// sum returns the units that were charged from an instant until before another.
func (c *count) sum(from, to int64) (n int64) {
	for _, ch := range c.charges {
		if ch.at >= from && ch.at < to {
			n += ch.units
		}
	}
	return n
}

// retry returns how long it takes until n units fit, if no other call takes.
func (c *count) retry(a *algo.Algorithm, now, n int64) Span {
	if c.bucket != nil {
		return c.bucket.below(now, a, a.Max()-n, longest(a))
	}
	t := c.first(now, func(t int64) bool { return c.used(t).Hi+n <= a.Max() })
	return Span{t - now, t - now}
}

// reset returns how long it takes until nothing is counted any more.
func (c *count) reset(a *algo.Algorithm, now int64) Span {
	if c.bucket != nil {
		return c.bucket.below(now, a, 0, 0)
	}
	t := c.first(now, func(t int64) bool { return c.used(t).Hi == 0 })
	return Span{t - now, t - now}
}

// first returns the first instant at which a condition holds that then stays.
func (c *count) first(now int64, holds func(t int64) bool) int64 {
	last := now + 3*c.id.Period
	if c.id.Kind == rule.KindCalendar {
		_, last = civil(c.id.Label, now)
	}
	for _, ch := range c.charges {
		last = max(last, ch.ends)
	}
	if !holds(last) {
		return math.MaxInt64
	}
	for from := now; from < last; {
		if mid := from + (last-from)/2; holds(mid) {
			last = mid
		} else {
			from = mid + 1
		}
	}
	return last
}

// forget drops what can't count any more, and reports whether all has left.
func (c *count) forget(now int64) {
	if c.bucket != nil {
		if c.bucket.used(now, int64(c.shards)).Hi == 0 {
			c.bucket.events, c.over, c.uneven = nil, false, false
		}
		return
	}
	kept := c.charges[:0]
	for _, ch := range c.charges {
		stays := ch.ends > now
		switch c.id.Kind {
		case rule.KindInFlight:
		case rule.KindSlidingWindow:
			stays = ch.at >= now/c.id.Period*c.id.Period-c.id.Period
		default:
			stays = ch.at >= c.since(now)
		}
		if stays {
			kept = append(kept, ch)
		}
	}
	c.uneven = c.uneven || c.over && len(kept) < len(c.charges) // each share ages by itself
	if len(kept) == 0 {
		c.over, c.uneven = false, false
	}
	clear(c.charges[len(kept):])
	c.charges = kept
}

// civil returns the day, week or billing month that holds an instant.
func civil(label string, now int64) (start, end int64) {
	unit, name, _ := strings.Cut(label, "/")
	zone := zone(name)
	n, _ := strconv.Atoi(unit[1:])
	at := time.UnixMicro(now).In(zone)
	y, m, d := at.Date()
	var from, to time.Time
	switch unit[0] {
	case 'd':
		from, to = time.Date(y, m, d, 0, 0, 0, 0, zone), time.Date(y, m, d+1, 0, 0, 0, 0, zone)
	case 'w':
		d -= (int(at.Weekday()) - n + 7) % 7
		from, to = time.Date(y, m, d, 0, 0, 0, 0, zone), time.Date(y, m, d+7, 0, 0, 0, 0, zone)
	case 'm':
		if from, to = anchored(y, m, n, zone), anchored(y, m+1, n, zone); at.Before(from) {
			from, to = anchored(y, m-1, n, zone), from
		}
	}
	return from.UnixMicro(), to.UnixMicro()
}

// anchored returns the first instant of a billing month: of the anchor's day, or of the
// month's last day.
func anchored(y int, m time.Month, day int, zone *time.Location) time.Time {
	last := time.Date(y, m+1, 0, 12, 0, 0, 0, zone).Day()
	return time.Date(y, m, min(day, last), 0, 0, 0, 0, zone)
}

var zones sync.Map // of *time.Location by name

func zone(name string) *time.Location {
	if z, ok := zones.Load(name); ok {
		return z.(*time.Location)
	}
	z, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	zones.Store(name, z)
	return z
}
