package wire

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/names"
)

// What stands in a reply for a group of which nothing was decided.
const (
	// Each is one byte. None of them can begin an answer, which begins with a byte below
	// 32.
	refused = 'R'
	corrupt = 'C'
	outside = 'B' // now lies outside of the boundaries that were sent
	failed  = 'E' // and a line: which command failed, and why
	notHeld = 'N'
	ended   = 'L'
	held    = 'H' // and its end was moved
)

// Read reads a reply into the calls of the groups that it is to. An error means
// that it is no answer at all: what it is to is perhaps counted.
//
// The groups are read in the order in which Set has sent them. What is left over at the end
// is an error too: then some group was read wrongly.
func (a *Args) Read(reply string) error {
	r := &reader{rest: reply, prefix: a.prefix}
	r.now = r.number() * 1_000_000 // seconds
	r.take(1)                      // a space
	r.now += r.number()            // all of a virtual clock's
	for _, g := range a.Groups {
		if g.And == nil {
			g.read(r, g.asks())
		} else {
			g.readJoint(r)
		}
		if g.Then != nil {
			g.Then.read(r, backend.Peek)
		}
	}
	if r.rest != "" {
		return errMalformed
	}
	return r.err
}

// read reads the answer to a group that was asked for op, and reports whether all calls
// have room.
//
// An error of one group leaves the others as they are. One letter stands for it, so the
// next group begins right behind.
func (g *Group) read(r *reader, op backend.Op) (room bool) {
	if r.rest == "" {
		r.err = errMalformed
		return false
	}
	var err error
	switch r.rest[0] {
	case failed:
		why, _, _ := strings.Cut(r.rest[1:], "\n")
		err = fmt.Errorf("%w: %s", backend.ErrUnavailable, why)
		r.take(1 + len(why))
	case corrupt:
		err = &backend.CorruptError{Key: g.Key, Stored: g.stored(r.prefix)}
	case outside:
		err = g.askAgain(r.now)
	case refused:
		if g.Op.Opens() && g.Calls[0].lease.Named {
			err = backend.ReservedOtherwise()
			break
		}
		err = &backend.InvalidError{What: "request", Value: g.Op, Want: "numbers that the script takes"}
	case held:
		err = backend.ErrHeld
	case notHeld:
		err = backend.ErrNotHeld
	case ended:
		err = backend.ErrLeaseEnded
	default:
		return g.replay(r, op)
	}
	r.take(1)
	for _, c := range g.Calls {
		c.Err = err
	}
	return false
}

// readJoint reads the answers to groups of one request. Those that are decided all or nothing are
// read as those of looks, and where all have room once more as charges. Alternatives follow up to
// the first that has room, or that ends the request.
//
// The script has looked at all groups before it charged any, so the reply holds each state
// once. The first pass finds whether all have room, and the second one reads the same bytes
// as charges. Errors are the first group's: it has the only caller.
func (g *Group) readJoint(r *reader) {
	op, all, again := backend.Peek, g.alternatives(), false
	if g.asks().Ends() {
		op = g.asks()
	}
	for _, h := range slices.Concat(all...) {
		h.Calls[0].readings = h.Calls[0].readings[:0] // of alternatives that are not decided
	}
	g.Calls[0].Err = readAlternatives(r, op, all, &again)
	if g.Again = again; again { // all have boundaries around one clock
		for _, h := range slices.Concat(all...) {
			h.Now = r.now
		}
	}
}

