package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
)

// leased stands in the order of the comment on backend.Store, behind the case
// Capabilities. A store without the operations skips the cases.
var leased = []sentence{
	{"Reserve", reserves, "A Reserve decides and charges as a take does, and keeps its lease where it passes. " +
		"If its lease is Free it may cost nothing. Under an ID that is in use it is ErrNotHeld and changes nothing."},
	{"Settle", settles, "A Settle leaves what would stand had the lesser of estimate and actual been charged " +
		"at the instant of the Reserve, and records the excess now."},
	{"SettleLate", settlesLate, "What has left its window gives nothing back, no other charge is touched, " +
		"and no count falls below zero."},
	{"SettleLevel", settlesLevel, "A TokenBucket gives back at most its level just after the Reserve, " +
		"less what has leaked and what others have given back since."},
	{"Refill", refills, "A TokenBucket regains at least 99.9 % of its rate, " +
		"whatever is reserved and given back in between."},
	{"QueueGivesBack", queueGivesBack, "A LeakyQueue gives back what nothing was charged behind, and else nothing."},
	{"SettleEach", settledStates, "A Settle with an Each is Allowed, and answered by the states of a Peek of one unit right after it; one that is not known is zero."},
	{"SettleOnce", settlesOnce, "The first Settle of a lease wins: for one Length after it, one that repeats its Attempt is nil; " +
		"any other is ErrNotHeld, and neither changes a count."},
	{"LeaseEnds", leaseEnds, "A lease that has ended can be settled for one Length more. " +
		"Then, and under an ID or a key that has none, it is ErrNotHeld."},
	{"LateLease", latelySettled, "A lease that was reserved Late can be settled until twice its Length, at least ten minutes, " +
		"have passed since its end was set. What its Settle leaves stays as long."},
	{"Extend", extends, "An Extend moves the end to one Length from now; of a lease that has ended it is " +
		"ErrLeaseEnded, of one that is not held ErrNotHeld."},
	{"LeaseReset", leaseReset, "A Reset of a key ends its leases: a Settle or an Extend is ErrNotHeld, " +
		"and changes no count."},
	{"Unresolved", unresolved, "A Settle with Unresolved leaves a tombstone, and records Actual if it finds no lease; " +
		"a Reserve or another Settle that finds the tombstone is ErrNotHeld and changes nothing."},
	{"Record", records, "A Record passes, whatever is used, and charges up to twice the greatest limit " +
		"of the algorithm's kind."},
	{"InFlight", holdsSlots, "A slot of an InFlight is held from a Reserve until its lease is settled or ends; " +
		"only a Reserve takes one, and RetryAfter is when it is free at the latest."},
	{"AllOrNothing", allOrNothing, "A request of several keys passes if the policies of every key have room, " +
		"and is charged to all. Else it is charged to none and stores nothing."},
	{"KeyBinds", keyBinds, "Of several keys the State is that of the policy that binds among all, " +
		"and Key and At name its key and group; Each is its own group's."},
	{"ReserveAll", reservesAll, "A Reserve of several keys keeps the lease of each group, " +
		"and each is settled by itself."},
	{"CountTwice", countTwice, "A key may be in two groups of a request, a count may not: " +
		"it is an *InvalidError, and no count changes."},
	{"First", firstThatFits, "Of several alternatives the first is charged whose policies all have room, and no other. " +
		"A count may be in several alternatives."},
	{"FirstSoonest", soonestAlternative, "If none has room, the decision is that of the alternative that passes soonest, of equals the first."},
	{"FirstEach", laterStays, "Each of an alternative that was not looked at, behind the one that passed, stays as it is."},
	{"FirstSettled", firstSettled, "A Settle of several alternatives with Unresolved leases settles the lease that is held, " +
		"and leaves a tombstone of each other. If none is held, it records what the first alternative names."},
}

// reservation is a lease of a key, as its holder has it.
type reservation struct {
	p *probe
	backend.Lease
	group backend.Group
}

func (p *probe) newID() (id backend.LeaseID) {
	binary.NativeEndian.PutUint64(id[:], p.dice.Uint64())
	binary.NativeEndian.PutUint64(id[8:], p.dice.Uint64())
	return id
}

