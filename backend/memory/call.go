package memory

import (
	"slices"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
)

// look is what a decision holds of one policy.
//
// begin sets the identity, find the record with its words, view the view. A record is valid
// until its table grows or loses one. So each step that may do so is followed by another
// find.
type look struct {
	id     identity
	shared *class  // whose overflow has the policy's record; nil: the key has its own
	holds  bool    // room is reserved for the record
	lacks  bool    // the policy is a shadow that has no room
	passed int64   // of a run: calls that it is charged if the run passes
	record *record // nil: none yet
	words  []int64 // the algorithm's words of the record, or none
	view   rule.View
	lent   *rule.Lent // what processes hold of the count in advance; nil: nothing
	toWall int64      // of a policy that follows the wall clock, what its instants are ahead of the store's
}

// call is one request under the lock of its key's stripe. It looks at every
// policy before it charges any. (The looks are no field: they would escape.)
//
// now is in microseconds of the Unix epoch by the store's clock, and is set under the lock.
// A call is used by one goroutine and never kept.
type call struct {
	backend.Group // a copy: a pointer to it would put each request on the heap
	op            backend.Op
	lease         *backend.Lease
	loan          *backend.Loan
	store         *Store
	stripe        *stripe
	hash          hash
	now           int64
	reserved      int    // records that count as kept and are not made yet
	full          *class // whose event is due: its keys share a count
	looks         bool   // a Settle that looks at what it has left
}

// begin makes the zero c a call of the group, with a look for each policy.
//
// It runs before the lock is taken, so that others do not wait for the hashing.
func (s *Store) begin(c *call, op backend.Op, g *backend.Group, looks []look) error {
	c.Group, c.op, c.store, c.hash = *g, op, s, s.hash(g)
	c.stripe = &s.stripes[c.stripeAt()]
	for i := range looks {
		looks[i].id = s.identityOf(&g.Policies[i], g.Sub)
		for j := range looks[:i] {
			if looks[j].id == looks[i].id { // of a request that no limiter made
				name := g.Policies[i].Name
				return &backend.InvalidError{What: "policy name", Value: name, Want: "a name of its own, it is listed twice"}
			}
		}
	}
	return nil
}

// stripeAt returns the index of the key's stripe.
func (c *call) stripeAt() int { return c.store.stripeAt(c.hash) }

// none are the words of a key without a record. Looking never writes.
var none [rule.MaxBuckets + 4]int64

// find finds the records of all policies and returns how many the key has none
// of.
//
// It may be called again: it forgets what an earlier call of it has found. The words of a
// missing record are zeros, which every algorithm reads as a new key.
func (c *call) find(looks []look) (missing int) {
	for i := range looks {
		l := &looks[i]
		l.lent = nil
		st, h := c.place(l.id, l.shared)
		if l.record = st.mu.records.find(h); l.record != nil {
			l.words = st.words(h, l.id, l.record)
			if st.mu.lent != nil {
				l.lent = st.mu.lent[h]
			}
			continue
		}
		l.words = none[:c.Policies[i].Algorithm.Words()]
		missing++
	}
	return missing
}

// reserve finds the records of all policies, and reserves room for those that are missing. It
// reports whether there was room for all.
//
// The search for room may remove an idle record that find has found, and grow moves all of
// them. So the loop finds anew after each reservation. It ends, since each turn reserves
// one more, and no more can be missing than there are policies.
func (c *call) reserve(looks []look) bool {
	for c.reserved < c.find(looks) {
		i := slices.IndexFunc(looks, func(l look) bool { return l.record == nil && !l.holds })
		if !c.store.reserve(c.stripe, c.now, c.class(i)) {
			return false
		}
		looks[i].holds = true
		c.reserved++
		c.stripe.mu.records.grow(c.reserved)
	}
	return true
}

// unreserve gives back the room that was reserved for records which were not made.
func (c *call) unreserve(looks []look) {
	for i := range looks {
		if l := &looks[i]; l.holds {
			l.holds = false
			c.store.unreserve(c.class(i))
		}
	}
	c.reserved = 0
}

