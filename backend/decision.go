package backend

import (
	"errors"
	"math"
	"time"

	"github.com/headgate-go/headgate/algo"
)

// Decision is the answer to a request and the numbers that a client needs.
// The zero Decision is a denial.
type Decision struct {
	Allowed   bool
	Estimated bool          // the numbers are not the store's of now: of a moment ago or, where Counted is false, unknown
	Source    Source        // what made the decision
	State                   // of the policy that binds
	Key       string        // the key that binds, where the request has several; else ""
	At        int           // the group of that key: 0 is the request's own, 1 the first of And
	Passed    int64         // calls of a run that passed, counted or not; 0 if the request is no run
	NextAfter time.Duration // of a run that passed in part: until the next of its calls passes if no other call takes
	Receipt   *Receipt      // the request's own, filled; nil where none was asked for
	Err       error         // the cause, where no store decided; nil where one did, and for FromDenyCache
}

// State is one policy's count of a key. On a pass it includes the call; on a
// denial, and for a peek, it does not.
//
// Where Counted is false no store counted: under FailOpen and FailClosed, and
// under FailLocal for the policies that fail open. Then Used, Remaining and
// ResetAfter are unknown. They are 0 and mean nothing; do not send them to a
// client. Limit is set. RetryAfter of a denial is when to ask again.
type State struct {
	Policy     string
	Counted    bool          // Used, Remaining and ResetAfter are known: by the store, or under FailLocal by this process
	Passed     int32         // of a run: calls that the policy was charged, 2^31 - 1 if more
	Limit      int64         // units: the window's limit, or the bucket's burst
	Used       int64         // units that count now, rounded up
	Lent       int64         // of these: units that processes hold in advance, see Policy.Borrow
	Remaining  int64         // units that would pass now, never negative
	RetryAfter time.Duration // until this cost passes if no other call takes; 0 where it passes now
	ResetAfter time.Duration // until nothing is counted any more

	level int64 // of a TokenBucket that has denied, 0 of a spread key; see PassesAfter
}

// Receipt is what a later correction of one take needs to give back only what
// still counts.
type Receipt struct {
	Key     string
	Sub     string  // the sub-key of a hot key that was charged
	At      []int64 // per policy, the instant that the charge counts from: microseconds of the Unix epoch, by the store's clock
	Costs   []int64 // units, one per policy; nil where every policy was charged Cost
	Cost    int64   // units of every policy, where Costs is nil; of a run UpTo those of one call
	Outcome Outcome
}

// Outcome is whether a charge counts, as far as it is known.
type Outcome uint8

// The outcomes of a charge.
const (
	NotTaken Outcome = iota // nothing was counted
	Taken                   // it counts
	Unknown                 // the request was sent and no answer came
)

// Reading is what one policy's state amounts to in one decision, in the
// store's own instants. Stores make one per policy, and Decide turns them into the
// answer, so that every store answers alike.
type Reading struct {
	At      int64 // instant that a charge counts from
	Used    int64 // units, after the take where it passed
	Lent    int64 // of these: units that are lent
	RetryAt int64 // instant at which this cost passes; 0 where this policy has room
	ResetAt int64 // instant at which the key is unused
	Level   int64 // of a TokenBucket that has denied, as algo.Algorithm.Level returns it
	Passed  int64 // of a run: calls that it is charged
}

// Decide writes the answer to g at the instant now, with one reading per policy,
// to the zero Decision. It picks the binding policy and fills g.Each and
// g.Receipt.
func (g *Group) Decide(op Op, now int64, readings []Reading, d *Decision) {
	by, passed := &g.Policies[0], readings[0].Passed
	by.state(&d.State, now, &readings[0]) // in place: most requests have one policy
	if g.Each != nil {
		g.Each[0] = d.State
	}
	for i := 1; i < len(readings); i++ {
		var s State
		p := &g.Policies[i]
		p.state(&s, now, &readings[i])
		if g.Each != nil {
			g.Each[i] = s
		}
		if p.binds(&s, by, &d.State) {
			d.State, by, passed = s, p, readings[i].Passed
		}
	}
	by.admit(g, passed, d)
	if op.Charges() {
		g.charge(d, readings)
	}
}

// admit makes the decision of the state that binds. That of a shadow denies nothing. A run
// passes with its first call, and the state is that of the call that is denied.
func (p *Policy) admit(g *Group, passed int64, d *Decision) {
	//mutant:shadows-pass-alone
	if p.Shadow {
		d.RetryAfter, passed = 0, g.Run
	}
	if d.Passed, d.Allowed = passed, d.RetryAfter == 0 || passed > 0; d.Allowed {
		d.NextAfter, d.RetryAfter = d.RetryAfter, 0
	}
}

