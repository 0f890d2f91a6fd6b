package headgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Part is one key of an All, a ReserveAll or a WaitAll: a limiter and what it is asked. Of a First
// it is one of the alternatives.
type Part struct {
	Limiter *Limiter
	Call    Call
	// And has more keys with which the part is decided, all or nothing. Only First needs it:
	// for the others they are parts as any other.
	And []Part
	// Stop is used by First: if no store can decide the part, its failure mode decides the call,
	// and no later part is tried.
	Stop bool
	// Weight is used by WaitAll for the first part: the turns of its key, relative to those
	// of other keys. 0 is 1, and it is at most a million. The Weight of any other part is
	// ignored. Turns are taken within one process: processes do not add up their weights.
	Weight int
}

// Part returns the part of an All that l decides. No costs are one unit of every
// policy, one cost is that of every policy, and else there is one for each.
func (l *Limiter) Part(key string, costs ...int64) Part {
	if len(costs) == 1 && l != nil {
		costs = slices.Repeat(costs, len(l.policies))
	}
	return Part{Limiter: l, Call: Call{Key: key, Costs: costs}}
}

// All decides a call that counts for several keys, such as a user and the user's
// organisation. Each key is decided by the policies of its own limiter. The call passes
// if every key lets it pass, and else is charged to none. List the narrowest key first:
//
//	d, err := headgate.All(ctx, perUser.Part("user:42"), perOrg.Part("org:7"))
//
// The decision is that of the key that binds: of a denial the longest RetryAfter, of a
// pass the least Remaining. Its Key names the key, and At is the index of the part. A key may be listed twice if no
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
func decideAll(ctx context.Context, op backend.Op, parts []Part, d *Decision) (rs []*Reservation, err error) {
	return new(question).decideParts(ctx, op, parts, d)
}

// flat returns the parts, each followed by those of its And. Part i belongs to the caller's part
// of[i]. If of is nil, each is one of the caller's.
func flat(parts []Part) (all []Part, of []int) {
	if !slices.ContainsFunc(parts, func(p Part) bool { return p.And != nil }) {
		return parts, nil
	}
	for i := range parts {
		all = parts[i].appendTo(all)
		of = append(of, slices.Repeat([]int{i}, len(all)-len(of))...)
	}
	return all, of
}

// appendTo appends the part and those of its And, which may contain itself: no call has so many keys.
func (p *Part) appendTo(all []Part) []Part {
	all = append(all, *p)
	//mutant:and-contains-itself
	for i := 0; i < len(p.And) && len(all) <= backend.MaxKeys; i++ {
		all = p.And[i].appendTo(all)
	}
	return all
}

// decideParts decides the parts by a fresh question.
func (q *question) decideParts(ctx context.Context, op backend.Op, parts []Part, d *Decision) (rs []*Reservation, err error) {
	parts, q.of = flat(parts)
	if err := checkParts(op, parts); err != nil {
		return nil, err
	}
	if len(parts) == 0 {
		*d = Decision{Allowed: true, Source: FromNone}
		return nil, backend.CheckContext(ctx)
	}
	begin := time.Now()
	q.limiters = limiters(parts)
	if rs, err = q.ask(ctx, op, parts); err == nil {
		err = q.decide(ctx, rs)
	}
	if q.answer(d); err != nil || !d.Allowed {
		rs = nil
	}
	q.observed(time.Since(begin), err)
	//mutant:held-is-the-same
	if errors.Is(err, backend.ErrHeld) { // of one part, which has an ID
		return parts[0].Limiter.held(ctx, parts[0].Call, begin, d), nil
	}
	return rs, err
}

func limiters(parts []Part) []*Limiter {
	all := make([]*Limiter, len(parts))
	for i := range parts {
		all[i] = parts[i].Limiter
	}
	return all
}

// checkParts refuses a number of parts that no call can have.
func checkParts(op backend.Op, parts []Part) error {
	n := len(parts)
	if n <= backend.MaxKeys {
		return checkIDs(op, parts)
	}
	err := &InvalidError{What: "keys", Value: n, Want: fmt.Sprintf("at most %d", backend.MaxKeys)}
	return parts[0].Limiter.refused(op, parts[0].Call.Key, err)
}

// checkIDs refuses an ID of the caller's for several keys.
func checkIDs(op backend.Op, parts []Part) error {
	for i := range parts {
		if id := parts[i].Call.ID; op.Opens() && id != "" && len(parts) > 1 {
			err := &InvalidError{What: "ID", Value: id, Want: "none, but for a Reserve of one key"}
			return parts[i].Limiter.refused(op, parts[i].Call.Key, err)
		}
	}
	return nil
}

// ask makes the request of the parts, and refuses what can't be asked before anything is
// sent. The reservations of a Reserve have the longest lease of all parts.
func (q *question) ask(ctx context.Context, op backend.Op, parts []Part) (rs []*Reservation, err error) {
	r, length := &q.request, time.Duration(0)
	q.states, *r = nil, backend.Request{Op: op, Group: backend.Group{Key: parts[0].Call.Key}}
	for i := range parts {
		p, l := &parts[i], parts[i].Limiter
		if l.zero() {
			return nil, errZero
		}
		one := backend.Request{Op: op, Group: *l.group(&p.Call)}
		//mutant:each-part-observed
		if l.observer != nil {
			q.observe(l, &one.Group, len(parts) > 1)
		}
		if op.Opens() {
			rs = append(rs, l.newReservation(&one.Group, &p.Call))
			//mutant:each-lease-checked
			length = max(length, p.Call.lease())
		}
		if err := l.free.CheckRequest(ctx, &one); err != nil {
			return nil, err
		}
		if q.first {
			one.Else, one.Stops = i > 0 && q.partOf(i) != q.partOf(i-1), p.Stop
		}
		if i == 0 {
			r.Group = one.Group
		} else {
			r.And = append(r.And, one.Group)
		}
	}
	for i, s := range rs {
		s.lease.Asked.Length, r.GroupAt(i).Lease.Length = length, length
	}
	return rs, r.CheckKeys()
}

// decide passes the request to the outermost layer. Its decision names the key that binds, if
// there are several.
func (q *question) decide(ctx context.Context, rs []*Reservation) error {
	r := &q.request
	for i := range q.limiters {
		g := r.GroupAt(i)
		for j := range g.Each {
			p := &g.Policies[j]
			g.Each[j] = State{Policy: p.Name, Limit: p.Algorithm.Max()} // until it is decided
		}
	}
	err := q.limiters[0].hand(ctx, q)
	if err == nil && len(r.And) > 0 {
		q.decision.Key = r.GroupAt(q.decision.At).Key
	}
	for i := range rs {
		rs[i].lease.Asked.Unresolved = r.GroupAt(i).Lease.Unresolved
	}
	return err
}

// count counts what became of a call of parts: a denial for the limiter whose key binds, and a pass
// for each that was charged.
func (q *question) count() {
	r, d := &q.request, &q.decision
	from, to := r.Alternative(d.At)
	//mutant:denial-of-the-key-that-binds
	if !d.Allowed {
		from, to = d.At, d.At+1
	}
	for i := from; i < to; i++ {
		q.limiters[i].count(r.Op, r.GroupAt(i).Key, d)
	}
}

// observed counts a call of parts, and passes its event to the observer of the key that binds;
// after an error of the first.
func (q *question) observed(took time.Duration, err error) {
	if err == nil {
		q.count()
	}
	if l := q.limiters[q.decision.At]; l != nil && l.observer != nil {
		l.observe(q, took, err)
	}
}