// readAlternatives reads the answers, and returns why no alternative was decided. It sets again if
// a group wants other boundaries.
func readAlternatives(r *reader, op backend.Op, all [][]*Group, again *bool) (err error) {
	decided := false
	for _, together := range all {
		from, room, bad, stops := *r, op == backend.Peek, error(nil), false
		for _, h := range together {
			stops = stops || r.stops(together[0].Stops)
			room = h.read(r, op) && room
			bad, *again, h.Again = cmp.Or(bad, h.Calls[0].Err), *again || h.Again, false
		}
		if err = cmp.Or(err, bad); r.err != nil || op.Ends() {
			continue
		}
		switch decided = decided || bad == nil; {
		case room:
			for *r = from; len(together) > 0; together = together[1:] {
				together[0].read(r, together[0].asks())
			}
			return nil
		//mutant:alternative-stops
		case stops:
			return bad
		case bad != nil:
			for _, h := range together {
				h.Calls[0].readings = h.Calls[0].readings[:0]
			}
		}
	}
	if decided {
		return nil
	}
	return err
}

// stops reports whether the answer that follows ends a request of alternatives: it is refused, or
// sent again. An alternative that can't be decided ends it if strict says so.
func (r *reader) stops(strict bool) bool {
	switch {
	case r.rest == "" || r.rest[0] < ' ':
		return false
	case r.rest[0] == corrupt || r.rest[0] == failed:
		return strict
	}
	return true
}

// askAgain marks a group to be sent again with the boundaries around the script's now.
// It was sent with those around the caller's clock. It is sent again once: another
// time would not help.
func (g *Group) askAgain(now int64) error {
	//mutant:boundaries-sent-twice
	if g.Now > 0 {
		return fmt.Errorf("%w: the server's clock is at %v, outside of the boundaries around %v",
			backend.ErrUnavailable, time.UnixMicro(now), time.UnixMicro(g.Now))
	}
	g.Now, g.Again = now, true
	return nil
}

// replay decides the calls again from what they met, with the functions that the
// memory store runs: the script has decided the same. Calls of equal costs are a run. Of
// a run some pass, and each shadow charges the first of those that it has room for. The
// rest of the run meet the same, and the script has answered once for them.
//
// The views are the state before the first call. Each call that passes changes them, as it
// has changed the stored state in the script.
func (g *Group) replay(r *reader, op backend.Op) (room bool) {
	if op == backend.Borrow {
		return g.readLoan(r)
	}
	var some [4]rule.View // on the stack, where they are few
	views := some[:0]
	if !op.Costs() {
		r.stored()
	} else {
		for i := range g.Policies {
			views = append(views, r.view(&g.Policies[i].Algorithm))
		}
	}
	room = true
	for calls := g.Calls; len(calls) > 0 && r.err == nil; {
		n := run(calls)
		room = g.replayRun(r, op, calls[:n], views)
		calls = calls[n:]
	}
	return room
}

// replayRun decides calls of equal costs, and reports whether the last one passed.
//
// The reply has one instant at which each policy of a kind that keeps many words will have
// room. It is that of the run's last call. All calls of the run that were denied are denied
// in the same state, so it holds for them too.
func (g *Group) replayRun(r *reader, op backend.Op, calls []*Call, views []rule.View) (passed bool) {
	for _, c := range calls {
		takes := g.fit(c, views)
		passed = op.Records() || takes > 0
		c.Err, c.now = nil, r.now
		c.readings = append(c.readings[:0], make([]backend.Reading, len(g.Policies))...) // without an allocation
		for p := range views {
			a, v, reading := &g.Policies[p].Algorithm, &views[p], &c.readings[p]
			n, asked, passes := c.costs[p], c.takes*c.calls, takes*c.calls
			units := n * max(1, takes)
			if c.calls > 0 && g.Policies[p].Shadow && n > 0 {
				passes = min(passes, max(0, a.Max()-v.Counts())/n)
				units = n * passes
			}
			lacks := op.Decides() && !a.Fits(v, n)
			if !lacks && (passed || !op.Charges()) {
				c.charge(op, a, v, units, r.now)
				reading.Delay = g.delay(op, a, v, n)
				reading.Passed, lacks = passes, passes < asked && !a.Fits(v, n)
			}
			if lacks {
				reading.RetryAt, reading.Level = unread, a.Level(v)
			}
			reading.Used, reading.Lent, reading.ResetAt = a.Shown(v), v.Lent(), a.ResetAt(v)
		}
	}
	last := calls[len(calls)-1]
	for p := range views {
		if last.readings[p].RetryAt != unread {
			continue
		}
		at := r.retryAt(&g.Policies[p].Algorithm, &views[p], last.costs[p])
		for i := len(calls) - 1; i >= 0 && calls[i].readings[p].RetryAt == unread; i-- {
			calls[i].readings[p].RetryAt = at
		}
	}
	return passed
}