// DecideKeys writes the answer to a request of several keys as Group.Decide does that to
// one of one key. The readings are one per policy of every group. It names the key
// and the group that bind.
func (r *Request) DecideKeys(now int64, readings [][]Reading, d *Decision) {
	var by *Policy
	for i := range readings {
		g := r.GroupAt(i)
		for j := range g.Policies {
			var s State
			p := &g.Policies[j]
			p.state(&s, now, &readings[i][j])
			if g.Each != nil {
				g.Each[j] = s
			}
			if by == nil || p.binds(&s, by, &d.State) {
				//mutant:binding-key-named
				d.State, d.Key, d.At, by = s, g.Key, i, p
			}
		}
	}
	by.admit(&r.Group, 0, d)
	for i := len(readings) - 1; i >= 0 && r.Op.Charges(); i-- {
		r.GroupAt(i).charge(d, readings[i]) // the request's own receipt is the last
	}
}

// GroupAt returns the group of the request's i-th key: 0 is its own Group, 1 the first
// of And.
func (r *Request) GroupAt(i int) *Group {
	if i == 0 {
		return &r.Group
	}
	return &r.And[i-1]
}

func (p *Policy) state(s *State, now int64, r *Reading) {
	limit := p.Algorithm.Max()
	s.Policy, s.Counted = p.Name, true
	s.Limit = limit
	s.Used, s.Lent = r.Used, r.Lent
	s.Remaining = max(0, limit-r.Used)
	s.RetryAfter = until(r.RetryAt, now)
	s.ResetAfter = until(r.ResetAt, now)
	s.level, s.Passed = r.Level, int32(min(r.Passed, math.MaxInt32))
}

// PassesAfter returns the time until n units pass by the state of a TokenBucket that has denied
// fewer. It is 0 if the state does not determine it.
func PassesAfter(a *algo.Algorithm, s *State, n int64) time.Duration {
	if n <= s.Remaining || s.level == 0 {
		return 0
	}
	return s.ResetAfter - time.Duration(a.FitsBefore(s.level, n))*time.Microsecond
}

// Binding returns which of a key's states, one per policy in the order listed,
// binds. Of a denial it is the longest RetryAfter, of a pass the least Remaining, of
// equals the first. A shadow binds only if all policies are shadows.
func Binding(policies []Policy, states []State) int {
	i := 0
	for j := range states {
		if policies[j].binds(&states[j], &policies[i], &states[i]) {
			i = j
		}
	}
	return i
}

// binds reports whether p's state binds rather than that of an earlier policy.
func (p *Policy) binds(s *State, before *Policy, earlier *State) bool {
	//mutant:shadow-binds-nothing
	if p.Shadow != before.Shadow {
		return before.Shadow
	}
	return binds(s, earlier)
}

// binds reports whether s binds rather than an earlier one. A state with a
// RetryAfter denies, and outranks every state without.
func binds(s, earlier *State) bool {
	if s.RetryAfter != earlier.RetryAfter {
		return s.RetryAfter > earlier.RetryAfter
	}
	//mutant:first-listed-binds
	return s.RetryAfter == 0 && s.Remaining < earlier.Remaining
}

func (g *Group) charge(d *Decision, readings []Reading) {
	if d.Receipt = g.Receipt; g.Receipt == nil {
		return
	}
	g.NewReceipt(NotTaken)
	if d.Allowed {
		g.Receipt.Outcome = Taken
		for i := range readings {
			g.Receipt.At = append(g.Receipt.At, readings[i].At)
		}
	}
}

// NewReceipt fills g.Receipt for a take with this outcome, if it is wanted, and
// keeps the room of its At.
func (g *Group) NewReceipt(o Outcome) {
	if g.Receipt != nil {
		*g.Receipt = Receipt{Key: g.Key, Sub: g.Sub, At: g.Receipt.At[:0], Cost: g.Cost, Costs: g.Costs, Outcome: o}
	}
}

// until is the time from now to an instant, 0 for one that has passed.
// What a Duration can't hold (292 years) is cut to what it can.
func until(at, now int64) time.Duration {
	us := at - now
	if us <= 0 {
		return 0
	}
	if us > math.MaxInt64/int64(time.Microsecond) {
		return math.MaxInt64
	}
	return time.Duration(us) * time.Microsecond
}

// InvalidError is a value that is out of its range; see algo.InvalidError.
type InvalidError = algo.InvalidError

// Unknown marks the request's receipt where err leaves open whether it counts.
func (r *Request) Unknown(err error) {
	switch {
	case !r.Op.Charges():
	case errors.Is(err, ErrPerhapsCounted):
		r.NewReceipt(Unknown)
	default:
		r.NewReceipt(NotTaken)
	}
}