// lease returns a reservation that is not made yet.
func (p *probe) lease(g backend.Group) *reservation {
	return &reservation{p, backend.Lease{ID: p.newID(), Length: time.Minute}, g}
}

// reserved reserves what has to pass.
func (p *probe) reserved(key string, list []backend.Policy, n int64) *reservation {
	p.t.Helper()
	r := p.lease(group(key, list, n))
	r.reserve(n)
	return r
}

// reserve reserves what has to be granted, or denied where that is 0.
func (r *reservation) reserve(granted int64) backend.Decision {
	r.p.t.Helper()
	d, err := r.send(backend.Reserve)
	r.p.must(err == nil && d.Allowed == (granted > 0) && (d.Allowed || d.RetryAfter > 0),
		"a Reserve of %d said %+v, %v", r.group.Cost, d, err)
	return d
}

func (r *reservation) send(op backend.Op) (backend.Decision, error) {
	r.p.needsOp(op)
	l := r.Lease
	return r.p.send(context.Background(), requestOn(op, r.group, &l))
}

// gives requires that an operation of the lease ends in this error, or in none.
func (r *reservation) gives(op backend.Op, want error, what string) {
	r.p.t.Helper()
	d, err := r.send(op)
	r.p.must(errors.Is(err, want), "%s: %v", what, err)
	r.p.must(op != backend.Settle || d.Allowed == (err == nil), "%s allowed: %v, and failed: %v", what, d.Allowed, err)
}

// settle settles by one actual for all policies, as an attempt of its own.
func (r *reservation) settle(actual int64, want error) {
	r.p.t.Helper()
	r.Attempt, r.Actual = r.p.newID(), slices.Repeat([]int64{actual}, len(r.group.Policies))
	r.gives(backend.Settle, want, fmt.Sprint("a Settle by ", actual))
}

func (r *reservation) settles(actual int64) {
	r.p.t.Helper()
	r.settle(actual, nil)
}

// notHeld requires that neither a Settle nor an Extend finds the lease, nor changes
// the key.
func (r *reservation) notHeld() {
	r.p.t.Helper()
	unchanged := r.p.still(r.group.Key, r.group.Policies)
	r.settle(1, backend.ErrNotHeld)
	r.gives(backend.Extend, backend.ErrNotHeld, "an Extend of a lease that is not held")
	unchanged()
}

// alike requires that two keys' counts are equal.
func (p *probe) alike(a, b string, list []backend.Policy) {
	p.t.Helper()
	x, y := p.states(a, list), p.states(b, list)
	for i := range x {
		exact := list[i].Algorithm.Kind() != rule.KindTokenBucket // of which a rest is rounded again
		ok := x[i].Used == y[i].Used && (!exact || p.same(x[i], y[i]))
		p.must(ok, "the count of %q is\n\t%+v\nand that of %q\n\t%+v", a, x[i], b, y[i])
	}
}

func reserves(p *probe) {
	list := p.list(p.day(10))
	r := p.reserved("a", list, 6)
	p.passes("b", list, 6)
	p.alike("a", "b", list)
	r.gives(backend.Reserve, backend.ErrNotHeld, "a second Reserve under one ID")
	p.used("a", list, 6)
	unchanged := p.still("a", list)
	denied := p.lease(group("a", list, 5))
	denied.reserve(0)
	unchanged()
	denied.notHeld()
	r.settles(6)
	p.used("a", list, 6)
	free := p.lease(group("free", list, 0))
	free.Free = true
	free.gives(backend.Reserve, nil, "a Reserve of nothing")
	free.settles(7)
	p.used("free", list, 7)
}

// settles corrects one reservation among other charges by less, as much and more.
func settles(p *probe) {
	list := p.list(p.day(100))
	for _, actual := range []int64{0, 1, 25, 40, 41, 130} {
		a, b := fmt.Sprint("a", actual), fmt.Sprint("b", actual)
		p.passes(a, list, 10)
		r := p.reserved(a, list, 40)
		p.passes(a, list, 5)
		r.settles(actual)
		p.used(a, list, 15+actual)
		p.passes(b, list, 15)
		if actual <= 85 && actual > 0 {
			p.passes(b, list, actual)
		}
		if actual <= 85 {
			p.alike(a, b, list)
		} else {
			p.denied(a, list, 1)
		}
	}
	r := p.reserved("cancelled", list, 100)
	r.Actual = nil
	r.gives(backend.Settle, nil, "a Settle without Actual")
	p.asNew("cancelled", list)
}

