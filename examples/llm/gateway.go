package main

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// gateway limits the calls of a language model, per tenant and per organisation.
type gateway struct {
	tenants, orgs *headgate.Limiter
	lease         time.Duration // how long a slot stays taken where the process dies
}

// newGateway makes two limiters on one store. A reply of unknown length costs money, so
// both fail closed.
func newGateway(store backend.Store, lease time.Duration) (*gateway, error) {
	tenants, err := headgate.New(store, policies(60, 4000, 2), nil)
	if err != nil {
		return nil, err
	}
	orgs, err := headgate.New(store, policies(600, 4500, 20), nil)
	return &gateway{tenants, orgs, lease}, err
}

// policies are decided together: a call that one of them denies is charged to none.
func policies(requests, tokens, running int64) []headgate.Policy {
	return []headgate.Policy{
		{Name: "requests", Algorithm: algo.SlidingWindow(algo.PerMinute(requests)), OnFailure: headgate.FailClosed},
		{Name: "tokens", Algorithm: algo.CompactLog(algo.PerMinute(tokens)), OnFailure: headgate.FailClosed},
		{Name: "running", Algorithm: algo.InFlight(running), OnFailure: headgate.FailClosed},
	}
}

// call is what a client asks for.
type call struct {
	tenant, org string
	prompt, max int64 // tokens: of the prompt, and of the longest reply
}

// reserve charges the most that the call can use, to its tenant and its organisation.
func (g *gateway) reserve(ctx context.Context, c call) (headgate.Reservations, headgate.Decision, error) {
	tenant := g.tenants.Part(c.tenant, 1, c.prompt+c.max, 1)
	tenant.Call.Lease = g.lease // the longest one holds for both
	org := g.orgs.Part(c.org, 1, c.prompt+c.max, 1)
	org.Call.Lease = g.lease
	return headgate.ReserveAll(ctx, tenant, org)
}

// complete streams a reply to w, and settles by the tokens that were made. That is also
// what a client pays who leaves in between.
func (g *gateway) complete(ctx context.Context, c call, reply iter.Seq[string], w io.Writer) (d headgate.Decision, err error) {
	rs, d, err := g.reserve(ctx, c)
	if err != nil || !d.Allowed {
		return d, err
	}
	defer rs.Close() // repeats a Commit that failed, through an outage in the background
	used := c.prompt
	defer func() { // after a panic too
		actual := []int64{1, used, 1}
		err = errors.Join(err, rs.Commit(context.WithoutCancel(ctx), actual, actual))
	}()
	ctx, release := rs.Hold(ctx) // a reply may take longer than the lease
	defer release()
	for token := range reply {
		used++
		if _, err := io.WriteString(w, token); err != nil {
			return d, err
		}
		if ctx.Err() != nil {
			return d, context.Cause(ctx)
		}
	}
	return d, nil
}
