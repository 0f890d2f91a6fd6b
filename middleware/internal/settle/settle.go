// Package settle runs the calls of a middleware as reservations. It reserves before a
// call, extends the lease while the call runs, and settles when the call has ended.
package settle

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/adapter"
	"github.com/headgate-go/headgate/middleware/internal/parts"
)

// MaxWait is the longest that a denied call waits for others to be settled.
const MaxWait = time.Minute

// The times of a settlement.
const (
	// grace is how long the end of a call waits for its settlement: some round trips.
	// So a caller that has seen the end finds its slot free.
	grace = 50 * time.Millisecond
	// maxRepeated is the maximum number of settlements of one middleware that are repeated
	// at a time: each keeps a goroutine. Others leave the estimate after one try.
	maxRepeated = 4096
)

// Calls reserves for the calls of one middleware. It is safe for concurrent use and
// never copied.
type Calls struct {
	Lease time.Duration // of a part that names none
	Wait  time.Duration // how long a denied call waits for others of its first part's key
	lines lines

	repeated atomic.Int64 // settlements that no store has decided yet
}

// Needed reports whether the limiter has a policy that only a reservation can charge.
func Needed(l *headgate.Limiter) bool {
	type key struct{}
	return adapter.Of(l).Value(key{}, func() any {
		return slices.ContainsFunc(l.Policies(), func(p headgate.Policy) bool { return p.Algorithm.Kind().Leased() })
	}).(bool)
}

// NeededFor reports whether one of the parts needs a reservation.
func NeededFor(parts []headgate.Part) bool {
	return slices.ContainsFunc(parts, func(p headgate.Part) bool { return Needed(p.Limiter) })
}

// Check refuses a lease, or a wait, that is out of range, and what needs a Settle function
// where there is none.
func Check(lease, wait time.Duration, settles, settled bool) error {
	switch {
	case lease != 0 && (lease < backend.MinLease || lease > backend.MaxLease):
		return &headgate.InvalidError{What: "lease", Value: lease, Want: "1s to 24h, or 0"}
	case wait < 0 || wait > MaxWait:
		return &headgate.InvalidError{What: "settle wait", Value: wait, Want: "0 to 1m"}
	case wait > 0 && !settles:
		return &headgate.InvalidError{What: "settle wait", Value: wait, Want: "0 without a Settle function"}
	//mutant:settled-needs-settle
	case settled && !settles:
		return &headgate.InvalidError{What: "settled", Value: "a function", Want: "nil without a Settle function, such as Reported"}
	}
	return nil
}

// CheckLimiter refuses a limiter whose calls can't be settled: one that spreads its keys.
func CheckLimiter(l *headgate.Limiter, settles bool) error {
	//mutant:settled-is-not-spread
	if settles && adapter.Of(l).Shards > 1 {
		return backend.CheckSpread(backend.Reserve, 1)
	}
	return nil
}

// Call is a call that passes and that is settled once it has ended.
type Call struct {
	Context  context.Context // the call's: it ends where the call's slots are lost
	Parts    []headgate.Part // what was reserved, with costs and without room for states; of a First its part that was charged
	Estimate []int64         // one per policy, those of the first part first

	calls        *Calls
	all          []headgate.Part // of reservations: those of all parts of a First
	from         int             // where Parts begins
	parent       context.Context
	release      context.CancelFunc
	reservations headgate.Reservations
	line         *line // nil: no call waits
	reports      reports
}

// Reserve decides a call. The Call is nil where it does not pass. begins is nil, or which of the
// parts begin one of a First.
func (c *Calls) Reserve(ctx context.Context, list []headgate.Part, begins []bool) (*Call, headgate.Decision, error) {
	a := &answer{ctx: ctx, parts: slices.Clone(list), begins: slices.Clone(begins)}
	for i := range a.parts {
		if p := &a.parts[i].Call; p.Lease == 0 {
			p.Lease = c.Lease
		}
	}
	var l *line
	if c.Wait > 0 {
		l = c.lines.ask(a, c.Wait)
	} else {
		a.ask()
	}
	if !a.passed() {
		return nil, a.decision, a.err
	}
	made := &Call{Parts: a.parts, all: a.parts, calls: c, parent: ctx, reservations: a.reservations, line: l}
	made.estimate()
	if begins != nil {
		from, to := parts.PartAt(begins, a.decision.At)
		made.from, made.Parts = from, a.parts[from:to]
	}
	for i := range made.Parts {
		made.Estimate = append(made.Estimate, made.Parts[i].Call.Costs...)
	}
	made.hold()
	return made, a.decision, nil
}

// hold extends the leases until release is called, since a handler may go on after its
// client has left. The call's context ends with the parent's too.
func (c *Call) hold() {
	//mutant:held-after-client-left
	held, release := c.reservations.Hold(context.WithoutCancel(c.parent))
	ctx, end := context.WithCancelCause(context.WithValue(c.parent, contextKey{}, c))
	stop := context.AfterFunc(held, func() { end(context.Cause(held)) })
	c.Context, c.release = ctx, func() {
		stop()
		release()
		end(nil)
	}
}

// estimate notes the costs of all parts, and lets go of the caller's states.
func (c *Call) estimate() {
	for i := range c.all {
		p := &c.all[i]
		if p.Call.Each = nil; p.Call.Costs == nil {
			p.Call.Costs = slices.Repeat([]int64{1}, len(Names(p.Limiter)))
		}
	}
}

// Names returns the names of the limiter's policies, which are not to be written.
func Names(l *headgate.Limiter) []string {
	type key struct{}
	return adapter.Of(l).Value(key{}, func() any {
		names := []string{}
		for _, p := range l.Policies() {
			names = append(names, p.Name)
		}
		return names
	}).([]string)
}

