package rls

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
)

// run decides the parts.
func (c *call) run(ctx context.Context) error {
	asks := c.count(ask)
	if n := len(c.parts) + len(c.returned); asks < n && n > 1 { // several round trips, one after the other
		bounded, cancel := context.WithTimeout(ctx, c.service.opts.Budget)
		defer cancel()
		ctx = bounded
	}
	c.each(func(p *part) bool { return p.how != ask && p.how != nothing }, func(p *part) { p.decide(ctx) })
	if asks == 0 || c.undecided() != nil {
		return c.undecided()
	}
	if c.denied() || c.tooMany() {
		c.each(func(p *part) bool { return p.how == ask }, func(p *part) { p.peek(ctx) })
	} else if asks == 1 {
		c.askOne(ctx)
	} else {
		c.askAll(ctx)
	}
	return c.undecided()
}

func (c *call) count(h how) (n int) {
	for i := range c.parts {
		if c.parts[i].how == h {
			n++
		}
	}
	return n
}

// usualParts is the number of parts for which there is room on the stack.
const usualParts = 8

// each calls do for each part that is chosen, in parallel if there are several.
func (c *call) each(chosen func(*part) bool, do func(*part)) {
	var buffer [usualParts]*part
	todo := buffer[:0]
	for _, parts := range [...][]part{c.parts, c.returned} {
		for i := range parts {
			if p := &parts[i]; chosen(p) {
				todo = append(todo, p)
			}
		}
	}
	var wg sync.WaitGroup
	for i := 1; i < len(todo); i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			do(todo[i])
		}()
	}
	if len(todo) > 0 {
		do(todo[0])
	}
	wg.Wait()
}

// decide decides a part that is not asked together with the others.
func (p *part) decide(ctx context.Context) {
	switch p.how {
	case look:
		p.peek(ctx)
	case record:
		p.record(ctx)
	case giveBack:
		p.giveBack(ctx)
	}
}

// giveBack takes the hits out of what is counted. Its error is not the request's: the descriptor
// decides nothing, and hits that are not returned age.
func (p *part) giveBack(ctx context.Context) {
	n := min(p.hits, p.rule.Policy.Algorithm.Kind().MaxLimit())
	_, p.error = p.rule.Limiter.Return(ctx, p.key, n)
}

// peek looks whether the hits would pass.
func (p *part) peek(ctx context.Context) {
	cost := p.hits
	if cost > p.rule.Max() {
		cost = 0
	}
	_, err := p.rule.Limiter.Peek(ctx, headgate.Call{Key: p.key, Costs: []int64{cost}, Each: p.state[:]})
	if err == nil && p.state[0].Known == backend.NotCounted {
		err = headgate.ErrUnavailable
	}
	if err != nil {
		p.failed(err)
		return
	}
	p.over = p.hits > p.rule.Max() || p.state[0].RetryAfter > 0
}

// record charges the hits, also above the limit. What is above the highest limit of the
// algorithm changes no answer, and a log takes no such cost.
func (p *part) record(ctx context.Context) {
	//mutant:late-hits-within-a-cost
	cost := min(p.hits, p.rule.Policy.Algorithm.Kind().MaxLimit())
	_, err := p.rule.Limiter.Record(ctx, headgate.Call{Key: p.key, Costs: []int64{cost}, Each: p.state[:]})
	if err != nil {
		p.failed(err)
		return
	}
	p.over = p.state[0].Used > p.rule.Max() || p.hits > cost
}

// failed notes that no store decided. The rule's failure mode stands in, as far as it
// does not count. Neither a Record nor a call whose time is up has one of its own.
func (p *part) failed(err error) {
	p.state[0] = headgate.State{}
	p.error, p.over = err, p.rule.Policy.OnFailure == headgate.FailClosed
}

// undecided returns why a part was not decided whose rule has no failure mode.
func (c *call) undecided() error {
	for i := range c.parts {
		if p := &c.parts[i]; p.error != nil && (!p.rule.FailureMode || errors.As(p.error, new(*headgate.InvalidError))) {
			return p.error
		}
	}
	return nil
}

// quotaLease is the lease of a request whose charge may be given back at once.
const quotaLease = 2 * time.Second

// tooMany reports whether a part that is asked has more hits than its limit: no store
// would admit it.
func (c *call) tooMany() bool {
	for i := range c.parts {
		if p := &c.parts[i]; p.how == ask && p.ordinary() && p.hits > p.rule.Max() {
			return true
		}
	}
	return false
}

// askOne charges the only part that is asked.
func (c *call) askOne(ctx context.Context) {
	i := slices.IndexFunc(c.parts, func(p part) bool { return p.how == ask })
	p := &c.parts[i]
	hg := headgate.Call{Key: p.key, Each: p.state[:]}
	if p.hits != 1 {
		hg.Costs = []int64{p.hits}
	}
	d, err := p.rule.Limiter.Do(ctx, hg)
	c.told(&d, err)
}

// askAll charges several parts. Quotas are asked as shadows: what the other parts were
// charged is given back if none of the quotas had room. If that fails it ages.
func (c *call) askAll(ctx context.Context) {
	var buffer [usualParts]headgate.Part
	parts, quotas := buffer[:0], 0
	for i := range c.parts {
		p := &c.parts[i]
		if p.how != ask {
			continue
		}
		parts = append(parts, headgate.Part{Limiter: p.rule.Limiter,
			Call: headgate.Call{Key: p.key, Costs: []int64{p.hits}, Each: p.state[:], Lease: quotaLease}})
		if p.rule.Quota && !p.rule.Shadow {
			quotas++
		}
	}
	if quotas == 0 || quotas == len(parts) {
		d, err := headgate.All(ctx, parts...)
		c.told(&d, err)
		return
	}
	held, d, err := headgate.ReserveAll(ctx, parts...)
	if c.told(&d, err); err == nil && d.Allowed && c.denied() {
		_ = held.Cancel(ctx)
	}
}

// told notes the decision of the parts that were asked.
func (c *call) told(d *headgate.Decision, err error) {
	for i := range c.parts {
		p := &c.parts[i]
		switch {
		case p.how != ask:
		case err != nil:
			p.failed(err)
		case p.state[0].Known != backend.NotCounted:
			p.over = p.state[0].RetryAfter > 0
		case d.Err != nil:
			p.failed(d.Err)
			p.over = p.over && !d.Allowed
		}
	}
}