// settlesLate moves the clock between the Reserve and the Settle, over all that an
// algorithm can make of it.
func settlesLate(p *probe) {
	p.needsClock()
	list := p.list(algo.Per(100*p.k, time.Minute))
	for i, pause := range []time.Duration{0, 24 * sec, 49 * sec, 60 * sec, 118 * sec} {
		end := func(r *reservation) { p.advance(pause); r.settles(25) }
		(&settlement{length: time.Minute, charged: 25, end: end}).run(p, fmt.Sprint(i), list, 0)
	}
}

func settlesOnce(p *probe) {
	list := p.list(p.day(100))
	r := p.reserved("a", list, 40)
	r.settles(10)
	r.gives(backend.Settle, nil, "a Settle that repeats its attempt")
	p.used("a", list, 10)
	r.notHeld()
	cancelled := p.reserved("a", list, 40)
	cancelled.settles(0)
	cancelled.notHeld()
	p.used("a", list, 10)
	for i := range 20 {
		key := fmt.Sprint("race", i)
		won := p.reserved(key, list, 40).settledAtOnce(0, 1, 2, 3)
		p.used(key, list, won)
	}
	repeats(p, list)
}

// settledAtOnce settles from a goroutine per actual, and returns that of the one that
// wins.
func (r *reservation) settledAtOnce(actuals ...int64) int64 {
	r.p.t.Helper()
	attempts := make([]reservation, len(actuals))
	for i, actual := range actuals {
		attempts[i] = *r
		attempts[i].Attempt, attempts[i].Actual = r.p.newID(), slices.Repeat([]int64{actual}, len(r.group.Policies))
	}
	var wins, won atomic.Int64
	together(len(attempts), func(i int, _ *rand.Rand) {
		if _, err := attempts[i].send(backend.Settle); err == nil {
			wins.Add(1)
			won.Store(actuals[i])
		} else if !errors.Is(err, backend.ErrNotHeld) {
			r.p.errorf("a Settle among others: %v", err)
		}
	})
	r.p.must(wins.Load() == 1, "%d Settles won", wins.Load())
	return won.Load()
}

func leaseEnds(p *probe) {
	list := p.list(p.day(100))
	p.lease(group("none", list, 1)).notHeld()
	r := p.reserved("a", list, 40)
	other := *r
	other.group.Key = "b"
	other.notHeld()
	p.needsClock()
	p.advance(2*time.Minute - tick)
	r.settles(10)
	p.used("a", list, 10)
	r.notHeld()
	r = p.reserved("a", list, 40)
	p.advance(2 * time.Minute)
	r.notHeld()
	p.used("a", list, 50)
}

func extends(p *probe) {
	list := p.list(p.day(100))
	p.passes("b", list, 10)
	r := p.reserved("a", list, 40)
	r.Length = time.Hour
	r.gives(backend.Extend, nil, "an Extend")
	p.used("a", list, 40)
	p.needsClock()
	p.advance(time.Hour - tick)
	r.Length = 30 * time.Second
	r.gives(backend.Extend, nil, "an Extend just before the end")
	p.advance(30 * time.Second)
	unchanged := p.still("a", list)
	r.gives(backend.Extend, backend.ErrLeaseEnded, "an Extend at the end")
	unchanged()
	r.settles(10)
	p.alike("a", "b", list)
	r.notHeld()
}

func leaseReset(p *probe) {
	list := p.list(p.day(100))
	other := p.reserved("b", list, 40)
	r := p.reserved("a", list, 40)
	p.reset("a", list)
	r.notHeld()
	p.asNew("a", list)
	later := p.reserved("a", list, 30)
	r.notHeld()
	p.used("a", list, 30)
	later.settles(20)
	p.used("a", list, 20)
	other.settles(10)
	p.used("b", list, 10)
	if slots := []backend.Policy{policy("slots", algo.InFlight(1))}; p.Store.Check(slots) == nil {
		held := p.reserved("slots", join(list, slots), 1)
		p.reset("slots", list)
		held.gives(backend.Extend, backend.ErrNotHeld, "an Extend after a Reset of other policies")
		p.used("slots", slots, 1)
		held.settle(1, backend.ErrNotHeld)
		p.used("slots", slots, 0) // the call has ended
	}
}