// Policies returns the name of the policy of each unit in Estimate.
func (c *Call) Policies() (names []string) {
	for i := range c.Parts {
		names = append(names, Names(c.Parts[i].Limiter)...)
	}
	return names
}

// answer is a reservation that is asked for, perhaps more than once.
type answer struct {
	ctx          context.Context
	parts        []headgate.Part
	begins       []bool // see Calls.Reserve
	reservations headgate.Reservations
	decision     headgate.Decision
	err          error
}

func (a *answer) ask() {
	if a.begins != nil {
		a.reservations, a.decision, a.err = headgate.ReserveFirst(a.ctx, parts.Nested(a.parts, a.begins)...)
		return
	}
	if len(a.parts) > 1 {
		a.reservations, a.decision, a.err = headgate.ReserveAll(a.ctx, a.parts...)
		return
	}
	var r *headgate.Reservation
	r, a.decision, a.err = a.parts[0].Limiter.Reserve(a.ctx, a.parts[0].Call)
	a.reservations = headgate.Reservations{r}
}

// key is what the calls that may wait for each other have in common: the first part is
// the narrowest.
func (a *answer) key() string { return a.parts[0].Call.Key }

func (a *answer) passed() bool { return a.err == nil && a.decision.Allowed }

// final reports whether a settlement of another call changes nothing: only what was
// counted is given back.
func (a *answer) final() bool {
	return a.err != nil || a.decision.Allowed || a.decision.Known == backend.NotCounted
}

// Settle ends the call. It settles by what was used; nil leaves the estimate. It waits
// for the grace, and else goes on. A settlement that fails leaves the estimate: it is
// charged until it has aged, and a slot is taken until the lease ends.
func (c *Call) Settle(used []int64) { c.end(used, nil) }

// SettleEach is Settle, and returns the states of each part after it; nil if they are not
// known within the grace.
func (c *Call) SettleEach(used []int64) [][]headgate.State {
	all := make([][]headgate.State, len(c.all))
	each := all[c.from:][:len(c.Parts)]
	for i := range each {
		each[i] = make([]headgate.State, len(c.Parts[i].Call.Costs))
	}
	if !c.end(used, all) {
		return nil
	}
	return each
}

// end reports whether the store has answered within the grace.
func (c *Call) end(used []int64, each [][]headgate.State) bool {
	c.release()
	settled := make(chan bool, 1)
	go func() {
		err := c.settle(used, each)
		if c.line != nil {
			c.calls.lines.settled(c.all[0].Call.Key, c.line)
		}
		settled <- err == nil
	}()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case ok := <-settled:
		return ok
	case <-timer.C:
		return false
	}
}

// settle commits, and repeats that until a store has decided it: a Commit counts once.
func (c *Call) settle(used []int64, each [][]headgate.State) (err error) {
	//mutant:settled-after-client-left
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.parent), c.lease())
	defer cancel()
	defer func() {
		//mutant:lost-settlement-logged
		if err != nil {
			c.warn(lostSettlement, err)
		}
	}()
	if err = c.commit(ctx, used, each); !backend.Undecided(err) {
		return err
	}
	defer c.calls.repeated.Add(-1)
	//mutant:repeated-settlements-bounded
	if c.calls.repeated.Add(1) > maxRepeated {
		return err
	}
	//mutant:undecided-settlement-repeated
	for pause := 20 * time.Millisecond; backend.Undecided(err); pause = min(2*pause, time.Second) {
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
		err = c.commit(ctx, used, each)
	}
	return err
}

// lease returns the longest of the call's leases. A lease can be settled for its length after
// its end, so a settlement is tried for at least that long.
func (c *Call) lease() (longest time.Duration) {
	for i := range c.Parts {
		//mutant:repeated-for-a-lease
		longest = max(longest, cmp.Or(c.Parts[i].Call.Lease, headgate.DefaultLease))
	}
	return longest
}

// commit leaves the estimate where what was used is no list for these policies: else
// its slot would be taken until the lease ends.
func (c *Call) commit(ctx context.Context, used []int64, each [][]headgate.State) error {
	err := c.reservations.CommitEach(ctx, each, c.lists(used)...)
	//mutant:wrong-use-frees-slot
	if errors.As(err, new(*headgate.InvalidError)) {
		c.warn(wrongUnits, err)
		err = c.reservations.CommitEach(ctx, each)
	}
	return err
}

// lists cuts what was used into a list per part; none if its length is another than the
// estimate's. An empty list reports nothing. It is not always known which part of a First was
// charged. So the others get the same units for policies of the same names.
func (c *Call) lists(used []int64) (lists [][]int64) {
	if len(used) != len(c.Estimate) {
		//mutant:nothing-used-is-no-fault
		if len(used) > 0 {
			c.warn(wrongUnits, &headgate.InvalidError{What: "units", Value: used, Want: "one number for each of " + strings.Join(c.Policies(), ", ")})
		}
		return nil
	}
	names, all := c.Policies(), used
	for i := range c.all {
		own := c.all[i].Call.Costs
		if j := i - c.from; j >= 0 && j < len(c.Parts) {
			own, used = used[:len(own)], used[len(own):]
		} else {
			own = alike(Names(c.all[i].Limiter), own, names, all)
		}
		lists = append(lists, own)
	}
	return lists
}

// alike returns costs by the names of policies, with the units of others where these have the name.
func alike(policies []string, costs []int64, others []string, units []int64) []int64 {
	costs = slices.Clone(costs)
	for i, name := range policies {
		//mutant:uncharged-part-reported
		if j := slices.Index(others, name); j >= 0 {
			costs[i] = units[j]
		}
	}
	return costs
}
