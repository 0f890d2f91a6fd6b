package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
)

// spender is who pays for a call: each has a budget of its own, the key one per model.
type spender struct{ org, team, user, key, model string }

// limits are the budgets of a month.
type limits struct{ org, team, user, key int64 }

// budgets reserve the most that a call can cost from four budgets, and settle by what it
// did cost. Spend never exceeds a budget: a process that dies leaves what it reserved
// charged until the month ends. To settle that too, store the Token of each reservation
// beside the request. A sweeper can Resume and Commit it within two lengths of the lease.
type budgets struct {
	scopes [4]*headgate.Limiter // from the narrowest on
	lease  time.Duration
}

// newBudgets makes the budgets of calendar months in a zone. near is called when
// the count of a budget rises to 80 %, by one of all processes; nil: never. What is reserved
// counts, so it is called again when settlements have lowered the count and a reservation
// raises it. A letter that is sent once per month needs a gate, such as a limiter of
// algo.Calendar(1, algo.Month(1), zone).
func newBudgets(store backend.Store, zone *time.Location, l limits, near func(key string, used, limit int64)) (*budgets, error) {
	b := &budgets{lease: 10 * time.Minute}
	opts := &headgate.Options{}
	if near != nil {
		opts.Observer = func(e headgate.Event) {
			for _, n := range e.Near {
				near(n.Key, n.Used, n.Limit)
			}
		}
	}
	for i, limit := range []int64{l.key, l.user, l.team, l.org} {
		policy := headgate.Policy{Name: "dollars", Algorithm: algo.Calendar(limit, algo.Month(1), zone), OnFailure: headgate.FailClosed}
		var err error
		if b.scopes[i], err = headgate.New(store, []headgate.Policy{policy}, opts); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// parts are the budgets of a call that costs n.
func (b *budgets) parts(s spender, n int64) []headgate.Part {
	keys := []string{headgate.Key("key", s.key, s.model), headgate.Key("user", s.user), headgate.Key("team", s.team), headgate.Key("org", s.org)}
	parts := make([]headgate.Part, len(keys))
	for i, key := range keys {
		parts[i] = b.scopes[i].Part(key, n)
		parts[i].Call.Lease = b.lease
	}
	return parts
}

// spend reserves a call of prompt tokens and at most max tokens of reply, makes it, and
// settles by the tokens that call returns. Some of them may be cached. Even if call panics, the prompt is paid.
func (b *budgets) spend(ctx context.Context, s spender, prompt, max int64, call func(context.Context) tokens) (d headgate.Decision, err error) {
	p, ok := prices[s.model]
	if !ok {
		return d, fmt.Errorf("%w: %q", errUnpriced, s.model)
	}
	rs, d, err := headgate.ReserveAll(ctx, b.parts(s, p.of(tokens{Input: prompt, Output: max}))...)
	if err != nil || !d.Allowed {
		return d, err
	}
	defer rs.Close() // repeats a Commit that failed, through an outage in the background
	used := tokens{Input: prompt}
	defer func() {
		cost := []int64{p.of(used)}
		err = errors.Join(err, rs.Commit(context.WithoutCancel(ctx), cost, cost, cost, cost))
	}()
	used = call(ctx)
	return d, nil
}
