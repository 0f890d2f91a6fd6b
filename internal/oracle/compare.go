package oracle

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
)

// compare returns the first field of an answer that is wrong.
func (m *Model) compare(op backend.Op, vs []view, passes bool, d *backend.Decision) error {
	if err := whole(op, vs, passes, d); err != nil {
		return err
	}
	if vs[0].state == nil {
		return m.alone(op, vs, passes, d)
	}
	for i := range vs {
		v := &vs[i]
		if err := m.state(op, v, passes); err != nil {
			return fmt.Errorf("policy %s of %q: %w; answered %+v", v.p.Name, v.key, err, *v.state)
		}
	}
	return binds(vs, op, passes, d)
}

// whole compares what a decision has beside its state.
func whole(op backend.Op, vs []view, passes bool, d *backend.Decision) error {
	switch {
	case d.Allowed != passes:
		return fmt.Errorf("a %v was denied", op)
	case op != backend.AtMost && (d.Passed != 0 || d.NextAfter != 0):
		return fmt.Errorf("%d calls of a run passed, of a call that is none", d.Passed)
	}
	return nil
}

// alone compares the state of the policy that binds, if it is all that was answered.
func (m *Model) alone(op backend.Op, vs []view, passes bool, d *backend.Decision) error {
	for i := range vs {
		v := &vs[i]
		if v.p.Shadow || v.p.Name != d.Policy {
			continue
		}
		s := d.State // of a run that passed in part, that of the next call
		s.RetryAfter += d.NextAfter
		v.state = &s
		if err := m.state(op, v, passes); err != nil {
			return fmt.Errorf("policy %s of %q: %w; answered %+v", v.p.Name, v.key, err, d.State)
		}
		for j := range vs {
			w, most := &vs[j], int64(0)
			if w.p.Shadow || w.c.shards > 1 || !passes || d.NextAfter > 0 {
				continue
			}
			if most = max(0, w.p.Algorithm.Max()-w.c.used(m.Now).Lo); most < d.Remaining || j < i && most == d.Remaining {
				return fmt.Errorf("binding is %+v, but %s has %d left", d.State, w.p.Name, most)
			}
		}
		return nil
	}
	for i := range vs {
		if !vs[i].p.Shadow {
			return fmt.Errorf("binding is %+v, no policy that is enforced", d.State)
		}
	}
	return nil
}

// state compares one policy's state.
func (m *Model) state(op backend.Op, v *view, passes bool) error {
	s, a, used := v.state, &v.p.Algorithm, v.c.used(m.Now)
	switch {
	case s.Policy != v.p.Name:
		return fmt.Errorf("name")
	case s.Limit != a.Max():
		return fmt.Errorf("the Limit, want %d", a.Max())
	case s.Known == backend.NotCounted || s.Known == backend.Estimated && v.c.shards == 1:
		return fmt.Errorf("numbers that are %v", s.Known)
	case v.c.shards > 1:
		return spread(op, v, used)
	case !used.Has(s.Used):
		return fmt.Errorf("the Used, want %v", used)
	case s.Remaining != max(0, a.Max()-s.Used):
		return fmt.Errorf("the Remaining, want %d", max(0, a.Max()-s.Used))
	case !micros(v.c.reset(a, m.Now), s.ResetAfter):
		return fmt.Errorf("ResetAfter, want %v µs", v.c.reset(a, m.Now))
	}
	if err := m.delay(op, v); err != nil {
		return err
	}
	return m.retry(op, v, passes)
}

// delay compares the Delay: nothing if the policy had no room, or was not charged.
func (m *Model) delay(op backend.Op, v *view) error {
	s, n := v.state, v.cost
	switch {
	case op == backend.Peek && n > 0 && s.RetryAfter == 0:
	case v.d != nil && op != backend.Record: // it is counted
		n = 0
	case s.Delay != 0:
		return fmt.Errorf("a Delay")
	default:
		return nil
	}
	if want := v.c.delay(m.Now, &v.p.Algorithm, n); !micros(want, s.Delay) {
		return fmt.Errorf("the Delay, want %v µs", want)
	}
	return nil
}

