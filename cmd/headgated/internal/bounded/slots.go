package bounded

import "time"

// Small is how many bytes of a request are read without a slot.
const Small = 16 << 10

// Slots are for requests of more than Small bytes, from their reading to their answer. There are
// a few for all connections. So clients whose requests do not end, or who do not read the
// answers, hold a few times the longest request. Nil Slots are no bound.
type Slots chan struct{}

// NewSlots returns n slots.
func NewSlots(n int) Slots { return make(Slots, n) }

// Long is a request that may become long.
type Long struct {
	Slots Slots
	bytes int
	has   bool // a slot
}

// More reports whether n more bytes of the request may be read. It waits for a slot if it needs
// one.
func (l *Long) More(n int, within time.Duration) bool {
	l.bytes += n
	//mutant:long-request-has-slot
	if l.has || l.bytes <= Small || l.Slots == nil {
		return true
	}
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case l.Slots <- struct{}{}:
		l.has = true
	case <-t.C:
	}
	return l.has
}

// End leaves the slot to another request.
func (l *Long) End() {
	if l.has {
		<-l.Slots
		l.has = false
	}
}
