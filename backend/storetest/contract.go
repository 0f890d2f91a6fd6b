package storetest

import (
	"context"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/headgate-go/headgate/backend"
)

// sentence is a case: a rule, in the contract a sentence of the comment on
// backend.Store, word by word, and the function that checks it.
type sentence struct {
	name     string
	run      func(*probe)
	sentence string
}

// contract stands in the order of the comment on backend.Store. A test holds
// the two lists equal, so a new promise without a case fails the build.
var contract = []sentence{
	{"Fits", fits, "A take that fits every policy's limit passes and is charged to every policy."},
	{"CostZero", costsNothing, "A cost of 0 beside another is charged nothing and stores nothing; " +
		"the policy denies only while more is used than its limit."},
	{"Denied", deniesAll, "A take that one policy has no room for is denied and charges none of them."},
	{"DeniedStores", deniedStores, "A denied take stores nothing."},
	{"Peek", peeks, "A peek answers what a take would and stores nothing."},
	{"Reset", resets, "A reset makes the key unused for the policies it lists, and for no others."},
	{"Name", names, "A count belongs to a policy's name and its algorithm's Identity: " +
		"requests that agree on both share it, whatever else they list. Others have separate counts."},
	{"Limit", limits, "A limit that changes counts from the next request on what is already used."},
	{"Keys", keys, "Two keys never share a count, whatever bytes they hold."},
	{"Binds", binds, "A decision's State is the binding policy's: of a denial the longest RetryAfter, " +
		"of a pass the least Remaining, of equals the first listed."},
	{"Each", fillsEach, "Each is filled with the state of every policy, in the order listed."},
	{"Counted", counted, "No State of a decision is NotCounted."},
	{"Remaining", remaining, "Remaining is the limit less what is used, on a denial too, and never below zero."},
	{"RetryAfter", retryAfter, "RetryAfter is exact: after it the same take passes if no other call took, " +
		"a microsecond earlier it does not, and on a denial it is never zero."},
	{"ResetAfter", resetAfter, "ResetAfter is exact: after it the key is unused, a microsecond earlier it is not."},
	{"Queue", queues, "A LeakyQueue passes what waits for at most its longest delay. Delay is how long, of a run how long its last call; " +
		"the decision has the longest of the policies that are no shadows."},
	{"Refused", refuses, "A cost no policy could ever grant is ErrNeverAdmissible, " +
		"and a request out of range an *InvalidError; no count changes."},
	{"Capabilities", capable, "An operation or a number of keys beyond the store's Capabilities is ErrUnsupported, " +
		"and no count changes."},
	{"Context", ended, "A context that has ended before anything was sent is its error, and nothing was counted."},
	{"Corrupt", corrupt, "A value that is not the store's own is a *CorruptError that names the key, " +
		"and no count changes."},
	{"Unavailable", unavailable, "A store that cannot answer says ErrUnavailable if nothing was counted, " +
		"and ErrPerhapsCounted if that is not known."},
	{"AtMostOnce", atMostOnce, "A take is charged at most once, whatever is lost on the way."},
	{"Expires", expires, "Everything stored expires by itself."},
	{"Close", closed, "After Close every request is ErrClosed."},
	{"Zero", failsZero, errorsAreZero},
	{"Left", leavesRequests, requestsAreLeft},
	{"Kept", keepsNothing, nothingIsKept},
}

// Contract runs a case for each sentence of the comment on backend.Store, on
// each algorithm by itself and on all of them in one list. The fields of Subject say
// which cases need a hook.
func Contract(t *testing.T, h Harness) { h.cases(t, everyRule()) }

func everyRule() []sentence {
	return slices.Concat(contract, shadowed, leased, returned, named, leasedShadows, borrowed)
}

// These three are checked in every case, not only in their own. They are
// reported as themselves: a store that breaks one fails other sentences too,
// and those failures would point at the wrong place.
const (
	errorsAreZero   = "An error leaves the decision zero."
	requestsAreLeft = "Nothing is written to a request, but to what its Each, Loan and StoreTime name."
	nothingIsKept   = "Neither the request nor the decision is kept when Do has returned, also where ctx ended first."
)

