package memory

import "time"

// maxInstant bounds the instants of Options.Now; package algo counts on it.
const maxInstant = 1 << 52

// clock returns microseconds of the Unix epoch. The default reads the wall
// clock once and adds the monotonic time since then.
type clock struct {
	given func() time.Time // Options.Now; nil is the default
	begin time.Time
	epoch int64
}

func newClock(given func() time.Time) clock {
	begin := time.Now()
	return clock{given: given, begin: begin, epoch: begin.UnixMicro()}
}

// startAt lets the default clock go on from now by the wall clock, or from an instant if that is
// later. So nothing that was stored until then is ahead of it.
func (c *clock) startAt(least int64) {
	c.begin = time.Now()
	//mutant:clock-goes-on
	c.epoch = max(c.begin.UnixMicro(), least)
}

// wall returns what the wall clock shows.
func (c *clock) wall() int64 {
	if c.given != nil {
		return c.underLock(0, nil)
	}
	return time.Now().UnixMicro()
}

// beforeLock reads the default clock ahead of a lock, so that others wait less
// for it. Options.Now is read by underLock.
func (c *clock) beforeLock() int64 {
	if c.given != nil {
		return 0
	}
	return c.epoch + time.Since(c.begin).Microseconds()
}

// underLock returns the instant of a decision, with the lock of latest held.
func (c *clock) underLock(before int64, latest *int64) int64 {
	if c.given != nil {
		return min(max(c.given().UnixMicro(), 0), maxInstant)
	}
	return c.notBefore(before, latest)
}

// notBefore returns the later of an instant and the latest of a lock. The
// default clock never steps back, but two calls may take the lock in another
// order than they read the clock. Then the later reading is the instant of
// both. An earlier one would make what the other stored look like a step of the
// clock. Options.Now may step back, so no reading of it stands for another.
func (c *clock) notBefore(now int64, latest *int64) int64 {
	if c.given != nil {
		return now
	}
	*latest = max(*latest, now)
	return *latest
}

// toWall returns what the wall clock shows more than the instant now of a
// decision. Options.Now is the wall clock too.
func (c *clock) toWall(now int64) int64 {
	if c.given != nil {
		return 0
	}
	return time.Now().UnixMicro() - now
}
