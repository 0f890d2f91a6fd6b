// Package breaker is the station that says what a call gets when no store
// decided it: each policy's failure mode, the same on every path.
package breaker

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// RetryAfter is what a call that failed closed is told: there is no instant
// to work out, and a second is when a store is worth asking again.
const RetryAfter = time.Second

// Store is a backend.Store over another. It answers as next does, and where
// next could not decide by the policies' failure modes. Safe for concurrent
// use.
type Store struct{ next backend.Store }

// New returns the station over next.
func New(next backend.Store) *Store { return &Store{next: next} }

// Check asks next, and refuses a policy without a failure mode.
func (s *Store) Check(policies []backend.Policy) error {
	for i := range policies {
		if m := policies[i].OnFailure; m != backend.FailOpen && m != backend.FailClosed {
			return &backend.InvalidError{
				What:  "failure mode of policy " + policies[i].Name,
				Value: uint8(m),
				Want:  "FailOpen or FailClosed: there is no default",
			}
		}
	}
	return s.next.Check(policies)
}

// Do asks next. A reset and a settlement that next could not make are
// errors: to pretend that they were made would not help the caller.
func (s *Store) Do(ctx context.Context, r backend.Request) (backend.Decision, error) {
	d, err := s.next.Do(ctx, r)
	if err == nil || !r.Last || !undecided(err) || r.Op == backend.Reset || r.Op == backend.Settle {
		return d, err
	}
	return fail(&r, err), nil
}

// Close closes next.
func (s *Store) Close() error { return s.next.Close() }

// undecided reports whether err means that the store could not decide, not
// that the call was wrong.
func undecided(err error) bool {
	return errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrPerhapsCounted)
}

// fail decides by the strictest failure mode of the request's policies.
func fail(r *backend.Request, err error) backend.Decision {
	binds := 0
	for i := range r.Policies {
		if r.Policies[i].OnFailure > r.Policies[binds].OnFailure {
			binds = i
		}
		if r.Each != nil {
			r.Each[i] = state(&r.Policies[i])
		}
	}
	p := &r.Policies[binds]
	d := backend.Decision{State: state(p), Err: err, Charge: r.Charge, Source: backend.FromFailClosed}
	if p.OnFailure == backend.FailOpen {
		d.Allowed, d.Source = true, backend.FromFailOpen
	}
	return d
}

// state is all that is known of a policy that nobody could count.
func state(p *backend.Policy) backend.State {
	s := backend.State{Policy: p.Name, Limit: p.Algorithm.Max()}
	if p.OnFailure == backend.FailClosed {
		s.RetryAfter = RetryAfter
	}
	return s
}
