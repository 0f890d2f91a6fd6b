package headgate

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/event"
	"github.com/headgate-go/headgate/internal/wait"
)

// binding returns the key whose decision is that of the call. Keys that no store was
// asked for have no part in it.
func (ks keys) binding() (by *keyed) {
	for i := range ks {
		if k := &ks[i]; k.told && (by == nil || k.binds(by)) {
			by = k
		}
	}
	return by
}

// binds reports whether k's decision outranks that of an earlier key.
func (k *keyed) binds(earlier *keyed) bool {
	d, e := &k.decision, &earlier.decision
	switch mine, its := k.rank(), earlier.rank(); {
	case mine != its:
		return mine > its
	case d.Allowed:
		return mine <= 0 && d.Remaining < e.Remaining
	}
	return d.RetryAfter > e.RetryAfter
}

// rank orders the decisions: a counted denial first, then the denials by failure
// modes, the strictest first. Last come those by which the call passes uncounted. A key
// with only shadows comes last.
func (k *keyed) rank() int {
	switch d := &k.decision; {
	//mutant:shadow-key-binds-nothing
	case !slices.ContainsFunc(k.limiter.policies, func(p Policy) bool { return !p.Shadow }):
		return -1
	//mutant:counted-denial-wins
	case !d.Allowed && wait.Counted(d):
		return 5
	case d.Source == FromFailClosed:
		return 4
	case !d.Allowed:
		return 3
	case d.Source == FromFailLocal:
		return 2
	case d.Source == FromFailOpen:
		return 1
	}
	return 0
}

// granted returns what by grants, 0 where another key grants something else.
func (ks keys) granted(by *keyed) int64 {
	for i := range ks {
		//mutant:all-granted-differ
		if k := &ks[i]; k.told && k.decision.Granted != by.decision.Granted {
			return 0
		}
	}
	return by.decision.Granted
}

// storeTime returns the time in the stores: of the first key, and of the longest of
// the others, which were asked in parallel.
func (ks keys) storeTime() time.Duration {
	longest := int64(0)
	for i := range ks[1:] {
		longest = max(longest, ks[1+i].question.storeTime.Load())
	}
	return time.Duration(ks[0].question.storeTime.Load() + longest)
}

// observe passes the event of the call to the observer of the key that binds.
func (ks keys) observe(k *keyed, op backend.Op, took time.Duration, err error) {
	if k.limiter != nil && k.limiter.observer != nil {
		k.request.Op = op // a Take of several keys has reserved, or looked
		k.question.storeTime.Store(int64(ks.storeTime()))
		if err == nil {
			k.question.near, k.question.shadow = ks.near(&k.decision), ks.shadow()
		}
		k.limiter.observe(&k.question, took, err)
	}
}

// near returns those of all keys of a call whose limiters have an observer. d is the call's
// decision.
func (ks keys) near(d *Decision) (near []Near) {
	for i := range ks {
		k, own := &ks[i], d
		//mutant:near-by-own-decision
		if k.told { // else d is that of all keys at once
			own = &k.decision
		}
		if d.Allowed && k.limiter != nil && k.limiter.observer != nil && k.request.Each != nil {
			near = event.Near(near, k.limiter.near, k.behind, &k.request, own)
		}
	}
	return near
}

// shadow returns the decision of the shadow that binds, with its key, among all keys whose
// limiters have an observer. nil: no store has counted a shadow.
func (ks keys) shadow() (binds *Decision) {
	for i := range ks {
		k := &ks[i]
		if k.limiter == nil || k.limiter.observer == nil {
			continue
		}
		if d := event.Shadow(binds, &k.request, &k.decision); d != binds {
			d.Key, binds = k.request.Key, d
		}
	}
	return binds
}

// watch wants the states that the event of the call needs: of each key, since another one
// may bind.
func (k *keyed) watch() {
	l := k.limiter
	if l.observer == nil {
		return
	}
	//mutant:near-of-all-keys
	if k.observe(l); l.near > 0 && k.request.Each == nil {
		k.request.Each = make([]State, len(l.policies))
	}
}

// conclude gives back what was charged if the call is denied, and returns the first
// key's error.
func (ks keys) conclude(ctx context.Context) (err error) {
	for i := range ks {
		if k := &ks[i]; k.reservation != nil {
			k.reservation.unresolved = !wait.Counted(&k.decision)
		}
		if err == nil {
			err = ks[i].err
		}
	}
	if err == nil && ks.binding().decision.Allowed {
		return nil
	}
	for i := range ks {
		//mutant:all-denied-gives-back
		if k := &ks[i]; k.charged() {
			r := k.reservation.denied(&k.decision)
			// A call that waits asks again: it would be denied by its own charge.
			//mutant:wait-meets-itself
			if k.waits && !backend.Undecided(r.Cancel(context.WithoutCancel(ctx))) {
				continue
			}
			//mutant:all-cancels-beyond-background
			if !k.limiter.cancelling.Cancel(r.length, r.Cancel) {
				_ = r.Cancel(context.WithoutCancel(ctx))
			}
		}
	}
	return err
}

// charged reports whether the key may have been charged, by its store or here.
func (k *keyed) charged() bool {
	d := &k.decision
	return k.told && k.err == nil && k.request.Op.Opens() &&
		(d.Allowed && d.Source != FromFailOpen || !k.local && errors.Is(d.Err, ErrPerhapsCounted))
}
