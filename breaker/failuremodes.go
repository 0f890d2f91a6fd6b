package breaker

import (
	"context"
	"fmt"
	"iter"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
)

// fail decides by the strictest failure mode of the request's policies, and
// writes the answer to the zero d. No store counted, so the numbers are unknown.
func (s *Store) fail(ctx context.Context, r *backend.Request, d *backend.Decision, err error, shares iter.Seq[*backend.Request]) error {
	s.uncounted(r, err)
	strictest := strictest(r.Policies)
	p := &r.Policies[strictest]
	switch {
	case mode(p) != backend.FailLocal:
	case shares == nil:
		return s.local(ctx, r, d, err)
	default:
		s.localShares(ctx, r, d, err, shares)
		return nil
	}
	d.State, d.Err, d.Source = state(p), err, backend.FromFailClosed
	if mode(p) != backend.FailClosed {
		d.Allowed, d.Source, d.Passed = true, backend.FromFailOpen, r.Run
	}
	return nil
}

// uncounted logs what an operator has to know of err, and makes the states those of no count.
func (s *Store) uncounted(r *backend.Request, err error) {
	s.corrupt(err)
	s.unfit(err)
	for i := range r.Each {
		r.Each[i] = state(&r.Policies[i])
	}
}

// strictness orders the modes: none, open, local, closed.
var strictness = [...]int{backend.FailOpen: 1, backend.FailLocal: 2, backend.FailClosed: 3}

// mode returns what the policy asks for, and none for a shadow, which denies nothing.
func mode(p *backend.Policy) backend.FailureMode {
	//mutant:shadow-fails-open
	if p.Shadow {
		return 0
	}
	return p.OnFailure
}

// strictest returns the index of the first policy with the strictest mode, of a shadow
// only if all policies are shadows. One strict policy decides for the list: a call that
// it would have to deny must not pass because another policy is lenient.
func strictest(policies []backend.Policy) int {
	most := 0
	for i := range policies {
		p, q := &policies[i], &policies[most]
		//mutant:strictest-mode
		if strictness[mode(p)] > strictness[mode(q)] {
			most = i
		}
	}
	return most
}

// state returns the state of a policy that no store counted. Its limit is known;
// the other numbers stay zero, and it is NotCounted.
func state(p *backend.Policy) backend.State {
	s := backend.State{Policy: p.Name, Limit: p.Algorithm.Max()}
	if mode(p) == backend.FailClosed {
		s.RetryAfter = RetryAfter
	}
	return s
}

// checkMode has no default on purpose: open risks the service behind, closed
// risks the calls, and only the user can tell which is worse.
func (s *Store) checkMode(p *backend.Policy) error {
	switch {
	case mode(p) == backend.FailLocal:
		if s.opts.Local != nil && s.opts.Instances >= 1 {
			return s.checkShare(p)
		}
		return &backend.InvalidError{What: "Options.Instances", Value: s.opts.Instances, Want: "at least 1, for FailLocal of policy " + p.Name}
	case p.OnFailure >= backend.FailOpen && p.OnFailure <= backend.FailLocal:
		return nil
	}
	var value any = uint8(p.OnFailure)
	if p.OnFailure == 0 {
		value = "not set"
	}
	return &backend.InvalidError{
		What:  "failure mode of policy " + p.Name,
		Value: value,
		Want:  "FailOpen, FailClosed or FailLocal: there is no default",
	}
}

// checkShare refuses a share of nothing, which would deny every call.
func (s *Store) checkShare(p *backend.Policy) error {
	n, whole := int64(s.opts.Instances), &p.Algorithm
	share := whole.Share(1, n)
	//mutant:share-of-nothing
	if share.Max() > 0 || whole.Max() == 0 { // a layer above refuses a number of shards that leaves none
		return nil
	}
	most := whole.Max()
	if most >= n { // then a share of the rate is below one unit per MaxPeriod
		most = whole.Limit().Events * int64(rule.MaxPeriod/whole.Limit().Period)
	}
	want := fmt.Sprintf("at most %d, the units of policy %s: FailLocal's share would be nothing", most, p.Name)
	return &backend.InvalidError{What: "Options.Instances", Value: s.opts.Instances, Want: want}
}
