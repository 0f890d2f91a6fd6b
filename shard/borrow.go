package shard

import (
	"context"

	"github.com/headgate-go/headgate/backend"
)

// borrow passes a Borrow to one share. Request.Sub names the share whose units the borrower
// holds. If it is empty, the borrower holds none, and borrow chooses the share of the turn
// and writes its name. So a borrower holds units of one share at a time.
//
// The store keeps what a borrower holds with the share that lent it, so a loan can be
// settled only there. Other shares are not tried, as a take does: the caller needs no unit
// in advance. A share that lends less than was asked for has little left. It recalls what it
// lent, so that the borrower asks another one after a while.
func (c *call) borrow(ctx context.Context) error {
	var i int
	if c.r.Sub == "" {
		i = max(0, c.k.draw(&c.r.Group, c.from)) // if none has room, the first share answers so
	} else if i = c.k.names.Index(c.r.Sub); i < 0 {
		return &backend.InvalidError{What: "sub-key", Value: c.r.Sub, Want: "one of the key's, for a Borrow"}
	}
	loan, want := c.r.Loan, c.r.Loan.Want
	//mutant:lowered-limit-lends-nothing
	if !c.k.level.Load() { // the next take finds out; until then units are given back
		loan.Want = min(want, loan.Keep)
	}
	err := c.send(ctx, i)
	c.r.Sub, loan.Want = c.sub.Sub, want
	if err != nil {
		return err
	}
	c.widen(c.sub.Each)
	//mutant:spent-share-pauses
	if loan.Lent.Units < want { // others may have more
		loan.Lent.Recalled = true
	}
	return nil
}
