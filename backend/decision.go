package backend

import (
	"iter"
	"math"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
)

// Decision is the answer to a request and the numbers that a client needs.
// The zero Decision is a denial.
type Decision struct {
	Allowed   bool
	Source    Source        // what made the decision
	State                   // of the policy that binds
	Key       string        // the key that binds, where the request has several; else ""
	At        int           // a store's: the index of that key's group, 0 is the request's own; a limiter's: that of the part with that key
	Passed    int64         // calls of a run that passed, counted or not; 0 if the request is no run
	NextAfter time.Duration // of a run that passed in part: until the next of its calls passes if no other call takes
	Delay     time.Duration // of a call that passed: how long its caller waits before it goes on, the greatest Delay of the policies that are no shadows. See algo.LeakyQueue
	Err       error         // the cause, where no store decided; nil where one did, and for FromDenyCache
}

// State is one policy's count of a key. On a pass it includes the call; on a
// denial, and for a peek, it does not.
//
// If it is NotCounted, Used, Remaining and ResetAfter are 0 and mean nothing; do not
// send them to a client. Limit is set. RetryAfter of a denial is when to ask again.
type State struct {
	Policy     string
	Known      Known         // what Used, Remaining and ResetAfter are: exact, estimated or not counted
	Passed     int32         // of a run: calls that the policy was charged, 2^31 - 1 if more
	Limit      int64         // units: the window's limit, or the bucket's burst
	Used       int64         // units that count now, rounded up; of a LeakyQueue also those that wait
	Lent       int64         // of these: units that processes hold in advance, see Options.Borrow of package headgate
	Remaining  int64         // units that would pass now, never negative; of a LeakyQueue without a delay
	RetryAfter time.Duration // until this cost passes if no other call takes; 0 where it passes now
	ResetAfter time.Duration // until nothing is counted any more
	Delay      time.Duration // of a LeakyQueue that passed: how long this call, or the last one of a run, waits before it goes on; else 0

	level int64 // of a TokenBucket that has denied, 0 of a spread key; see PassesAfter
}

// Known is how well the numbers of a State are known. The zero Known is NotCounted, so that
// a State that nothing has filled shows no number. A greater Known is better.
type Known uint8

// How well numbers are known.
const (
	NotCounted Known = iota // no store counted: under FailOpen and FailClosed, under FailLocal by policies that fail open, and FromNone
	Estimated               // of a moment ago, as FromDenyCache and FromLoan, or of a part of a spread key
	Exact                   // of the instant of the decision: the store's, or under FailLocal this process's
)

var knownNames = [...]string{"not_counted", "estimated", "exact"}

// String returns the word for it, as JSON of the commands has it.
func (k Known) String() string {
	if int(k) >= len(knownNames) {
		return "unknown"
	}
	return knownNames[k]
}

// Reading is what one policy's state amounts to in one decision, in the
// store's own instants. Stores make one per policy, and Decide turns them into the
// answer, so that every store answers alike.
type Reading struct {
	Used    int64 // units, after the take where it passed
	Lent    int64 // of these: units that are lent
	RetryAt int64 // instant at which this cost passes; 0 where this policy has room
	ResetAt int64 // instant at which the key is unused
	Level   int64 // of a TokenBucket that has denied, as rule.Algorithm.Level returns it
	Passed  int64 // of a run: calls that it is charged
	Delay   int64 // µs that the call waits before it goes on, as algo.Algorithm.Delay returns it; 0 of one that the policy denies
}

// Decide writes the answer to g at the instant now, with one reading per policy,
// to the zero Decision. It picks the binding policy and fills g.Each.
func (g *Group) Decide(now int64, readings []Reading, d *Decision) {
	by, passed := &g.Policies[0], readings[0].Passed
	by.state(&d.State, now, &readings[0]) // in place: most requests have one policy
	d.Delay = by.delay(&d.State)
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
		//mutant:longest-delay
		d.Delay = max(d.Delay, p.delay(&s))
		if p.binds(&s, by, &d.State) {
			d.State, by, passed = s, p, readings[i].Passed
		}
	}
	by.admit(g, passed, d)
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
	} else {
		d.Delay = 0
	}
}

