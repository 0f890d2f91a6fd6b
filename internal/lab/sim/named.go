package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
)

// jobs are how many IDs callers have for the reservations of a key. All processes have the same.
const jobs = 3

// task is a reservation under an ID of a caller's.
type task struct {
	key string
	id  backend.LeaseID
}

// reserved is what nodes have done with a job.
type reserved struct {
	end   int64 // of its lease, µs by the node's clock; 0: it is not open
	loss  int   // how many losses were before it was charged
	wrong string
}

// named reserves a job, or settles it, whoever has reserved it.
func (c *caller) named() {
	n := c.dice.IntN(jobs)
	one := headgate.Call{Key: c.key(), ID: fmt.Sprint("job ", n), Lease: 2 * time.Second}
	if c.process.world.plan.has("deploy") { // another list is an error
		one.ID += fmt.Sprint(" of ", c.process.number%2)
	}
	for range c.policies() {
		one.Costs = append(one.Costs, int64(1+n))
	}
	l, o := c.limiter(), outcome{verb: "named", op: backend.Reserve, key: one.Key, costs: one.Costs}
	if c.dice.IntN(2) == 0 {
		c.ask(o, func(ctx context.Context) (headgate.Decision, error) {
			_, d, err := l.Reserve(ctx, one)
			return d, err
		})
		return
	}
	o.verb, o.op = "settle", backend.Settle
	actual := c.costs()
	c.ask(o, func(ctx context.Context) (headgate.Decision, error) {
		return headgate.Decision{}, l.Reserved(one).Commit(ctx, actual...)
	})
}

// named notes a Return, and what a node has done with a job.
func (l *ledger) named(proc int, key string, now int64, g *asked) {
	if g.op == backend.Return {
		l.returns[holding{proc, key}]++
	}
	if g.lease == nil || len(g.done) == 0 {
		return
	}
	at, d := task{key, g.lease.ID}, &g.done[0]
	j := l.jobs[at]
	if j == nil && g.op == backend.Reserve && g.lease.Named {
		j = &reserved{}
		l.jobs[at] = j
	}
	ends := now + g.lease.Length.Microseconds()
	switch {
	case j == nil:
	case errors.Is(d.err, backend.ErrHeld) || g.op == backend.Extend && d.err == nil:
		j.end = ends
	case d.err != nil:
	case g.op == backend.Settle:
		if !slices.ContainsFunc(g.lease.Actual, func(n int64) bool { return n > 0 }) { // no caller does
			j.wrong = "cancelled"
		}
		j.end = 0
	case d.passed:
		if now < j.end && j.loss == len(l.losses) {
			j.wrong = "charged while it was open"
		}
		j.end, j.loss = ends, len(l.losses)
	}
}

// jobsStand looks for jobs that were charged while they were open, or cancelled. There are no more
// of a key than callers have IDs.
func (w *World) jobsStand() error {
	of := map[string]int{}
	for at, j := range w.ledger.jobs {
		if j.wrong != "" {
			return fmt.Errorf("job %x of %s was %s", at.id, at.key, j.wrong)
		}
		if of[at.key]++; of[at.key] > 2*jobs {
			return fmt.Errorf("%d jobs of %s", of[at.key], at.key)
		}
	}
	return nil
}
