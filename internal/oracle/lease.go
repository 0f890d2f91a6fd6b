package oracle

import (
	"slices"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
)

// Lease is a reservation: the charges that its settle changes.
type Lease struct {
	Key    string
	Length int64 // µs
	End    int64
	// Unresolved is whether the answer of its Reserve was lost.
	Unresolved bool
	// Gave is whether its settle gave units back to a policy that is enforced.
	Gave bool

	held    []held
	reset   bool // its key was reset while it was held
	state   leaseState
	settled int64 // when it was
}

type leaseState uint8

const (
	leaseHeld leaseState = iota
	leaseSettled
	leaseReset
	leaseAbsent // its Reserve was denied, and the answer was lost
)

// held is what a lease charged of one policy.
type held struct {
	p    backend.Policy
	c    *count
	d    *debit // nil: nothing
	cost int64
	mark bool // a shadow that had no room, which no settle changes
}

func (m *Model) reserved(parts []Part, vs []view, length time.Duration) (all []*Lease) {
	for i := range parts {
		l := &Lease{Key: parts[i].Key, Length: length.Microseconds(), End: m.Now + length.Microseconds()}
		for range parts[i].Policies {
			v := vs[0]
			vs = vs[1:]
			l.held = append(l.held, held{*v.p, v.c, v.d, v.cost, v.p.Shadow && v.denied})
		}
		m.leases[l.Key] = append(m.leases[l.Key], l)
		all = append(all, l)
	}
	return all
}

// Absent returns the lease of a Reserve that was denied, and whose answer was lost.
func (m *Model) Absent(part Part) *Lease {
	l := &Lease{Key: part.Key, Unresolved: true, state: leaseAbsent}
	for i := range part.Policies {
		p := &part.Policies[i]
		l.held = append(l.held, held{p: *p, c: m.count(part.Key, p, part.Shards), cost: part.Costs[i]})
	}
	return l
}

// Policies returns the lease's policies, in the order reserved.
func (l *Lease) Policies() (all []backend.Policy) {
	for i := range l.held {
		all = append(all, l.held[i].p)
	}
	return all
}

// Forgotten reports whether the tombstone of an unresolved settle has left: another settle
// would not find it.
func (l *Lease) Forgotten(now int64) bool {
	return l.Unresolved && l.state == leaseSettled && now >= l.settled+max(2*l.Length, tombstone)
}

// tombstone is how long one stays at the least, in µs.
const tombstone = 600_000_000

// Settle replaces what the lease charged by what was used, and returns nil or
// backend.ErrNotHeld. Nil is the estimate. by is the list of the limiter that settles.
func (m *Model) Settle(l *Lease, actual []int64, by []backend.Policy) error {
	l.free()
	gone := l.state != leaseSettled && m.Now >= l.End+l.Length
	absent := l.state == leaseAbsent || gone && l.Unresolved // a tombstone stays
	if !absent && (gone || l.state != leaseHeld) {
		if l.state == leaseReset { // its holder has the error
			l.state, l.settled = leaseSettled, m.Now
		}
		return backend.ErrNotHeld
	}
	l.state, l.settled = leaseSettled, m.Now
	for i := range l.held {
		h := &l.held[i]
		if h.mark && !absent || h.c.id.Kind == rule.KindInFlight {
			continue
		}
		n := h.cost
		if actual != nil {
			n = actual[i]
		}
		switch {
		case absent:
			m.record(h, n)
		case n < h.cost && h.d != nil:
			h.c.correct(h.d, m.Now, h.cost, n)
			l.Gave = l.Gave || !h.p.Shadow
		case n > h.cost:
			h.c.uneven = h.c.uneven || !h.listed(by) // the settler has other numbers
			m.record(h, n-h.cost)
		}
	}
	return nil
}

// listed reports whether a list has the count and the same numbers.
func (h *held) listed(by []backend.Policy) bool {
	return slices.ContainsFunc(by, func(p backend.Policy) bool {
		return p.Name == h.p.Name && p.Algorithm == h.p.Algorithm
	})
}

// record charges what was used beyond the estimate.
func (m *Model) record(h *held, n int64) {
	used := h.c.counts(m.Now, &h.p.Algorithm)
	n = max(0, min(n, h.p.Algorithm.MaxUsed()-used.Hi))
	if n > 0 {
		h.c.charge(m.Now, n, 0)
		h.c.exceeds(m.Now, &h.p.Algorithm)
	}
}

// free ends the slots: the call has ended, whatever its settle returns.
func (l *Lease) free() {
	for i := range l.held {
		if d := l.held[i].d; d != nil && d.ends != 0 {
			d.ends, d.units = 0, 0
		}
	}
}

