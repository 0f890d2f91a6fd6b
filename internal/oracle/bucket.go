package oracle

import (
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
)

// bucket is the history of a TokenBucket or a LeakyQueue. Its level is known up to the loss that the
// specification allows. That is 0.1 % of the refill, and two of the fractions that a level is
// kept in. Levels are in units * period * 1,000, so that both rates are whole numbers.
type bucket struct {
	period     int64 // µs, of all rates that ask
	slow, fast int64 // units per period: the least and the greatest rate that asks
	events     []event
	queue      bool  // a LeakyQueue, which gives back only what nothing was charged behind
	charged    int64 // units, ever
	undone     int64 // what perhaps came and went
}

// event is a charge, what a settle gives back of one, or what a Return takes of the level.
type event struct {
	at, units, gives int64
	of               *debit
	returns          int64
}

// returned takes n units off the level: of the newest charges.
func (b *bucket) returned(now, n int64) {
	b.events = append(b.events, event{at: now, returns: n})
	for i := len(b.events) - 1; i >= 0; i-- {
		if e := &b.events[i]; e.gives == 0 && e.returns == 0 {
			less := max(0, min(n, e.of.units-e.of.returned))
			e.of.returned += less
			n -= less
		}
	}
}

func (b *bucket) unit() int64 { return b.period * 1000 }

// levels returns the least and the greatest level at an instant. The least is that of
// what was really used, as if no more had been charged.
func (b *bucket) levels(now, shards int64) (lo, hi int64) {
	lo = b.net(now)
	switch {
	case shards > 1: // one sub-key may hold all, and what it gives back is its own
		hi = b.held(now, b.slow*999/shards, 0)
	case b.slow < b.fast: // what the fast rate finds empty gives nothing back
		hi = b.held(now, b.slow*999, b.fast*1000)
	default:
		hi = b.held(now, b.slow*999, b.slow*999)
	}
	if hi > 0 {
		hi += b.fractions()
	}
	return lo, hi
}

// fractions are what a level may be rounded up by: two.
func (b *bucket) fractions() int64 { return b.unit() >> 14 }

// net returns the level if no more had been charged than was used.
func (b *bucket) net(now int64) (level int64) {
	last := int64(0)
	for _, e := range b.events {
		level, last = leak(level, b.fast*1000, e.at-last), e.at
		switch {
		case e.gives != 0:
		case e.returns != 0:
			level = max(0, level-e.returns*b.unit())
		case b.queue && !e.of.gave: // with what was lost
			level += e.units * b.unit()
		default:
			level += e.of.units * b.unit()
		}
	}
	return leak(level, b.fast*1000, now-last)
}

// held returns the level that leaks at one rate, after settles that find the level of
// another rate. Each gives back min(estimate - actual, max(0, level - charged since)).
// 0 is nothing.
func (b *bucket) held(now, rate, settle int64) (level int64) {
	found := int64(0)
	last := int64(0)
	charged, upTo := int64(0), map[*debit]int64{} // in units, of all and up to a charge
	for _, e := range b.events {
		level, found, last = leak(level, rate, e.at-last), leak(found, settle, e.at-last), e.at
		switch {
		case e.returns != 0:
			n := min(level, e.returns*b.unit())
			if b.slow < b.fast { // what the fast rate finds empty is not returned
				n = min(n, found)
			}
			if level, found = level-n, max(0, found-n); level > 0 {
				level += b.fractions()
			}
		case e.of == nil: // what came and went
			charged += e.gives
			level += min(level, b.fractions())
		case e.gives == 0:
			level, found = level+e.units*b.unit(), found+e.units*b.unit()
			if e.of.units > 0 { // rounded up, once per unit that was used
				level += b.fractions() / 2
			}
			charged += e.units
			upTo[e.of] = charged
		case settle > 0:
			n := max(0, min(e.gives*b.unit(), found-(charged-upTo[e.of])*b.unit()))
			found -= n
			if level -= n; n < e.gives*b.unit() {
				level += b.fractions()
			}
		}
	}
	return leak(level, rate, now-last)
}

// leak returns what is left of a level after some time.
func leak(level, rate, us int64) int64 {
	if rate == 0 {
		return level
	}
	if us > level/rate {
		return 0
	}
	return level - rate*us
}

// used returns the units that count, rounded up.
func (b *bucket) used(now, shards int64) Span {
	lo, hi := b.levels(now, shards)
	u := Span{(lo + b.unit() - 1) / b.unit(), (hi + b.unit() - 1) / b.unit()}
	if shards > 1 && hi > 0 { // each sub-key rounds up
		u.Hi += shards - 1
	}
	return u
}

// below returns how long an asker's rate takes until the level is n units, plus what surely leaks
// in a delay.
func (b *bucket) below(now int64, a *algo.Algorithm, n, delay int64) Span {
	lo, hi := b.levels(now, 1)
	rate := a.Limit().Events * 1000
	least, most := b.waits(a, delay)
	wait := func(level int64) int64 { return (max(0, level-n*b.unit()) + rate - 1) / rate }
	return Span{wait(lo - most), wait(hi - least)}
}

// waits returns how much leaks in a delay. It is kept in whole fractions of a unit.
func (b *bucket) waits(a *algo.Algorithm, delay int64) (least, most int64) {
	most = a.Limit().Events * 1000 * delay
	return max(0, most-b.fractions()/2), most
}

// longest returns the longest delay of a LeakyQueue in µs, else 0.
func longest(a *algo.Algorithm) int64 {
	if a.Kind() != rule.KindLeakyQueue {
		return 0
	}
	_, delay, _, _, _ := a.Numbers(0)
	return delay
}

// counts returns the units that a decision counts, rounded up: of a LeakyQueue those of the level
// after its longest delay.
func (c *count) counts(now int64, a *algo.Algorithm) Span {
	if c.bucket == nil || !c.bucket.queue {
		return c.used(now)
	}
	b := c.bucket
	lo, hi := b.levels(now, 1)
	least, most := b.waits(a, longest(a))
	up := func(level int64) int64 {
		if n := level / b.unit(); level <= n*b.unit() { // below 0 too
			return n
		}
		return level/b.unit() + 1
	}
	return Span{up(lo - most), up(hi - least)}
}

// delay returns how long a caller of n more units waits before it goes on.
func (c *count) delay(now int64, a *algo.Algorithm, n int64) Span {
	if c.bucket == nil || !c.bucket.queue {
		return Span{}
	}
	return c.bucket.below(now, a, a.Max()-n, 0)
}
