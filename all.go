package headgate

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/denial"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/wait"
)

// A call of several keys is decided in these steps. ask checks all keys, and denied looks
// in the deny cache. Then atOnce sends one request for all, or oneByOne reserves key by
// key. fail applies failure modes, and conclude gives back what a denied call was charged.

// allLease is the lease under which All reserves each key, where the keys are not
// decided at once. A call that passed leaves it to end, and one that was denied
// cancels it.
const allLease = 2 * time.Second

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
// policy of it is; there may be 64 keys, and 256 policies of all keys together.
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
// Parts that a client chose can be wrong: a user who is named twice, or more keys than 16, is
// an error of the call, and no decision. To decide such a call, list each key once, and deny
// more than 16 before the call; the guide has the few lines.
//
// An observer of the limiter whose key binds receives one event. All returns within
// the greatest of the stores' budgets.
func All(ctx context.Context, parts ...Part) (Decision, error) {
	_, d, err := decideAll(ctx, backend.Take, parts)
	return d, err
}

// keys are those of one call, each with its own question. There are at most
// backend.MaxKeys.
type keys []keyed

// keyed is one key of a call. Its decision is zero until it is decided.
type keyed struct {
	question
	limiter     *Limiter
	reservation *Reservation // of what was asked; nil in a Take of all keys at once
	asked       denial.Visit // where all keys are asked for at once
	told        bool
	waits       bool // WaitAll asks again if the call is denied
	local       bool // the reservation is of this process's count: no store was sent it
	err         error
}

// decideAll decides a Take or a Reserve of all parts.
func decideAll(ctx context.Context, op backend.Op, parts []Part) (keys, Decision, error) {
	if err := checkParts(op, parts); err != nil {
		return nil, Decision{}, err
	}
	begin, ks := time.Now(), make(keys, len(parts))
	k, err := ks.bind(ctx, op, parts)
	ks.observe(k, op, time.Since(begin), err)
	return ks, k.decision, err
}

// checkParts refuses a number of parts that no call can have.
func checkParts(op backend.Op, parts []Part) error {
	n := len(parts)
	if n >= 1 && n <= backend.MaxKeys {
		return nil
	}
	err := &InvalidError{What: "keys", Value: n, Want: fmt.Sprintf("1 to %d", backend.MaxKeys)}
	if n == 0 { // no limiter, and so no observer
		return err
	}
	return parts[0].Limiter.refused(op, parts[0].Call.Key, err)
}

// bind decides the parts and returns the key that binds, with the call's decision; after
// an error the first key.
func (ks keys) bind(ctx context.Context, op backend.Op, parts []Part) (*keyed, error) {
	err := ks.ask(ctx, op, parts)
	if err == nil {
		err = ks.decide(ctx)
	}
	k := &ks[0]
	if err != nil {
		k.decision = Decision{}
		return k, err
	}
	k = ks.binding()
	k.decision.Key, k.decision.Granted = k.request.Key, ks.granted(k)
	for i := range ks {
		//mutant:all-group-named
		if k == &ks[i] {
			k.decision.At = i
		}
	}
	return k, nil
}

// ask makes the requests, and refuses what can't be asked before anything is sent.
func (ks keys) ask(ctx context.Context, op backend.Op, parts []Part) error {
	length := time.Duration(0)
	for i := range parts {
		k, p := &ks[i], &parts[i]
		if k.limiter = p.Limiter; k.limiter.zero() {
			return errZero
		}
		k.request = backend.Request{Op: op, Group: backend.Group{
			Key: p.Call.Key, Policies: k.limiter.policies, Cost: 1, Costs: p.Call.Costs, Each: p.Call.Each}}
		k.watch()
		if op.Opens() {
			//mutant:each-lease-checked
			k.reserve(p.Call.lease())
			length = max(length, p.Call.lease())
		}
		if err := k.limiter.shard.CheckRequest(ctx, &k.request); err != nil {
			return err
		}
	}
	for i := range ks {
		k := &ks[i]
		if op.Opens() {
			k.reservation.length, k.request.Lease.Length = length, length
		}
		for j := range k.request.Each {
			p := &k.limiter.policies[j]
			k.request.Each[j] = State{Policy: p.Name, Limit: p.Algorithm.Max()} // until it is decided
		}
	}
	whole := ks.whole()
	return whole.CheckKeys()
}

// whole returns one request for all keys.
func (ks keys) whole() backend.Request {
	r := ks[0].request
	for i := range ks[1:] {
		r.And = append(r.And, ks[1+i].request.Group)
	}
	return r
}

// reserve makes the key's request a Reserve under a lease of its own.
func (k *keyed) reserve(length time.Duration) {
	k.reservation = k.limiter.newReservation(&k.request, length)
}

func (ks keys) decide(ctx context.Context) error {
	switch {
	case len(ks) == 1:
		//mutant:all-store-time
		ks[0].request.StoreTime = &ks[0].question.storeTime
		ks[0].hand(ctx, ctx)
		return ks.conclude(ctx)
	//mutant:all-denied-from-cache
	case ks.denied():
		return nil
	case ks.atHome(ctx):
		return nil
	case ks.together():
		return ks.atOnce(ctx)
	}
	return ks.oneByOne(ctx, 0)
}

