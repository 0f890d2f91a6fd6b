package backend

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate-go/headgate/algo/rule"
)

// MaxPolicies is the maximum number of policies of a limiter.
const MaxPolicies = 64

// MaxKey is the maximum length of a key in bytes.
const MaxKey = 4096

// MaxKeys is the maximum number of keys of a request that any store decides.
const MaxKeys = 64

// MaxCounts is the maximum number of counts of a request of several keys: the policies of its
// keys, added up. A server decides nothing else meanwhile, a millisecond or
// two for so many.
const MaxCounts = 256

// MaxRun is the maximum number of calls of a run.
const MaxRun = rule.MaxCount

// CheckPolicies refuses a list that no store could carry. That is none at all, too
// many, two of one name, a name outside its charset, numbers out of range.
func CheckPolicies(policies []Policy) error {
	if len(policies) == 0 {
		return &InvalidError{What: "policies", Value: 0, Want: "at least one"}
	}
	if len(policies) > MaxPolicies {
		return &InvalidError{What: "policies", Value: len(policies), Want: fmt.Sprintf("at most %d", MaxPolicies)}
	}
	for i := range policies {
		if err := policies[i].check(policies[:i]); err != nil {
			return err
		}
	}
	return nil
}

func (p *Policy) check(earlier []Policy) error {
	if !named(p.Name) {
		return &InvalidError{What: "policy name", Value: p.Name, Want: "1 to 64 of A-Z a-z 0-9 _ -: a route as POST_v1_items for POST /v1/items"}
	}
	for i := range earlier {
		if earlier[i].Name == p.Name {
			return &InvalidError{What: "policy name", Value: p.Name, Want: "a name of its own, it is listed twice"}
		}
	}
	if err := p.Algorithm.Check(); err != nil {
		return Wrap(fmt.Errorf("headgate: policy %q", p.Name), err)
	}
	return nil
}

