package headgate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Part is one key of an All, a ReserveAll or a WaitAll: a limiter and what it is asked.
type Part struct {
	Limiter *Limiter
	Call    Call
	// Weight is used by WaitAll for the first part: the turns of its key, relative to those
	// of other keys. 0 is 1, and it is at most a million. The Weight of any other part is
	// ignored. Turns are taken within one process: processes do not add up their weights.
	Weight int
}

// Call returns the part of an All that l decides. No costs are one unit of every
// policy, one cost is that of every policy, and else there is one for each.
func (l *Limiter) Call(key string, costs ...int64) Part {
	if len(costs) == 1 && l != nil {
		costs = slices.Repeat(costs, len(l.policies))
	}
	return Part{Limiter: l, Call: Call{Key: key, Costs: costs}}
}

// All decides a call that counts for several keys, such as a user and the user's
// organisation. Each key is decided by the policies of its own limiter. The call passes
// if every key lets it pass, and else is charged to none. List the narrowest key first:
//
//	d, err := headgate.All(ctx, perUser.Call("user:42"), perOrg.Call("org:7"))
//
// The decision is that of the key that binds, which its Key names: of a denial the
// longest RetryAfter, of a pass the least Remaining. A key may be listed twice if no
// policy of it is; there may be 64 keys, and 256 policies of all keys together. No parts
// pass, and so does a part whose costs are all 0: no store is asked for it.
//
// Limiters on one store, in memory or on one server, decide at once, so that nothing
// lies in between. Other keys, as those of a cluster, are reserved: the first key, and
// if it lets the call pass all others in parallel. So a user that is denied costs the
// organisation's node nothing. The store must have Reserve.
//
// What keys of a cluster let pass is given back in the background if another key denies
// the call. Until then it counts, also in the states of Call.Each. It is at most the costs of
// the calls in flight, and of those that are being given back. It stays, until it has
// aged, where the process died meanwhile, or the key's node stayed unreachable for 2 s.
// Then too it is at most these costs.
//
// A key that no store could decide gets the failure mode of its policies. A counted
// denial of another key counts more; of several such keys, the strictest mode speaks.
//
// Parts that a client chose can be wrong. A user who is named twice, or more keys than a call may
// have, is an error of the call, and no decision. To decide such a call, list each key once, and
// deny more than 16 before the call; the guide has the few lines.
//
// An observer of the limiter whose key binds receives one event. All returns within
// the greatest of the stores' budgets.
func All(ctx context.Context, parts ...Part) (d Decision, err error) {
	_, err = decideAll(ctx, backend.Take, parts, &d)
	return d, err
}

// decideAll decides a Take or a Reserve of all parts, as one request of the outermost layer.
// Where it passes, rs has the reservations.
func decideAll(ctx context.Context, op backend.Op, parts []Part, d *Decision) (rs Reservations, err error) {
	if err := checkParts(op, parts); err != nil {
		return nil, err
	}
	if len(parts) == 0 || slices.ContainsFunc(parts, free) {
		return decideRest(ctx, op, parts, d)
	}
	begin, q := time.Now(), question{parts: parts}
	if rs, err = q.ask(ctx, op); err == nil {
		err = q.decide(ctx)
	}
	if q.answer(d); err != nil || !d.Allowed {
		rs = nil
	}
	for i := range rs {
		rs[i].unresolved = q.request.GroupAt(i).Lease.Unresolved
	}
	q.observed(time.Since(begin), err)
	return rs, err
}

// checkParts refuses a number of parts that no call can have.
func checkParts(op backend.Op, parts []Part) error {
	n := len(parts)
	if n <= backend.MaxKeys {
		return nil
	}
	err := &InvalidError{What: "keys", Value: n, Want: fmt.Sprintf("at most %d", backend.MaxKeys)}
	return parts[0].Limiter.refused(op, parts[0].Call.Key, err)
}

// ask makes the request of the parts, and refuses what can't be asked before anything is
// sent. The reservations of a Reserve have the longest lease of all parts.
func (q *question) ask(ctx context.Context, op backend.Op) (rs Reservations, err error) {
	r, length := &q.request, time.Duration(0)
	r.Op, r.Key = op, q.parts[0].Call.Key
	for i := range q.parts {
		p, l := &q.parts[i], q.parts[i].Limiter
		if l.zero() {
			return nil, errZero
		}
		one := backend.Request{Op: op, Group: backend.Group{
			Key: p.Call.Key, Policies: l.policies, Cost: 1, Costs: p.Call.Costs, Each: p.Call.Each, Via: l.outermost()}}
		//mutant:near-of-all-keys
		if l.observer != nil && one.Each == nil { // any key may bind, or come near its limit
			one.Each = make([]State, len(l.policies))
		}
		if op.Opens() {
			//mutant:each-lease-checked
			rs = append(rs, l.newReservation(&one, &p.Call))
			length = max(length, p.Call.lease())
		}
		if err := l.shard.CheckRequest(ctx, &one); err != nil {
			return nil, err
		}
		if i == 0 {
			r.Group = one.Group
		} else {
			r.And = append(r.And, one.Group)
		}
	}
	for i, s := range rs {
		s.length, r.GroupAt(i).Lease.Length = length, length
	}
	return rs, r.CheckKeys()
}

// decide passes the request to the outermost layer: that of a limiter whose store is not in
// this process, if there is one. Its decision names the key that binds.
func (q *question) decide(ctx context.Context) error {
	r, l := &q.request, q.parts[0].Limiter
	for i := range q.parts {
		g := r.GroupAt(i)
		for j := range g.Each {
			p := &g.Policies[j]
			g.Each[j] = State{Policy: p.Name, Limit: p.Algorithm.Max()} // until it is decided
		}
		if l.denial == nil {
			l = q.parts[i].Limiter
		}
		//mutant:all-store-time
		if q.parts[i].Limiter.observer != nil {
			r.StoreTime = &q.storeTime
		}
	}
	err := l.hand(ctx, q)
	if err == nil {
		q.decision.Key = r.GroupAt(q.decision.At).Key
	}
	return err
}

// observed passes the event of a call of several keys to the observer of the key that binds;
// after an error of the first.
func (q *question) observed(took time.Duration, err error) {
	if l := q.parts[q.decision.At].Limiter; l != nil && l.observer != nil {
		l.observe(q, took, err)
	}
}
