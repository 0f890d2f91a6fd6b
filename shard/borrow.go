package shard

import (
	"context"
	"errors"
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// borrow passes a Borrow to one share. Request.Sub names the share whose units the borrower
// holds. If it is empty, the borrower holds none, and borrow chooses the share of the turn
// and writes its name. So a borrower holds units of one share at a time.
//
// The store keeps what a borrower holds with the share that lent it, so a lease can be
// settled only there. Other shares are not tried, as a take does: the caller needs no unit
// in advance. A share that lends less than was asked for has little left. It recalls what it
// lent, so that the borrower asks another one after a while.
func (c *call) borrow(ctx context.Context) error {
	var i int
	if c.r.Sub == "" {
		i = max(0, c.k.draw(&c.r.Group, c.from)) // if none has room, the first share answers so
	} else if i = c.k.named(c.r.Sub); i < 0 {
		return &backend.InvalidError{What: "sub-key", Value: c.r.Sub, Want: "one of the key's, for a Borrow"}
	}
	c.part(i)
	c.r.Sub = c.sub.Sub
	loan := *c.r.Loan
	//mutant:lowered-limit-lends-nothing
	if !c.k.level.Load() { // the next take finds out; until then units are given back
		loan.Want = min(loan.Want, loan.Keep)
	}
	c.sub.Loan = &loan
	if n := len(c.sub.Policies); c.sub.Each == nil {
		c.sub.Each = slices.Grow(c.one[:0], n)[:n]
	}
	err := c.s.next.Attempt(ctx, &c.sub, c.d)
	switch {
	case err == nil:
		c.k.observe(i, &c.r.Group, c.d.Allowed, c.sub.Each, c.from)
		c.widen(c.sub.Each)
		//mutant:spent-share-pauses
		if c.r.Loan.Lent = loan.Lent; loan.Lent.Units < c.r.Loan.Want { // others may have more
			c.r.Loan.Lent.Recalled = true
		}
	case errors.Is(err, backend.ErrUnavailable):
		c.k.unanswered(ctx, i, err)
	}
	return err
}