func unresolved(p *probe) {
	list := p.list(p.day(100))
	late := p.lease(group("late", list, 40)) // whose Settle overtakes its Reserve
	late.Unresolved = true
	late.settles(25)
	p.used("late", list, 25)
	late.gives(backend.Settle, nil, "a Settle that repeats its attempt")
	unchanged := p.still("late", list)
	late.gives(backend.Reserve, backend.ErrNotHeld, "a Reserve that finds a tombstone")
	late.settle(9, backend.ErrNotHeld)
	unchanged()

	cancelled := p.lease(group("cancelled", list, 40))
	cancelled.Unresolved = true
	cancelled.settles(0)
	p.asNew("cancelled", list)
	cancelled.gives(backend.Reserve, backend.ErrNotHeld, "a Reserve after its cancellation")
	p.asNew("cancelled", list)

	found := p.reserved("found", list, 40)
	found.Unresolved = true
	found.settles(25)
	p.used("found", list, 25)
	found.settle(9, backend.ErrNotHeld)
	p.used("found", list, 25)
	tombstones(p, list)
	tombstonesLeave(p, list)
}

// tombstonesLeave moves the clock: a tombstone leaves after the longer of ten minutes and
// two lengths. That of a lease which a Reset has ended stays as long.
func tombstonesLeave(p *probe, list []backend.Policy) {
	p.needsClock()
	for _, length := range []time.Duration{time.Minute, time.Hour} {
		r := p.lease(group(fmt.Sprint("leaves", length), list, 40))
		r.Length, r.Unresolved = length, true
		r.settles(0)
		p.advance(max(2*length, 10*time.Minute) - tick)
		r.gives(backend.Reserve, backend.ErrNotHeld, "a Reserve that finds a tombstone")
		p.advance(tick)
		r.reserve(40)
	}
	reset := p.reserved("reset", list, 40)
	reset.Unresolved = true
	p.reset("reset", list)
	reset.settle(9, backend.ErrNotHeld)
	p.advance(5 * time.Minute) // the lease has left
	reset.settle(9, backend.ErrNotHeld)
	p.used("reset", list, 0)
}

func holdsSlots(p *probe) {
	running := p.carried(policy("running", algo.InFlight(2)))
	list := p.carried(join(running, p.list(p.day(100)))...)
	for _, op := range []backend.Op{backend.Take, backend.Record} {
		var invalid *backend.InvalidError
		_, err := p.send(context.Background(), request(op, "a", list, 1))
		unsupported := errors.Is(err, backend.ErrUnsupported) && !p.Store.Capabilities().Ops.Has(op)
		p.must(unsupported || errors.As(err, &invalid), "a %v of an InFlight policy: %v", op, err)
	}
	p.asNew("a", list)
	first, second := p.reserved("a", list, 1), p.reserved("a", list, 1)
	p.used("a", list, 2)
	d := p.noSlot(list)
	p.must(p.SetNow == nil || d.RetryAfter == time.Minute, "RetryAfter of a slot is %v", d.RetryAfter)
	first.settles(1)
	p.used("a", running, 1)
	third := p.reserved("a", list, 1)
	p.noSlot(list)
	third.settles(0)
	p.used("a", running, 1)
	p.needsClock()
	p.advance(time.Second)
	second.gives(backend.Extend, nil, "an Extend")
	p.advance(time.Minute - tick)
	p.used("a", running, 1)
	p.advance(tick)
	p.asNew("a", running)
	p.used("a", list[1:], 2)
	second.settles(0)
	p.used("a", list[1:], 1)
}

// noSlot requires that the key has no slot left, and that nothing is charged.
func (p *probe) noSlot(list []backend.Policy) backend.Decision {
	p.t.Helper()
	unchanged := p.still("a", list)
	d := p.lease(group("a", list, 1)).reserve(0)
	p.must(d.Policy == "running", "a Reserve without a slot said %+v", d)
	unchanged()
	return d
}