// together reports whether one store decides all keys at once.
func (ks keys) together() bool {
	s := ks[0].limiter.store
	for i := range ks {
		if !same(ks[i].limiter.store, s) {
			return false
		}
	}
	return len(ks) <= s.Capabilities().Keys
}

// same reports whether two stores are one.
func same(a, b backend.Store) bool { return reflect.TypeOf(a).Comparable() && a == b }

// atOnce asks for all keys in one request. Only where no store decided, each key's
// limiter decides by its failure modes. A store that has just learnt that it can't decide
// several keys at once is asked one by one, within the same budget.
func (ks keys) atOnce(ctx context.Context) error {
	k, begin := &ks[0], time.Now()
	r := ks.whole()
	for i := range ks {
		if l := ks[i].limiter; l.denial != nil {
			ks[i].asked = l.denial.Ask(ks[i].request.Key)
		}
		if i > 0 && r.Op.Opens() {
			ks[i].reservation.id = r.Lease.IDOf(i)
			//mutant:local-lease-of-each-key
			ks[i].request.Lease.ID = ks[i].reservation.id // FailLocal keeps its lease by it
		}
	}
	r.StoreTime = &k.question.storeTime
	var d Decision
	err := ks.attempt(ctx, &r, &d)
	//mutant:all-split-asked-again
	if errors.Is(err, backend.ErrUnavailable) && !ks.together() {
		return ks.oneByOne(ctx, time.Since(begin))
	}
	if backend.Undecided(err) {
		return ks.fail(ctx, err)
	}
	if err == nil {
		ks.tell(&d)
	}
	return err
}

// tell notes the decision of all keys with the one that it names. The deny cache keeps
// a denial of that key.
func (ks keys) tell(d *Decision) {
	ks[d.At].decision, ks[d.At].told = *d, true
	for i := range ks {
		//mutant:all-denial-noted
		if k := &ks[i]; k.limiter.denial != nil && (i == d.At || d.Allowed) {
			k.limiter.denial.Note(&k.asked, &k.request, d, nil)
		}
	}
}

// fail decides every key by its failure modes.
func (ks keys) fail(ctx context.Context, err error) error {
	for i := range ks {
		//mutant:all-local-gives-back
		if ks[i].reservation == nil { // a denial gives back what FailLocal charged
			ks[i].reserve(allLease)
			//mutant:lost-all-settles-nothing
			ks[i].local = true
		}
		ks[i].fail(ctx, err)
	}
	return ks.conclude(ctx)
}

// fail decides the key by its failure modes.
func (k *keyed) fail(ctx context.Context, err error) {
	k.told = true
	k.err = k.limiter.breaker.Fail(ctx, &k.request, &k.decision, err)
	//mutant:all-lost-known-denial
	if k.local && !k.waits && k.decision.Source == FromDenyCache { // no lease was sent that is to be cancelled
		k.decision.Err = nil
	}
}

// denied reports whether a key is known to be denied. Then no store is asked: a flood
// on a spent key stays in this process.
func (ks keys) denied() (any bool) {
	for i := range ks {
		k := &ks[i]
		if k.limiter.denial != nil && k.limiter.denial.Known(&k.request, &k.decision) {
			k.told, any = true, true
		}
	}
	return any
}

// oneByOne reserves the first key, and the others if it passed. Where the first
// key's failure mode denies the call, the others are only looked at: a counted denial
// says more. Of the budget a part is spent.
func (ks keys) oneByOne(ctx context.Context, spent time.Duration) error {
	for i := range ks {
		if k := &ks[i]; k.reservation == nil {
			k.reserve(allLease)
		}
		ks[i].request.StoreTime = &ks[i].question.storeTime
	}
	bounded, cancel := ks.bounded(ctx, spent)
	defer cancel()
	first, others, within := &ks[0], ks[1:], ctx
	//mutant:all-split-within-budget
	if spent > 0 {
		within = bounded
	}
	if first.hand(ctx, within); first.err == nil && (first.decision.Allowed || !wait.Counted(&first.decision)) {
		for i := range others {
			//mutant:all-first-failed-peeks
			if !first.decision.Allowed {
				others[i].request.Op, others[i].request.Lease = backend.Peek, nil
			}
		}
		layer.Parallel(len(others), func(i int) { others[i].hand(ctx, bounded) })
	}
	return ks.conclude(ctx)
}

// bounded returns a context that ends with the greatest of the stores' budgets, of which a
// part is spent.
func (ks keys) bounded(ctx context.Context, spent time.Duration) (context.Context, context.CancelFunc) {
	budget := time.Duration(0)
	for i := range ks {
		shared := layer.Of(ks[i].limiter.store)
		if shared == nil || shared.Budget == 0 {
			return ctx, func() {}
		}
		budget = max(budget, shared.Budget)
	}
	return layer.Within(ctx, budget, budget-spent)
}

// hand requests the key's decision from its limiter. Where the call's own budget has
// ended, the failure modes decide.
func (k *keyed) hand(ctx, bounded context.Context) {
	k.told, k.err = true, k.limiter.hand(bounded, &k.question)
	//mutant:all-budget-ends
	if ended := layer.BudgetEnded(bounded, k.err); ended != nil {
		k.fail(ctx, ended)
	}
}