// Extend moves the end of the lease to its length from now, and returns nil,
// backend.ErrLeaseEnded or backend.ErrNotHeld.
func (m *Model) Extend(l *Lease) error {
	switch {
	case l.state != leaseHeld || m.Now >= l.End+l.Length:
		return backend.ErrNotHeld
	case m.Now >= l.End:
		return backend.ErrLeaseEnded
	}
	l.End = m.Now + l.Length
	for i := range l.held {
		if d := l.held[i].d; d != nil && d.ends != 0 {
			d.ends = l.End
		}
	}
	return nil
}

// Open reports whether the lease, of an ID of the caller's, stands in the way of another one under
// that ID: until it is settled, or its end. A nil one was never reserved.
func (l *Lease) Open(now int64) bool {
	return l != nil && (l.state == leaseHeld || l.reset) && now < l.End
}

// Again takes a Reserve under the ID of an open lease. It returns nil if that is the same
// reservation, whose end moves.
func (m *Model) Again(l *Lease, part Part, length time.Duration) error {
	same := len(l.held) == len(part.Policies)
	for i := 0; same && i < len(l.held); i++ {
		h, p := &l.held[i], &part.Policies[i]
		same = h.c == m.count(part.Key, p, part.Shards) && (h.mark || h.cost == part.Costs[i])
	}
	switch {
	case !same:
		return backend.ReservedOtherwise()
	case l.reset:
		return backend.ErrNotHeld
	}
	l.Length = length.Microseconds()
	return m.Extend(l)
}

// SettleJob is Settle of a lease under an ID of the caller's.
func (m *Model) SettleJob(l *Lease, actual []int64, by []backend.Policy) error {
	if l == nil {
		return backend.ErrNotHeld
	}
	return m.Settle(l, actual, by)
}

// ExtendJob is Extend of a lease under an ID of the caller's.
func (m *Model) ExtendJob(l *Lease) error {
	if l == nil {
		return backend.ErrNotHeld
	}
	return m.Extend(l)
}

// Reset forgets the policies' counts for a key over so many shards, and ends the key's leases.
func (m *Model) Reset(key string, policies []backend.Policy, shards int) error {
	var err error
	for i := range policies {
		c := m.count(key, &policies[i], shards)
		if e := m.ledger[c].check(); e != nil {
			err = e
		}
		m.ledger[c].admitted = nil
		c.charges, c.uneven, c.over = nil, false, false
		if c.bucket != nil {
			c.bucket.events = nil
		}
	}
	kept := m.leases[key][:0]
	for _, l := range m.leases[key] {
		if l.held[0].c.shards != max(1, shards) {
			kept = append(kept, l) // it lies with other sub-keys
		} else if l.state == leaseHeld && m.Now < l.End+l.Length {
			l.state, l.reset = leaseReset, true
		}
	}
	m.leases[key] = kept
	return err
}

// Check returns the first count that let more pass than its algorithm allows.
func (m *Model) Check() error {
	for _, l := range m.ledger {
		if err := l.check(); err != nil {
			return err
		}
	}
	return nil
}

// ledger is what was admitted to one count and was used, by any limiter.
type ledger struct {
	widest   algo.Algorithm
	shadow   bool
	admitted []*debit
}

// asked widens the numbers to those of each asker.
func (l *ledger) asked(a algo.Algorithm) {
	switch {
	case l.widest == (algo.Algorithm{}):
		l.widest = a
	case a.Kind() == rule.KindTokenBucket:
		rate := a.Limit()
		rate.Events = max(rate.Events, l.widest.Limit().Events)
		l.widest = algo.TokenBucket(rate, max(a.Max(), l.widest.Max()))
	case a.Kind() == rule.KindLeakyQueue:
		rate := a.Limit()
		rate.Events = max(rate.Events, l.widest.Limit().Events)
		delay := max(longest(&a), longest(&l.widest))
		l.widest = algo.LeakyQueue(rate, max(a.Max(), l.widest.Max()), time.Duration(delay)*time.Microsecond)
	case a.Max() > l.widest.Max():
		l.widest = a
	}
}

func (l *ledger) admit(d *debit) { l.admitted = append(l.admitted, d) }

func (l *ledger) check() error {
	if l.shadow || l.widest.Kind() == rule.KindInFlight || len(l.admitted) == 0 {
		return nil
	}
	o, more := New(l.widest), int64(0) // units that were returned, of a charge that gave them back too
	for _, d := range slices.Backward(l.admitted) {
		n := d.units - d.returned - more
		if more = max(0, -n); n > 0 {
			o.Add(d.at, n)
		}
	}
	return o.Check()
}
