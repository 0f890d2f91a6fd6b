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
// RecordAtMost, and answers how much was charged. Only what is left once all sub-keys
// have answered that they have no room is charged above their shares, in equal parts. So
// no sub-key lies above its share while another has room, and once the sum is at the
// limit every sub-key denies.
//
// A Record makes one or two round trips to a node. It makes more, at most recordTrips,
// only if other processes take the room that an answer has shown.
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

const recordTrips = 5

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
		shares, above := r.plan(first, trip)
		if len(shares) == 0 || above && c.r.Op == backend.RecordAtMost {
			break
		}
		r.send(ctx, shares, above)
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

// plan divides the rest among the living sub-keys, from the first one on, by their room.
// It returns the costs of each sub-key that is sent something. It reports whether they
// are charged above the room: once all have answered that the rest has no room.
//
// All living sub-keys are asked if the remembered room is too small, and in each trip after
// the first. The sum of their answers shows whether anything goes above.
func (r *record) plan(first, trip int) (shares map[int][]int64, above bool) {
	shares, rest, living, seen := map[int][]int64{}, slices.Clone(r.rest), []int{}, true
	for n := range r.subs {
		i := (first + n) % len(r.subs)
		s := &r.subs[i]
		if s.dead {
			continue
		}
		living, shares[i], seen = append(living, i), make([]int64, len(rest)), seen && s.states != nil
		for j := range rest {
			shares[i][j] = min(rest[j], s.room[j])
			rest[j] -= shares[i][j]
		}
	}
	full := len(living) > 0 && slices.Max(rest) > 0
	//mutant:above-once-all-are-full
	above = full && (seen || trip == recordTrips)
	all := full || trip > 1 || !r.call.k.sub(first).seen.Load()
	for n, i := range living {
		for j := range rest {
			if above {
				part := rest[j] / int64(len(living)-n)
				shares[i][j], rest[j] = shares[i][j]+part, rest[j]-part
			}
		}
		if slices.Max(shares[i]) == 0 && !(all && r.subs[i].states == nil) {
			delete(shares, i)
		}
	}
	return shares, above
}

// send sends the shares, in one round trip per node. One of nothing asks for the room.
//
// A share that did not answer is not tried again by other calls for a while.
func (r *record) send(ctx context.Context, shares map[int][]int64, above bool) {
	k, at := r.call.k, []int(nil)
	requests, answers := make([]backend.Request, 0, len(shares)), make([]layer.Answer, len(shares))
	for i, costs := range shares {
		q := backend.Request{Op: backend.RecordAtMost, StoreTime: r.call.r.StoreTime, Group: backend.Group{
			Key: k.key, Sub: k.name(i), Policies: k.sub(i).policies,
			Costs: costs, Each: make([]backend.State, len(costs)), Receipt: new(backend.Receipt),
		}}
		if above {
			q.Op = backend.Record
		} else if slices.Max(costs) == 0 {
			q.Op = backend.Peek
		}
		at, requests = append(at, i), append(requests, q)
	}
	sent := k.denials.Now()
	r.call.s.next.AttemptAll(ctx, requests, answers)
	for n, i := range at {
		//mutant:record-beyond-budget
		err := cmp.Or(layer.BudgetEnded(ctx, answers[n].Err), answers[n].Err)
		r.note(i, &requests[n], err, sent)
		if r.subs[i].dead { // one that was refused was not asked
			k.unanswered(ctx, i, err)
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