// place returns where the record of an identity is, and by which hash: in the
// overflow all keys of a class have one record.
func (c *call) place(id identity, shared *class) (*stripe, hash) {
	if shared != nil {
		return &c.store.overflow, shared.overflow.of(id)
	}
	return c.stripe, c.hash.of(id)
}

// look views every policy and reports whether all but the shadows have room.
//
// It writes nothing but what lent units have become, so a call that is denied changes no
// count.
func (c *call) look(looks []look) (fits bool) {
	fits = true
	for i := range looks {
		p, l := &c.Policies[i], &looks[i]
		c.view(l, &p.Algorithm)
		switch room := p.Algorithm.Fits(&l.view, c.CostOf(i)); {
		//mutant:shadow-denies-nothing
		case p.Shadow:
			l.lacks = !room
		case !room:
			fits = false
		}
	}
	return fits
}

// view views one policy, by the clock that it follows.
//
// Loans that have ended are charged first: the view must not show those
// units as free.
func (c *call) view(l *look, a *rule.Algorithm) {
	l.toWall = c.toWall(a)
	if l.lent != nil {
		c.fold(l, a)
	}
	a.Look(&l.view, l.words, c.now+l.toWall)
	if l.lent != nil {
		l.view.Beside = l.lent
	}
}

// toWall returns what the clock that an algorithm follows is ahead of now.
func (c *call) toWall(a *rule.Algorithm) int64 {
	if !a.FollowsWallClock() {
		return 0
	}
	return c.store.clock.toWall(c.now)
}

// finish charges all policies or none, and keeps the lease of what it charged. A shadow
// without room is charged nothing, but by a Record.
//
// Room that was reserved for records which were not made in the end is given back here. So
// each path that reserves must end here, or give the room back by itself.
func (c *call) finish(take bool, looks []look, readings []backend.Reading) {
	for i := range looks {
		//mutant:shadow-charged-by-room
		if take && c.CostOf(i) > 0 && (!looks[i].lacks || c.op.Records()) {
			readings[i] = c.take(&looks[i], i)
		} else {
			readings[i] = c.read(&looks[i], i)
		}
		if take && c.Run > 0 {
			c.ran(&looks[i], i, &readings[i])
		}
	}
	c.unreserve(looks)
	if take && c.lease != nil {
		c.keep(looks)
	}
}

// take charges one policy, and makes its record if it has none.
//
// A plain Take is charged without charge, which is a switch over all other operations:
// nearly every call is one.
func (c *call) take(l *look, i int) backend.Reading {
	a := &c.Policies[i].Algorithm
	st, h := c.place(l.id, l.shared)
	if l.record == nil {
		l.record = st.insert(h, l.id, a.Words(), c.class(i))
		l.words = st.words(h, l.id, l.record)
		if l.shared == nil {
			c.reserved--
			l.holds = false
		}
	}
	if c.op == backend.Take {
		st.setWords(h, l.id, a.Take(l.words, &l.view, c.CostOf(i)))
	} else {
		st.setWords(h, l.id, c.charge(l, i))
	}
	r := l.reading(a)
	if c.op.Decides() {
		r.Delay = a.Delay(&l.view, 0)
	}
	st.stays(l.record, r.ResetAt)
	return r
}

// read returns a policy's state where nothing is charged.
//
// The exact instant of a retry is searched for only if the cost does not fit, since a log
// is searched for it.
func (c *call) read(l *look, i int) backend.Reading {
	a := &c.Policies[i].Algorithm
	r := l.reading(a)
	//mutant:denied-overflow-stays
	if c.op.Charges() && l.record != nil {
		l.record.stay(r.ResetAt) // a count that denies stays while it does, by this call's numbers
	}
	if c.op.Decides() {
		n := c.CostOf(i)
		if c.Policies[i].Shadow {
			n /= max(1, l.passed) // of one call
		}
		c.retry(l, i, n, &r)
	}
	return r
}