// unread stands for when a policy has room until it is read.
// It is below every instant.
const unread = -1

// fit returns how many takes of the call all policies but the shadows have room for.
func (g *Group) fit(c *Call, views []rule.View) int64 {
	takes := c.takes
	for p := range views {
		switch a, v, n := &g.Policies[p].Algorithm, &views[p], c.costs[p]; {
		case g.Policies[p].Shadow:
		case !a.Fits(v, n):
			return 0
		case takes > 1 && n > 0:
			takes = min(takes, (a.Max()-v.Counts())/n)
		}
	}
	return takes
}

// charge charges a call that fits to the view.
//
// It is the twin of memory's call.charge on a view in place of a record.
func (c *Call) charge(op backend.Op, a *rule.Algorithm, v *rule.View, n, now int64) {
	switch {
	case n == 0 || !op.Charges():
	case op.Records():
		a.Add(v, a.Recorded(v, n))
	case a.Kind().Leased(): // which only a Reserve charges
		a.Held(v, now+c.lease.Length.Microseconds())
	case op.Opens():
		a.AddReserved(v, n)
	default:
		a.Add(v, n)
	}
}

// delay returns how long a call of n units waits that was charged, or a look that found room.
func (g *Group) delay(op backend.Op, a *rule.Algorithm, v *rule.View, n int64) int64 {
	switch {
	case n == 0 || !op.Decides():
		return 0
	case op.Charges():
		n = 0
	//mutant:look-delays-nothing
	case g.asks().Charges(): // one of several keys: it is read as charged if all have room
		return 0
	}
	return a.Delay(v, n)
}

// readLoan reads the answer to a Borrow, and reports whether its cost passed.
//
// The state of each policy is that after the Borrow, with the units that it lent. So
// nothing is charged here, unlike in replay.
func (g *Group) readLoan(r *reader) bool {
	c := g.Calls[0]
	head := r.take(3)
	if head == "" {
		return false
	}
	units, ends, borrowers := r.whole(), r.whole(), r.whole()
	c.loan.Lent = backend.Lent{Settled: backend.Settled(head[1] & 3), Borrowers: borrowers, Recalled: head[1] > 3}
	if units > 0 {
		c.loan.Lent.Units, c.loan.Lent.Ends = units, time.Duration(ends)*time.Microsecond
	}
	c.Err, c.now = nil, r.now
	c.readings = append(c.readings[:0], make([]backend.Reading, len(g.Policies))...)
	if shadowed(g.Policies) {
		c.loan.Each = slices.Repeat([]int64{units}, len(g.Policies))
	}
	for p := range g.Policies {
		a, reading := &g.Policies[p].Algorithm, &c.readings[p]
		had := r.stored()
		if g.Policies[p].Shadow {
			c.loan.Each[p] = r.whole()
		}
		v := r.view(a)
		reading.Used, reading.Lent, reading.ResetAt = v.Counts(), v.Lent(), a.ResetAt(&v)
		if !had {
			reading.RetryAt, reading.Level = r.retryAt(a, &v, c.costs[p]), a.Level(&v)
		}
	}
	return head[2] == 1
}

// stored names where a value of the group may lie.
// It is for the text of an error: an operator looks there for the value that is not
// Headgate's.
func (g *Group) stored(p names.Prefix) string {
	var at []string
	for i := range g.Policies {
		if at = append(at, p.Hash(g.Tag)); names.Apart(&g.Policies[i]) {
			at[i] = p.Log(g.Tag, &g.Policies[i])
		}
	}
	return strings.Join(slices.Compact(at), " or ")
}
