package denial

import (
	"math/bits"
	"slices"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// After a denial a TokenBucket refills at a known rate, up to its burst. Calls that the
// denial does not count take units of that.

// farAway is a time that no denial stands for. Sums of a few of them don't overflow.
const farAway = 1 << 60

// binding returns the only policy that has denied, or -1 where several have.
func (e *entry) binding() int {
	if i := bits.TrailingZeros64(e.Bound); e.Bound == 1<<i {
		return i
	}
	return -1
}

// bound returns which policy of g is the only one that has denied, -1 if none is. It is
// one count in each list that has it.
func (e *entry) bound(g *backend.Group) int {
	i := e.binding()
	//mutant:denial-of-a-count
	if i < 0 || !e.of(g) {
		return -1
	}
	p := &e.group.Policies[i]
	if i < len(g.Policies) && layer.AlikePolicies(*p, g.Policies[i]) { // nearly always
		return i
	}
	return slices.IndexFunc(g.Policies, func(q backend.Policy) bool { return layer.AlikePolicies(*p, q) })
}

// refills reports whether what comes free after the denial is known.
func (e *entry) refills() bool {
	i := e.binding()
	return i >= 0 && e.group.Policies[i].Algorithm.Kind() == rule.KindTokenBucket
}

// refill returns in how many nanoseconds n units come free; 0 if that is not known.
func (e *entry) refill(n int64) int64 {
	if !e.refills() {
		return 0
	}
	//mutant:refill-is-bounded
	return min(e.group.Policies[e.binding()].Algorithm.Refills(n), farAway)
}

// empty returns when nothing was free, by the denial itself: it ends when its costs are.
func (e *entry) empty() time.Duration {
	if !e.refills() {
		return e.Ends
	}
	return e.Ends - time.Duration(e.refill(e.Costs[e.binding()]))
}

// overflowed returns what calls have taken, or what a full bucket has not kept.
func (e *entry) overflowed(taken int64, now time.Duration) int64 {
	if e.refills() {
		//mutant:full-bucket-keeps-no-more
		taken = max(taken, int64(now-e.empty())-e.refill(e.group.Policies[e.binding()].Algorithm.Max()))
	}
	return taken
}

// until returns when n units are free, of which calls have taken some.
func (e *entry) until(taken, n int64) time.Duration {
	//mutant:dearer-call-comes-later
	return e.empty() + time.Duration(taken+e.refill(n))
}

// slack returns how much sooner than the denial shows a call may pass that does not refute it.
// The store's times are whole microseconds, of which a millisecond has room for many. Each
// share of a spread key may have lacked as little as the first one, which the denial is of.
func (e *entry) slack() time.Duration {
	//mutant:shares-refill-at-once
	others := max(0, int64(e.group.Shards)-1)
	return time.Millisecond + time.Duration(e.refill(others*e.Costs[e.binding()]))
}

// take notes that a call has taken n units at now. It returns false, and notes nothing, if
// the denial shows that fewer are free, for longer than the slack.
func (e *entry) take(n int64, now, slack time.Duration) bool {
	for {
		old := e.taken.Load()
		taken := e.overflowed(old, now)
		//mutant:pass-refutes
		if now+slack < e.until(taken, n) {
			return false
		}
		//mutant:refill-taken-once
		if e.taken.CompareAndSwap(old, taken+e.refill(n)) {
			return true
		}
	}
}

// inherit notes what calls have taken by a denial of the same count from before.
func (e *entry) inherit(old *entry) {
	owed := e.owes(old)
	e.taken.Store(max(e.taken.Load(), owed))
	//mutant:uncounted-kept
	if owed > 0 && old.uncounted.Load() {
		e.uncounted.Store(true)
	}
}

// owes returns what calls have taken by the denial of the same count from before, and the
// store had not counted. If none have and e ends sooner, the key was changed elsewhere.
func (e *entry) owes(old *entry) int64 {
	taken := old.taken.Load()
	//mutant:taken-kept
	if taken == 0 || !e.refills() || !old.refills() || e.bound(&old.group) != old.binding() {
		return 0
	}
	return int64(old.empty()-e.empty()) + taken
}