// send sends a request as a caller does that keeps both in a pool. It compares
// the request with a copy, and then overwrites it and the decision.
func (p *probe) send(ctx context.Context, r backend.Request) (backend.Decision, error) {
	r.Shards = p.shape.shards
	p.t.Helper()
	own, before, d := r, r, new(backend.Decision)
	before.Policies, before.Costs = slices.Clone(r.Policies), slices.Clone(r.Costs)
	err := p.Store.Do(ctx, &own, d)
	if !reflect.DeepEqual(own, before) {
		p.breaks(requestsAreLeft, "a request was\n\t%+v\nand is\n\t%+v", before, own)
	}
	answer := *d
	if err != nil && answer != (backend.Decision{}) {
		p.breaks(errorsAreZero, "beside the error %v stands %+v", err, answer)
	}
	own, *d = another(r.Policies), spent
	return answer, err
}

// another is what a request is used for next, spent what a decision is. Both are
// valid, so that a store that reads them late counts and does not fail.
func another(list []backend.Policy) backend.Request { return request(backend.Take, "another", list, 1) }

var spent = backend.Decision{Allowed: true, State: backend.State{Policy: "spent", Used: math.MaxInt64}}

// failsZero causes every error that it can, and send looks at the decision.
func failsZero(p *probe) {
	list := p.list(p.day(10))
	p.passes("a", list, 4)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, op := range append([]backend.Op{0}, asked...) {
		_, _ = p.send(context.Background(), request(op, "a", list, 11))
		_, _ = p.send(gone, request(op, "a", list, 11))
	}
	if p.Corrupt != nil {
		p.passes("bad", list, 4)
		p.Corrupt("bad", list)
		p.garbage("bad", list)
	}
	for _, fault := range []func(){p.Refuse, p.LoseReply} {
		if fault != nil {
			fault()
			_, _ = p.do(request(backend.Take, "a", list, 1))
			p.peek("a", list, 1) // a success between the faults, or a circuit would open
		}
	}
	p.must(p.Store.Close() == nil, "the store does not close")
	_, err := p.do(another(list))
	p.must(err != nil, "a closed store decides")
}

// leavesRequests sends every combination of operation, costs and states,
// a take until each is denied. A store that normalizes a request in
// place, for example by filling Costs, changes what the caller sends next.
func leavesRequests(p *probe) {
	list, take := p.list(p.day(12)), backend.Take
	for _, op := range []backend.Op{take, backend.Peek, take, take, take, backend.Reset} {
		g := group("a", list, 1)
		p.ask(op, g)
		g.Each = make([]backend.State, len(list))
		p.ask(op, g)
		g.Costs, g.Each = ramp(list), nil
		p.ask(op, g)
	}
}

// keepsNothing calls with contexts that last, that end meanwhile, and that have
// ended. A store that answers on another goroutine still holds the request of a
// caller that left. It then charges 50 units, charges the key "another", or
// writes a decision that belongs to somebody else.
func keepsNothing(p *probe) {
	const calls = 60
	list, passed := p.list(p.day(100)), int64(0)
	var decisions [calls]backend.Decision
	for i := range decisions {
		ctx, leave := context.WithCancel(context.Background())
		switch i % 3 {
		case 1:
			go leave()
		case 2:
			leave()
		}
		d, r := &decisions[i], another(list)
		r.Key, r.Shards, r.Costs = "a", p.shape.shards, slices.Repeat([]int64{1}, len(list))
		if p.Store.Do(ctx, &r, d) == nil && d.Allowed {
			passed++
		}
		leave()
		for j := range r.Costs {
			r.Costs[j] = 50
		}
		r, *d = another(list), spent
	}
	for _, s := range p.states("a", list) {
		p.must(s.Used >= passed && s.Used <= calls, "%d calls of 1 unit took %d, %d passed", calls, s.Used, passed)
	}
	p.used("another", list, 0)
	for i := range decisions {
		p.must(decisions[i] == spent, "a decision was written after its call: %+v", decisions[i])
	}
}