// delay returns how long the policy delays the call of a state. A shadow delays none.
func (p *Policy) delay(s *State) time.Duration {
	//mutant:shadow-delays-nothing
	if p.Shadow {
		return 0
	}
	return s.Delay
}

// DecideKeys writes the answer to a request of several keys as Group.Decide does that to
// one of one key. The readings are one per policy of every group. It names the key
// and the group that bind. Of several alternatives the first that passes is the answer, else
// the one that passes soonest. One without readings was not decided.
func (r *Request) DecideKeys(now int64, readings [][]Reading, d *Decision) {
	for from, to := range r.Alternatives() {
		var one Decision
		if len(readings[from]) == 0 {
			continue
		}
		r.decideKeys(now, from, readings[from:to], &one)
		//mutant:soonest-alternative
		if d.Policy == "" || one.Allowed || one.RetryAfter < d.RetryAfter {
			*d = one
		}
		if one.Allowed {
			break
		}
	}
}

// decideKeys does so for the groups of one alternative.
func (r *Request) decideKeys(now int64, from int, readings [][]Reading, d *Decision) {
	var by *Policy
	for k := range readings {
		i := from + k
		g := r.GroupAt(i)
		for j := range g.Policies {
			var s State
			p := &g.Policies[j]
			p.state(&s, now, &readings[k][j])
			if g.Each != nil {
				g.Each[j] = s
			}
			d.Delay = max(d.Delay, p.delay(&s))
			if by == nil || p.binds(&s, by, &d.State) {
				//mutant:binding-key-named
				d.State, d.Key, d.At, by = s, g.Key, i, p
			}
		}
	}
	by.admit(&r.Group, 0, d)
}

// GroupAt returns the group of the request's i-th key: 0 is its own Group, 1 the first
// of And.
func (r *Request) GroupAt(i int) *Group {
	if i == 0 {
		return &r.Group
	}
	return &r.And[i-1]
}

// First reports whether the request has several alternatives. Each is the groups up to the next
// one with Else, all or nothing. The first one that has room is charged, and no other.
func (r *Request) First() bool {
	for i := range r.And {
		if r.And[i].Else {
			return true
		}
	}
	return false
}

// Alternatives returns where each alternative begins, and where the next one would. Without
// alternatives there is one, of all groups.
func (r *Request) Alternatives() iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		for from, to := 0, 0; from <= len(r.And); from = to {
			if _, to = r.Alternative(from); !yield(from, to) {
				return
			}
		}
	}
}

// Alternative returns where the alternative of the i-th group begins, and where the next one would.
func (r *Request) Alternative(i int) (from, to int) {
	from, to = i, i+1
	for from > 0 && !r.And[from-1].Else {
		from--
	}
	for to <= len(r.And) && !r.And[to-1].Else {
		to++
	}
	return from, to
}

func (p *Policy) state(s *State, now int64, r *Reading) {
	limit := p.Algorithm.Max()
	s.Policy, s.Known = p.Name, Exact
	s.Limit = limit
	s.Used, s.Lent = r.Used, r.Lent
	s.Remaining = max(0, limit-r.Used)
	s.RetryAfter = until(r.RetryAt, now)
	s.ResetAfter = until(r.ResetAt, now)
	s.Delay = time.Duration(r.Delay) * time.Microsecond
	s.level, s.Passed = r.Level, int32(min(r.Passed, math.MaxInt32))
}

// PassesAfter returns the time until n units pass by the state of a TokenBucket that has denied
// fewer. It is 0 if the state does not determine it.
func PassesAfter(a *rule.Algorithm, s *State, n int64) time.Duration {
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

// InvalidError is a value that is out of its range; see rule.InvalidError.
type InvalidError = rule.InvalidError
