package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/oracle"
)

// lengths of leases.
var lengths = []time.Duration{time.Second, 1500 * time.Millisecond, 10 * time.Second, time.Minute}

func (w *world) reserve(s *step) error {
	list, costs := w.p.lists[s.limiter], w.costs(s, false)
	part, length := w.part(s.limiter, s.key, costs, true), lengths[s.draw[3]%4]
	sure, _ := w.model.Sure(backend.Reserve, []oracle.Part{part})
	lost := w.losing(s, sure)
	r, d, err := w.limiters[s.limiter].Reserve(context.Background(), headgate.Call{Key: part.Key, Costs: costs, Each: part.Each, Lease: length})
	w.say("%d: limiter %d: Reserve(%d, %v, %v) = %v, %v", s.id, s.limiter, s.key, costs, length, show(&d), err)
	if lost && w.found() {
		return w.lostReserve(s, part, length, r, &d, err)
	}
	w.quiet()
	if err != nil {
		return fmt.Errorf("error: %w", err)
	}
	if cached, err := w.cached(backend.Reserve, &d, part); cached {
		return err
	}
	w.last = d.State
	leases, err := w.model.Do(backend.Reserve, []oracle.Part{part}, length, &d)
	if err != nil {
		return err
	}
	if len(leases) > 0 {
		w.booked[s.id] = []*booking{{r: r, lease: leases[0], limiter: s.limiter}}
	}
	if err := oracle.Shadow(list, part.Each, w.event.Load().Shadow); err != nil {
		return err
	}
	return w.look(part)
}

// lostReserve goes on with a reservation whose answer was lost: it is settled by its ID.
func (w *world) lostReserve(s *step, part oracle.Part, length time.Duration, r *headgate.Reservation, d *headgate.Decision, err error) error {
	leases, e := w.model.Do(backend.Reserve, []oracle.Part{part}, length, nil)
	if e != nil {
		return e
	}
	lease := w.model.Absent(part)
	if len(leases) > 0 {
		lease = leases[0]
		lease.Unresolved = true
	}
	if e := w.unknown(backend.Reserve, part, d, err); e != nil {
		return e
	}
	if !d.Allowed {
		delete(w.denied, part.Key) // cancelled
		w.quiet()
		_ = w.model.Settle(lease, make([]int64, len(part.Policies)), part.Policies)
	} else {
		w.booked[s.id] = []*booking{{r: r, lease: lease, limiter: s.limiter}}
	}
	return w.look(part)
}

// settle commits less or more than the estimate, or nothing, by the reservation or by
// its token.
func (w *world) settle(s *step) error {
	if len(w.booked[s.of]) == 0 {
		return nil
	}
	b := w.booked[s.of][s.draw[0]%uint64(len(w.booked[s.of]))]
	if b.lease.Forgotten(w.model.Now) {
		return nil
	}
	r, list, settler := b.r, w.p.lists[b.limiter], b.limiter
	if s.verb == callResume {
		if b.lease.Unresolved && !(w.p.keyed && slices.Equal(list, w.p.lists[s.limiter])) || !sameNames(list, w.p.lists[s.limiter]) {
			return nil
		}
		resumed, err := w.limiters[s.limiter].Resume(r.Token())
		if err != nil {
			return fmt.Errorf("Resume: %w", err)
		}
		r, list, settler = resumed, w.p.lists[s.limiter], s.limiter
	}
	actual := make([]int64, len(list)) // in the order of the limiter that settles
	for i := range list {
		if n := s.draw[4+i]; s.verb != callCancel && list[i].Algorithm.Kind() != rule.KindInFlight && n%4 > 0 {
			actual[i] = int64(n >> 8 % uint64(1+[]int64{0, 3, w.most(settler, &list[i]), 3}[n%4]))
		}
	}
	ordered := make([]int64, len(list))
	for i, p := range b.lease.Policies() {
		ordered[i] = actual[slices.IndexFunc(list, func(q headgate.Policy) bool { return q.Name == p.Name })]
	}
	delete(w.denied, b.lease.Key)
	settle := func() error { return r.Commit(context.Background(), actual...) }
	switch {
	case s.verb == callCancel:
		settle = func() error { return r.Cancel(context.Background()) }
	case s.draw[1]%8 == 0:
		settle, ordered = func() error { return r.Commit(context.Background()) }, nil
	}
	if lost := w.losing(s, true); lost {
		err := settle()
		w.found()
		w.say("%s of %d: %v = %v", s.verb, s.of, actual, err)
	}
	err := settle()
	w.say("%s of %d: %v = %v", s.verb, s.of, ordered, err)
	if want := w.model.Settle(b.lease, ordered, list); !errors.Is(err, want) || err != nil && want == nil {
		return fmt.Errorf("the settle is %v, want %v", err, want)
	}
	if b.lease.Gave {
		w.given(b.lease.Key, b.lease.Policies())
		b.lease.Gave = false
	}
	if err := w.look(w.at(s.limiter, b.lease.Key)); err != nil {
		return err
	}
	return w.look(w.at(b.limiter, b.lease.Key))
}

