package shard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/denial"
	"github.com/headgate-go/headgate/internal/layer"
)

// record is a charge of units that were used already: those of a Record, or those that
// a Commit adds to its estimate. They go to sub-keys with room first: each is sent a
// RecordAtMost, and answers how much was charged. Only what is left of a policy once all
// sub-keys have answered that they have no room for it is charged above their shares, in
// equal parts. So no sub-key lies above its share while another has room, and once the sum
// is at the limit every sub-key denies.
//
// A Record makes one or two round trips to a node. It makes more only if other processes
// take the room that an answer has shown.
type record struct {
	call  *call
	rest  []int64 // units that are not charged yet, one per policy
	subs  []recorded
	lost  error // of a sub-key that has charged its part or not; it is not sent again
	cause error // of a sub-key that did not answer

	refused error // of a request that was not sent, as its caller has left: no more are sent
}

// recorded is one sub-key as a Record has seen it.
// A sub-key without an answer counts as having the room that is remembered of it. With the
// first answer that becomes exact, until another process takes from it.
type recorded struct {
	room   []int64         // units per policy: as remembered, then as answered
	states []backend.State // the last answer; nil: none yet
	dead   bool            // it did not answer
}

// record charges costs, one per policy.
//
// The first trip goes by what is remembered. Each later one goes by the answers of the one
// before, and sends only what these have left. If a reply is lost, its part counts as
// charged and the call returns ErrPerhapsCounted: sending it elsewhere might charge it
// twice.
//
// The record is there on an error too, with what is not charged.
func (c *call) record(ctx context.Context, costs []int64) (*record, error) {
	r := &record{call: c, rest: slices.Clone(costs), subs: make([]recorded, len(c.k.subs))}
	for i := range r.subs {
		for j := range costs {
			r.subs[i].room = append(r.subs[i].room, max(0, c.k.sub(i).rooms[j].units.Load()))
		}
	}
	first := max(0, c.k.draw(&backend.Group{Costs: ones(costs)}, c.k.denials.Now()))
	for trip := 1; slices.Max(r.rest) > 0 && r.refused == nil; trip++ {
		shares := r.plan(first, trip)
		if len(shares) == 0 {
			break
		}
		r.send(ctx, shares)
	}
	switch cause := cmp.Or(r.refused, r.cause); {
	case r.lost != nil:
		return r, r.lost
	case slices.Max(r.rest) == 0 || cause == nil:
		return r, nil
	//mutant:charged-in-part
	case !slices.Equal(r.rest, costs):
		return r, backend.Wrap(backend.ErrPerhapsCounted, cause)
	default:
		return r, cause
	}
}

// ones returns 1 for each policy that is charged something.
func ones(costs []int64) []int64 {
	some := make([]int64, len(costs))
	for j := range some {
		some[j] = min(costs[j], 1)
	}
	return some
}

// share is what a trip sends to a sub-key: units per policy. The operation is a Record above
// the room, a RecordAtMost up to it, or a Peek that reads it.
type share struct {
	sub   int
	op    backend.Op
	costs []int64
}

// plan divides the rest among the living sub-keys, from the first one on, by their room.
// Each policy is divided by itself. What is left of it goes above the room once all have
// answered. The other policies go by their room still, in a second request of the same trip.
//
// All living sub-keys are asked if the remembered room is too small, and in each trip after
// the first. The sum of their answers shows whether anything goes above.
func (r *record) plan(first, trip int) (shares []share) {
	rest, living, seen := slices.Clone(r.rest), []share(nil), true
	for n := range r.subs {
		i := (first + n) % len(r.subs)
		s := &r.subs[i]
		if s.dead {
			continue
		}
		costs := make([]int64, len(rest))
		for j := range rest {
			costs[j] = min(rest[j], s.room[j])
			rest[j] -= costs[j]
		}
		living, seen = append(living, share{i, backend.RecordAtMost, costs}), seen && s.states != nil
	}
	all := slices.Max(rest) > 0 || trip > 1 || !r.call.k.sub(first).seen.Load()
	for n, s := range living {
		above := share{s.sub, backend.Record, make([]int64, len(rest))}
		for j := range rest {
			//mutant:above-once-all-are-full
			if rest[j] > 0 && seen && r.call.r.Op != backend.RecordAtMost {
				part := rest[j] / int64(len(living)-n)
				above.costs[j], s.costs[j], rest[j] = s.costs[j]+part, 0, rest[j]-part
			}
		}
		if slices.Max(above.costs) > 0 {
			shares = append(shares, above) // before what goes by the room, as stores decide them
		}
		if slices.Max(s.costs) == 0 {
			s.op = backend.Peek
		}
		if s.op != backend.Peek || all && r.subs[s.sub].states == nil {
			shares = append(shares, s)
		}
	}
	return shares
}