// retry reads when the policy has room for n units, if it has none. It recalls what is lent if
// that is all that it lacks.
func (c *call) retry(l *look, i int, n int64, r *backend.Reading) {
	a := &c.Policies[i].Algorithm
	if a.Fits(&l.view, n) {
		if n > 0 && !c.op.Charges() {
			r.Delay = a.Delay(&l.view, n)
		}
		return
	}
	r.RetryAt, r.Level = a.RetryAt(l.words, &l.view, n)-l.toWall, a.Level(&l.view)
	//mutant:denial-recalls
	if l.lent != nil && c.op.Charges() && !c.Policies[i].Shadow && l.view.Used+n <= a.Max() {
		l.lent.Recall(a, c.now+l.toWall, n)
	}
}

// reading returns what the view amounts to, by the store's clock.
func (l *look) reading(a *rule.Algorithm) backend.Reading {
	r := backend.Reading{Used: a.Shown(&l.view), Lent: l.view.Lent(), ResetAt: a.ResetAt(&l.view)}
	if r.ResetAt > 0 {
		r.ResetAt -= l.toWall
	}
	return r
}

// giveOut takes the costs out of what the policies count. What keys share in a full store counts
// the units of each.
func (c *call) giveOut(looks []look) {
	for i := range looks {
		a, l := &c.Policies[i].Algorithm, &looks[i]
		if l.record == nil {
			continue
		}
		st, h := c.place(l.id, l.shared)
		l.words = a.Return(l.words, &l.view, c.CostOf(i))
		st.setWords(h, l.id, l.words)
		c.view(l, a)
	}
}

// charges reports whether a call that is no take charges, where all policies have room
// for its costs or not.
func (c *call) charges(looks []look, fits bool) bool {
	return c.op.Records() || c.op.Charges() && fits
}

// charge charges one policy of a call that is no take, and returns the words.
//
// A slot is named by the second half of the lease's ID, by which a Settle or an Extend
// finds it.
func (c *call) charge(l *look, i int) []int64 {
	a, n := &c.Policies[i].Algorithm, c.CostOf(i)
	switch {
	case a.Kind().Leased():
		return a.Hold(l.words, &l.view, c.now+c.lease.Length.Microseconds(), halves(c.lease.ID)[1])
	case c.op.Records():
		n = a.Recorded(&l.view, n)
	case c.op.Opens():
		return a.Reserve(l.words, &l.view, n)
	}
	return a.Take(l.words, &l.view, n)
}

// run makes the costs those of the calls of a run that are charged. Those are all, or of an UpTo
// as many as the enforced policies have room for. Of a shadow they are the first of these that it
// has room for. If there are none, the costs are those of one call.
func (c *call) run(looks []look) {
	costs, passed := slices.Repeat([]int64{c.Cost}, len(looks)), c.Run
	copy(costs, c.Costs)
	room := func(i int) int64 {
		switch a, v := &c.Policies[i].Algorithm, &looks[i].view; {
		case !a.Fits(v, costs[i]):
			return 0
		case costs[i] > 0:
			return (a.Max() - v.Counts()) / costs[i]
		}
		return c.Run
	}
	for i := range looks {
		switch shadow := c.Policies[i].Shadow; {
		case shadow && !c.UpTo:
			costs[i] /= c.Run
		case !shadow && c.UpTo:
			passed = min(passed, room(i))
		}
	}
	for i := range looks {
		l, shadow := &looks[i], c.Policies[i].Shadow
		if l.passed = passed; shadow {
			l.passed = min(passed, room(i))
			l.lacks = l.passed == 0
		}
		if shadow || c.UpTo {
			costs[i] *= max(1, l.passed)
		}
	}
	c.Costs = costs
}

// ran reads how many calls of a run the policy was charged, and when it has room for the next
// one, if some are left.
func (c *call) ran(l *look, i int, r *backend.Reading) {
	if r.Passed = l.passed; l.passed < c.Run {
		if l.record != nil {
			st, h := c.place(l.id, l.shared)
			l.words = st.words(h, l.id, l.record)
		}
		c.view(l, &c.Policies[i].Algorithm) // with what was charged
		c.retry(l, i, c.CostOf(i)/max(1, l.passed), r)
	}
}
