package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
)

// healthyDecides looks at the calls that begin when everything has been well for a while.
func (w *World) healthyDecides() (err error) {
	calls, undecided := 0, 0
	w.noteFailures()
	w.outcomes(func(c *caller, o *outcome) {
		switch {
		case o.begin.Sub(w.start) < w.soon() || w.excused(o):
			return
		case o.bounded || o.op == backend.Settle:
			return
		case w.severalTrips(o):
			return
		}
		calls++
		if !o.decided() {
			undecided++
			err = cmp.Or(err, o.at(c))
		}
	})
	if w.plan.Far && undecided <= w.plan.spare(calls)+len(w.troubles) {
		return nil
	}
	return err
}

// severalTrips reports whether a call takes several round trips, for which the budget has no
// time over a far link. They are a sum, an All, and a First on a
// cluster.
func (w *World) severalTrips(o *outcome) bool {
	return w.plan.Far && (o.and != "" || w.plan.Shards > 1 || o.parts != nil && w.plan.Cluster)
}

// spare is how many of some calls may be undecided over a far link. The first call after a
// fault may need four round trips. A connection that was silent is tried, and a primary
// that is new has no script. The budget has time for two. It has time for one if the link
// is longer. Of callers that come at once, or to a full pool, only some find a connection in
// time.
func (p *Plan) spare(calls int) int {
	switch {
	case p.crowded():
		return calls * 4 / 5
	case p.Distant:
		return calls / 3
	}
	return calls / 20
}

// crowded reports whether a process has more calls than its connections carry over a far
// link.
func (p *Plan) crowded() bool { return p.Far && (p.Bursts || p.Single || p.Distant && p.Full) }

// decided reports whether the store has decided the call.
func (o *outcome) decided() bool {
	if o.verb == "named" && errors.Is(o.err, headgate.ErrNotHeld) {
		return true
	}
	if o.err != nil || o.d.Err != nil {
		return false
	}
	return o.d.Source == headgate.FromStore || o.d.Source == headgate.FromDenyCache || o.d.Source == headgate.FromLoan
}

// sentInTime looks for calls that were sent too late to be answered, when nothing that
// was sent got lost. Over a far link a round trip may take longer than the last ones did.
func (w *World) sentInTime() (err error) {
	calls, late := 0, 0
	w.outcomes(func(c *caller, o *outcome) {
		if o.begin.Sub(w.start) < calm || o.bounded || w.severalTrips(o) {
			return
		}
		if calls++; o.perhaps() && !w.excused(o) {
			late++
			err = cmp.Or(err, fmt.Errorf("%s at %v, one of %d: %v", c.name, o.begin.Sub(w.start), late, o))
		}
	})
	if w.plan.Far && late <= 2+calls/100 {
		return nil
	}
	return err
}

// shortNotSent looks for calls that were sent although their contexts ended before a reply
// could come. Their processes had just seen how long that takes.
func (w *World) shortNotSent() (err error) {
	if !w.plan.Far || w.plan.Borrow > 0 || w.plan.has("spread") {
		return nil
	}
	w.outcomes(func(c *caller, o *outcome) {
		short := o.bounded && !o.cancelled && o.perhaps() && o.begin.Sub(w.start) >= calm && o.end.Sub(o.begin) < 2*far
		if err == nil && o.verb == "do" && short && c.process.decided(o.key, o.begin.Add(-time.Second*9/10), o.begin) && !w.excused(o) {
			err = o.at(c)
		}
	})
	return err
}

// decided reports whether the store decided a call of a key that ended in a span of time.
func (p *process) decided(key string, from, to time.Time) bool {
	for _, c := range p.callers {
		for i := range c.calls {
			o := &c.calls[i]
			if o.key == key && o.err == nil && o.d.Source == headgate.FromStore && o.end.After(from) && o.end.Before(to) {
				return true
			}
		}
	}
	return false
}

// soon is when the first calls must be decided. Over a far link a connection takes longer
// to begin.
func (w *World) soon() time.Duration {
	if w.plan.Far {
		return calm
	}
	return time.Second
}

// excused reports whether a fault may be why a call was not decided, or was so a moment
// before it.
func (w *World) excused(o *outcome) bool {
	return slices.ContainsFunc(w.troubles, func(t *trouble) bool {
		if t.kind.ofLink() && t.proc >= 0 && t.proc != o.by.number {
			return false
		}
		until := t.to.Add(t.kind.calms())
		switch t.kind {
		case flush, stepping, moving: // which cost no decision, if there is time for another round trip
			if !w.plan.Far {
				return false
			}
		case revoking:
			if !slices.ContainsFunc(o.policies(), apart) {
				return false
			}
		case forgot: // a connection that fails shows how all others are
			if failed, ok := t.failed[o.by.number]; ok && failed.Add(recovered).Before(until) && !w.plan.Far {
				until = failed.Add(recovered)
			}
		}
		return !t.from.After(o.end) && !until.Before(o.begin)
	})
}

// calms is for how long after it everything need not be well.
func (k faultKind) calms() time.Duration {
	switch k {
	case swallowing:
		return 1500 * time.Millisecond
	case late:
		return time.Second
	}
	return calm
}

// recovered is how long after the first failure calls are decided again, if a middlebox
// has forgotten all connections.
const recovered = 2 * time.Second

// noteFailures notes of each time when connections to the one server were forgotten, when a
// call of each process failed first.
func (w *World) noteFailures() {
	for _, t := range w.troubles {
		if t.kind != forgot || w.plan.Cluster || w.besides(t) {
			continue
		}
		t.failed = map[int]time.Time{}
		w.outcomes(func(c *caller, o *outcome) {
			if first, ok := t.failed[o.by.number]; o.end.After(t.from) && o.d.Err != nil && (!ok || o.end.Before(first)) {
				t.failed[o.by.number] = o.end
			}
		})
	}
}

// besides reports whether another fault happened about when a fault did.
func (w *World) besides(t *trouble) bool {
	return slices.ContainsFunc(w.troubles, func(u *trouble) bool {
		return u != t && !u.from.After(t.from.Add(recovered)) && !u.to.Add(time.Second).Before(t.from)
	})
}

// troubled reports whether a fault concerned a process and a node, or any where the address
// is "", in a span of time.
func (w *World) troubled(proc int, addr string, from, to time.Time) bool {
	return w.troubledBy(func(faultKind) bool { return true }, proc, addr, from, to)
}

// troubledBy is troubled by some kinds of faults.
func (w *World) troubledBy(some func(faultKind) bool, proc int, addr string, from, to time.Time) bool {
	return slices.ContainsFunc(w.troubles, func(t *trouble) bool {
		if !some(t.kind) || t.proc >= 0 && t.proc != proc && t.kind.ofLink() {
			return false
		}
		if addr != "" && t.kind < stopped && addr != master && addr != named && t.node.addr != addr && w.partner(t.node).addr != addr {
			return false
		}
		return !t.from.After(to) && !t.to.Before(from)
	})
}

// opened is called when a circuit opens.
func (w *World) opened(proc int, addr string, cause error) {
	w.events.Lock()
	defer w.events.Unlock()
	now := time.Now()
	due := func(k faultKind) bool {
		return k != flush && k != stepping && k != moving && k != revoking && k != unowned
	} // which no server fails for
	if !w.troubledBy(due, proc, addr, now.Add(-calm), now) {
		w.fail("Only a node's own failure may open its circuit.", fmt.Errorf("process %d at %v: that of %s: %w", proc, now.Sub(w.start), addr, cause))
	}
}
