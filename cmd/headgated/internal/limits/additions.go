package limits

import (
	"time"

	"github.com/headgate-go/headgate"
)

// additions reads what envoyproxy/ratelimit does not have, and makes the limiter.
func (p *parser) additions(r *Rule, at field, limit map[string]field) error {
	var words [5]words
	for i, key := range [...]string{"algorithm", "on_failure", "charge", "borrow", "zone"} {
		var err error
		if words[i], err = p.words(limit, key); err != nil {
			return err
		}
	}
	name, err := words[0].algorithm(p.algorithm)
	if err != nil {
		return err
	}
	mode, err := words[1].failureMode(p.onFailure)
	if err != nil {
		return err
	}
	if r.Charge, err = words[2].charge(p.charge); err != nil {
		return err
	}
	borrow, err := words[3].length(unset)
	if err != nil {
		return err
	}
	civil, err := p.civil(words[4], limit["anchor"], name)
	if err != nil {
		return err
	}
	if err := p.limit(r, name, civil, mode, borrow); err != nil {
		return at.as("rate_limit").errorf("%w", err)
	}
	p.config.denies = p.config.denies || r.Policy.OnFailure == headgate.FailClosed
	return nil
}

// limit gives the rule its policy and limiter. A rule without on_failure is closed for
// the limiter, and an error for the caller.
// Without borrow the parser's applies.
func (p *parser) limit(r *Rule, algorithm string, c civil, mode headgate.FailureMode, borrow time.Duration) error {
	r.Algorithm = algorithm
	if r.Unlimited {
		return nil
	}
	a, err := algorithms[algorithm](r, c)
	if err != nil {
		return err
	}
	//mutant:limit-of-zero-checked
	if r.Max() == 0 {
		r.Policy.Algorithm = a // for the reset
		return nil
	}
	r.FailureMode = mode != 0
	if mode == 0 {
		mode = headgate.FailClosed
	}
	if borrow == unset {
		borrow = p.borrow
	}
	r.Policy = headgate.Policy{Name: policyName, Algorithm: a, OnFailure: mode, Shadow: r.Shadow || r.Quota, Class: r.Label}
	r.Borrow = borrow
	r.Limiter, err = p.opts.New(r.Policy, borrow) // of its own, since each rule is a class
	return err
}