// retry compares RetryAfter: nothing if the policy had room.
func (m *Model) retry(op backend.Op, v *view, passes bool) error {
	s, n := v.state, units(op, v.cost)
	yes, no := v.fits(n)
	switch {
	case v.partly:
		v.used = v.c.counts(m.Now, &v.p.Algorithm)
		yes, no = v.fits(n)
	case always(op) || passes && !v.p.Shadow:
		yes, no = true, false
	}
	if op == backend.AtMost && v.p.Shadow || n > v.p.Algorithm.Max() {
		return nil // open
	}
	want := v.c.retry(&v.p.Algorithm, m.Now, n)
	switch {
	case yes && s.RetryAfter != 0:
		return fmt.Errorf("RetryAfter, want 0")
	case no && !micros(want, s.RetryAfter):
		return fmt.Errorf("RetryAfter, want %v µs", want)
	case s.RetryAfter != 0 && s.RetryAfter > time.Duration(want.Hi)*time.Microsecond:
		return fmt.Errorf("RetryAfter, want at most %v µs", want)
	}
	return nil
}

// spread compares the state of a spread key: exact after a sum or a Peek, else an
// estimate.
func spread(op backend.Op, v *view, used Span) error {
	s, a := v.state, &v.p.Algorithm
	if s.Known == backend.Estimated && op != backend.Peek || op == backend.Record {
		return nil
	}
	if !used.Has(s.Used) {
		return fmt.Errorf("the Used of the sum, want %v", used)
	}
	exact := v.c.bucket == nil && v.c.id.Kind != rule.KindSlidingWindow && !v.c.uneven
	if op == backend.Peek && exact && s.Remaining != max(0, a.Max()-s.Used) {
		return fmt.Errorf("the Remaining of the sum, want %d", max(0, a.Max()-s.Used))
	}
	return nil
}

// micros reports whether a duration is in a range of microseconds.
func micros(s Span, d time.Duration) bool {
	return d%time.Microsecond == 0 && s.Has(d.Microseconds())
}

// binds compares the binding policy and its key: of a denial the longest RetryAfter, of
// a pass the least Remaining, of equals the first listed.
func binds(vs []view, op backend.Op, passes bool, d *backend.Decision) error {
	var b *view
	several, denied := false, !passes || d.NextAfter > 0
	for i := range vs {
		v := &vs[i]
		several = several || v.key != vs[0].key
		if v.p.Shadow {
			continue
		}
		if b == nil || denied && v.state.RetryAfter > b.state.RetryAfter || !denied && v.state.Remaining < b.state.Remaining {
			b = v
		}
	}
	if b == nil {
		return nil // only shadows
	}
	if s := *b.state; d.NextAfter > 0 {
		s.RetryAfter -= d.NextAfter
		b.state = &s
	}
	if d.State != *b.state {
		return fmt.Errorf("binding is %+v, want %+v", d.State, *b.state)
	}
	if several && d.Key != b.key {
		return fmt.Errorf("binding key is %q, want %q", d.Key, b.key)
	}
	return nil
}

// Shadow compares what an event says of the shadows: nothing without them.
func Shadow(policies []backend.Policy, each []backend.State, got *backend.Decision) error {
	var b *backend.State
	denied := false
	for i := range policies {
		if s := &each[i]; policies[i].Shadow {
			denied = denied || s.RetryAfter > 0
			if b == nil || s.RetryAfter > b.RetryAfter || b.RetryAfter == 0 && s.RetryAfter == 0 && s.Remaining < b.Remaining {
				b = s
			}
		}
	}
	switch {
	case b == nil && got == nil:
		return nil
	case b == nil || got == nil:
		return fmt.Errorf("Event.Shadow is %+v", got)
	case got.State != *b || got.Allowed == denied:
		return fmt.Errorf("Event.Shadow is %v %+v, want %v %+v", got.Allowed, got.State, !denied, *b)
	}
	return nil
}

// without describes the policies that surely have no room.
func without(vs []view, op backend.Op) string {
	var s []string
	for i := range vs {
		if _, no := vs[i].fits(units(op, vs[i].cost)); no && !vs[i].p.Shadow {
			s = append(s, fmt.Sprintf("%s of %q has used %v of %d", vs[i].p.Name, vs[i].key, vs[i].used, vs[i].p.Algorithm.Max()))
		}
	}
	return strings.Join(s, ", ")
}

func spans(vs []view) (all []Span) {
	for i := range vs {
		all = append(all, vs[i].used)
	}
	return all
}