func sameNames(a, b []headgate.Policy) bool {
	for i := range a {
		if !slices.ContainsFunc(b, func(p headgate.Policy) bool { return p.Name == a[i].Name }) {
			return false
		}
	}
	return len(a) == len(b)
}

func (w *world) extend(s *step) error {
	for _, b := range w.booked[s.of] {
		if b.lease.Unresolved {
			continue
		}
		err := b.r.Extend(context.Background())
		w.say("Extend of %d = %v", s.of, err)
		if want := w.model.Extend(b.lease); !errors.Is(err, want) || err != nil && want == nil {
			return fmt.Errorf("the Extend is %v, want %v", err, want)
		}
		if err := w.look(w.at(b.limiter, b.lease.Key)); err != nil {
			return err
		}
	}
	return nil
}

// all asks each key by a limiter of its own.
func (w *world) all(s *step) error {
	if w.spread() {
		return nil // given back in the background
	}
	var asked []headgate.Part
	var parts []oracle.Part
	var of []int
	length := time.Duration(0)
	for k := range w.p.keys {
		limiter := (s.limiter + int(s.draw[2]>>(8*k)%8)) % len(w.limiters)
		if s.verb == callAll && hasSlots(w.p.lists[limiter]) {
			return nil
		}
		costs := w.costs(&step{verb: s.verb, limiter: limiter, draw: s.draw}, false)
		part := w.part(limiter, (s.key+k)%w.p.keys, costs, true)
		c := headgate.Call{Key: part.Key, Costs: costs, Each: part.Each, Lease: lengths[s.draw[3]>>(8*k)%4]}
		length = max(length, c.Lease)
		asked, parts, of = append(asked, headgate.Part{Limiter: w.limiters[limiter], Call: c}), append(parts, part), append(of, limiter)
	}
	op := backend.Take
	var d headgate.Decision
	var rs headgate.Reservations
	var err error
	if s.verb == callReserveAll {
		op = backend.Reserve
		rs, d, err = headgate.ReserveAll(context.Background(), asked...)
	} else {
		d, err = headgate.All(context.Background(), asked...)
	}
	w.quiet()
	w.say("%d: limiters %v: %s(%d on, %v) = %v by %q, %v", s.id, of, s.verb, s.key, costsOf(parts), show(&d), d.Key, err)
	if err != nil {
		return fmt.Errorf("error: %w", err)
	}
	if cached, err := w.cached(op, &d, parts...); cached {
		return err
	}
	if w.apart && !d.Allowed {
		return w.undone(op, parts)
	}
	leases, err := w.model.Do(op, parts, length, &d)
	if err != nil {
		return err
	}
	for i, l := range leases {
		w.booked[s.id] = append(w.booked[s.id], &booking{r: rs[i], lease: l, limiter: of[i]})
	}
	for i := range parts {
		if err := w.look(parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// undone looks at the keys of a call that was denied by one after the other: what had
// passed was given back.
func (w *world) undone(op backend.Op, parts []oracle.Part) error {
	if _, passes := w.model.Sure(op, parts); passes {
		return errors.New("denied, but there is room")
	}
	w.model.Undone(parts)
	for i := range parts {
		if err := w.look(parts[i]); err != nil {
			return err
		}
	}
	return nil
}

func costsOf(parts []oracle.Part) (all [][]int64) {
	for i := range parts {
		all = append(all, parts[i].Costs)
	}
	return all
}