// send sends the shares, in one round trip per node.
//
// A share that did not answer is not tried again by other calls for a while.
func (r *record) send(ctx context.Context, shares []share) {
	k := r.call.k
	requests, answers := make([]backend.Request, len(shares)), make([]layer.Answer, len(shares))
	for n, s := range shares {
		requests[n] = backend.Request{Op: s.op, StoreTime: r.call.r.StoreTime, Group: backend.Group{
			Key: k.key, Sub: k.name(s.sub), Policies: k.sub(s.sub).policies,
			Costs: s.costs, Each: make([]backend.State, len(s.costs)), Receipt: new(backend.Receipt),
		}}
	}
	sent := k.denials.Now()
	r.call.s.next.AttemptAll(ctx, requests, answers)
	for n, s := range shares {
		//mutant:record-beyond-budget
		err := cmp.Or(layer.BudgetEnded(ctx, answers[n].Err), answers[n].Err)
		r.note(s.sub, &requests[n], err, sent)
		if r.subs[s.sub].dead { // one that was refused was not asked
			k.unanswered(ctx, s.sub, err)
		}
	}
}

// note notes the answer of the i-th sub-key.
//
// The receipt has what was charged, which is less than was sent if the sub-key had less
// room. A lost answer may have charged all of it, so all of it is left out of the rest.
func (r *record) note(i int, q *backend.Request, err error, sent time.Duration) {
	s, charged := &r.subs[i], q.Receipt.Costs
	switch {
	case err == nil:
		r.call.k.observe(i, &q.Group, true, q.Each, sent, 0) // no denial
		s.states = q.Each
		for j := range s.room {
			s.room[j] = q.Each[j].Remaining
		}
		if q.Op == backend.Peek {
			return
		}
	//mutant:lost-record-not-sent-again
	case errors.Is(err, backend.ErrPerhapsCounted):
		s.dead, r.lost, charged = true, cmp.Or(r.lost, err), q.Costs
	case backend.Undecided(err) || errors.Is(err, context.DeadlineExceeded):
		s.dead, r.cause = true, cmp.Or(r.cause, err)
		return
	default:
		r.refused = err
		return
	}
	for j := range charged {
		r.rest[j] -= charged[j]
	}
}

// decide writes the decision of a Record: exact if all sub-keys have answered, else by
// what is remembered of the others.
//
// The receipt has what was charged. Of a RecordAtMost that may be less than was asked for.
func (r *record) decide() {
	c, k, parts := r.call, r.call.k, [][]backend.State(nil)
	for i := range r.subs {
		if s := &r.subs[i]; s.states != nil {
			parts = append(parts, s.states)
		}
	}
	sum, whole := k.sum(parts), len(parts) == len(r.subs)
	for j := range sum {
		s := &sum[j]
		if s.RetryAfter = 0; !whole {
			s.Remaining = min(max(0, k.left[j].Load()), s.Limit)
			s.Used = s.Limit - s.Remaining
		}
	}
	*c.d = k.decide(sum)
	c.d.Estimated, c.d.Granted = !whole, c.r.Granted()
	copy(c.r.Each, sum)
	if c.r.NewReceipt(backend.Taken); c.r.Receipt != nil {
		c.r.Receipt.Costs = denial.Costs(&c.r.Group)
		for j := range r.rest {
			c.r.Receipt.Costs[j] -= r.rest[j]
		}
	}
	c.d.Receipt = c.r.Receipt
}