func named(s string) bool {
	if len(s) < 1 || len(s) > 64 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// CheckContext refuses a context that is nil or has ended.
func CheckContext(ctx context.Context) error {
	if ctx == nil {
		return &InvalidError{What: "context", Value: nil, Want: "one that is not nil, as context.Background()"}
	}
	if err := ctx.Err(); err != nil {
		return &wrapped{errUnsent, err} // without fmt: impatient callers come by the thousand
	}
	return nil
}

var errUnsent = errors.New("headgate: call not sent, not counted")

// Check refuses a request that no store with these capabilities could decide.
// Every store calls it before it touches a count. It trusts the policies, which
// Store.Check has seen.
func (r *Request) Check(ctx context.Context, c Capabilities) error {
	if err := CheckContext(ctx); err != nil {
		return err
	}
	if !c.Ops.Has(r.Op) {
		return fmt.Errorf("%w: %v", ErrUnsupported, r.Op)
	}
	several := keys
	if r.First() {
		several = firsts
	}
	//mutant:keys-of-an-operation
	if n := 1 + len(r.And); n > c.Keys || n > 1 && !r.Op.has(several) {
		return fmt.Errorf("%w: a %v of %d keys", ErrUnsupported, r.Op, n)
	}
	if r.Op == Borrow {
		if err := r.Loan.check(&r.Group); err != nil {
			return err
		}
	}
	if err := r.Group.check(r.Op); err != nil {
		return err
	}
	if err := r.checkRun(); err != nil {
		return err
	}
	for i := range r.And {
		if err := r.And[i].check(r.Op); err != nil {
			return err
		}
	}
	return r.CheckKeys()
}

// checkRun refuses a run of calls of an operation that has none, and one of several keys. It also
// refuses one whose costs are not those of equal calls.
func (r *Request) checkRun() error {
	for i := range 1 + len(r.And) {
		g := r.GroupAt(i)
		if g.Run == 0 && !g.UpTo {
			continue
		}
		if !r.Op.has(runs) || !r.Op.has(charges) || len(r.And) > 0 {
			return fmt.Errorf("%w: a run of calls of a %v of %d keys", ErrUnsupported, r.Op, 1+len(r.And))
		}
		for p := range g.Policies {
			n := g.CostOf(p)
			//mutant:run-of-equal-calls
			if g.Run < 1 || g.Run > MaxRun || g.UpTo && n > MaxRun/g.Run || !g.UpTo && n%g.Run != 0 {
				return &InvalidError{What: "run", Value: g.Run, Want: fmt.Sprintf("1 to %d, of calls of one cost, and of no more units", int64(MaxRun))}
			}
		}
	}
	return nil
}

// CheckKeys refuses keys that can't be decided together: more counts than MaxCounts, a count
// that is listed twice, and a key that is spread.
func (r *Request) CheckKeys() error {
	if err := r.checkSpread(); err != nil {
		return err
	}
	counts := len(r.Policies)
	for i := range r.And {
		counts += len(r.And[i].Policies)
	}
	//mutant:counts-of-a-request
	if counts > MaxCounts {
		return &InvalidError{What: "counts of all keys", Value: counts, Want: fmt.Sprintf("at most %d, of a policy of a key each", MaxCounts)}
	}
	return r.checkCounts()
}

// checkSpread refuses what a key that is spread gives up: an operation that needs one
// place, and several keys in one decision.
func (r *Request) checkSpread() error {
	for i := range 1 + len(r.And) {
		if g := r.GroupAt(i); g.Shards > 1 {
			if err := CheckSpread(r.Op, 1+len(r.And)); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckSpread refuses an operation of so many keys if one of them is spread over sub-keys.
// It is for whoever can refuse before a request is made.
func CheckSpread(op Op, n int) error {
	switch {
	//mutant:spread-verbs
	case !op.has(spreads):
		return fmt.Errorf("%w: a %v of a key in several Shards: use Options.Borrow for a busy key", ErrUnsupported, op)
	//mutant:spread-keys-apart
	case n > 1:
		return fmt.Errorf("%w: a %v of %d keys, of which one is in several Shards: use Options.Borrow for a busy key", ErrUnsupported, op, n)
	}
	return nil
}

// checkCounts refuses a request of several keys that lists a count twice: each group
// would find the room that the other takes. A key may be listed again by other
// policies, and a count by another alternative.
func (r *Request) checkCounts() error {
	for i := range r.And {
		from, _ := r.Alternative(1 + i)
		for j := range i + 1 {
			if err := r.And[i].differ(r.GroupAt(j), j >= from); err != nil {
				return err
			}
		}
	}
	return nil
}

// differ refuses two groups that have a lease in common, or a count if they are of one alternative.
func (g *Group) differ(other *Group, together bool) error {
	if g.Key != other.Key || g.Sub != other.Sub {
		return nil
	}
	//mutant:no-lease-twice
	if g.Lease != nil && other.Lease != nil && g.Lease.ID == other.Lease.ID {
		return &InvalidError{What: "lease ID", Value: "listed twice", Want: "one of its own for each group of key " + g.Key}
	}
	for i := range g.Policies {
		p := &g.Policies[i]
		for j := range other.Policies {
			q := &other.Policies[j]
			//mutant:no-count-twice
			if together && p.Counts(q) {
				return &InvalidError{What: "key", Value: g.Key, Want: "one that is listed once for policy " + p.Name}
			}
		}
	}
	return nil
}

// Counts reports whether two policies of one key share a count, if their lists have the same
// Shards, whatever their limits are.
func (p *Policy) Counts(q *Policy) bool {
	return p.Name == q.Name && p.Shadow == q.Shadow && p.Algorithm.Identity() == q.Algorithm.Identity()
}

func (g *Group) check(op Op) error {
	mayBeFree := op.has(free)
	if op.Leases() {
		if err := g.Lease.check(op, g.Policies); err != nil {
			return err
		}
		mayBeFree = g.Lease.Free
	}
	switch {
	case g.Key == "":
		return &InvalidError{What: "key", Value: g.Key, Want: "at least one byte"}
	case len(g.Key) > MaxKey:
		return &InvalidError{What: "key", Value: fmt.Sprintf("%.16s… of %d bytes", g.Key, len(g.Key)), Want: fmt.Sprintf("at most %d bytes", MaxKey)}
	case len(g.Policies) == 0:
		return &InvalidError{What: "policies", Value: 0, Want: "at least one"}
	case len(g.Policies) > MaxPolicies:
		return &InvalidError{What: "policies", Value: len(g.Policies), Want: fmt.Sprintf("at most %d", MaxPolicies)}
	case g.Costs != nil && len(g.Costs) != len(g.Policies):
		return &InvalidError{What: "costs", Value: len(g.Costs), Want: fmt.Sprintf("one for each of %d policies", len(g.Policies))}
	case g.Each != nil && len(g.Each) != len(g.Policies):
		return &InvalidError{What: "len(Call.Each)", Value: len(g.Each), Want: fmt.Sprintf("%d, a state per policy, or nil", len(g.Policies))}
	}
	if !op.Costs() {
		return nil
	}
	return g.checkCosts(op, mayBeFree)
}

// checkCosts refuses what no count could have room for, and a take of nothing
// at all. A policy whose cost is 0, beside another's that is not, is asked and
// charged nothing.
func (g *Group) checkCosts(op Op, mayBeFree bool) error {
	least, charges := int64(0), mayBeFree
	if !charges && len(g.Costs) < 2 {
		least = 1
	}
	for i := range g.Policies {
		p := &g.Policies[i]
		n := g.CostOf(i)
		most, err := p.maxCost(op)
		if err != nil {
			return err
		}
		//mutant:never-admissible
		if n < least || n > most || most == 0 {
			return costError(p, n, least, most)
		}
		charges = charges || n > 0
	}
	if !charges {
		return costError(&g.Policies[0], 0, 1, g.Policies[0].Algorithm.Max())
	}
	return nil
}

// maxCost returns the greatest cost of an operation, 0 if the policy can grant nothing. One that
// goes above the limit may ask for more than it grants, and so may any call of a shadow. A call
// has one slot of an InFlight, which only a Reserve charges.
func (p *Policy) maxCost(op Op) (int64, error) {
	most := p.Algorithm.Max()
	leased := p.Algorithm.Kind().Leased()
	switch {
	case leased && op.has(charges) && !op.has(opens):
		return 0, &InvalidError{What: op.String(), Value: p.Name, Want: "no InFlight policy: only a Reserve charges one"}
	//mutant:kinds-that-return
	case op.has(returns) && !p.Algorithm.Kind().Returns():
		return 0, &InvalidError{What: op.String(), Value: p.Name, Want: "no InFlight and no LeakyQueue policy: what these count is not returned"}
	case leased:
		return min(most, 1), nil
	//mutant:shadow-admits-any-cost
	case most > 0 && p.Shadow:
		return rule.MaxCount, nil
	case most > 0 && op.has(above|returns):
		return p.Algorithm.Kind().MaxLimit(), nil
	}
	return most, nil
}

// costError names no shadow: middleware passes the text to clients, and a shadow admits what
// any policy may. A limiter passes a cost of 0, and sends no store one.
func costError(p *Policy, n, least, most int64) error {
	//mutant:free-cost-in-range
	if n != 0 {
		least = 0
	}
	err := &InvalidError{What: "cost", Value: n, Want: fmt.Sprintf("%d to %d", least, most)}
	//mutant:cost-names-no-shadow
	if !p.Shadow {
		err.Want += fmt.Sprintf(" for policy %q", p.Name)
	}
	if n > p.Algorithm.Max() {
		return Wrap(ErrNeverAdmissible, err)
	}
	return err
}
