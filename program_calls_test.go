package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/oracle"
)

func (w *world) reset(s *step) error {
	list := w.p.lists[s.limiter]
	err := w.limiters[s.limiter].Reset(context.Background(), w.key(s.key))
	w.say("limiter %d: Reset(%d) = %v", s.limiter, s.key, err)
	if err != nil {
		return err
	}
	for _, l := range w.p.lists { // a Reset ends all denials of the key
		w.given(w.key(s.key), l)
	}
	if err := w.model.Reset(w.key(s.key), list, w.p.shards[s.limiter]); err != nil {
		return err
	}
	return w.look(w.at(s.limiter, w.key(s.key)))
}

// exact looks at a call that is denied: at RetryAfter it passes, a microsecond earlier it
// does not.
func (w *world) exact(s *step) error {
	costs := w.costs(s, false)
	if w.p.shards[s.limiter] > 1 {
		return nil
	}
	for _, allowed := range []bool{false, true} {
		if err := w.call(s, backend.Peek, costs); err != nil {
			return err
		}
		wait := w.last.RetryAfter.Microseconds()
		if wait == 0 {
			return nil
		}
		if allowed {
			w.by(wait)
		} else {
			w.by(wait - 1)
		}
		part := w.part(s.limiter, s.key, costs, true)
		d, err := w.limiters[s.limiter].Peek(context.Background(), headgate.Call{Key: part.Key, Costs: costs, Each: part.Each})
		w.say("limiter %d: Peek(%d, %v) = %v", s.limiter, s.key, costs, show(&d))
		if err != nil || d.Allowed != allowed {
			return fmt.Errorf("RetryAfter is not exact")
		}
		w.last = d.State
	}
	return nil
}

// wait waits for a call that passes at once, or within milliseconds, or is refused.
func (w *world) wait(s *step) error {
	costs := w.costs(s, false)
	part := w.part(s.limiter, s.key, costs, true)
	sure, passes := w.model.Sure(backend.Take, []oracle.Part{part})
	if !sure || w.p.cache || w.p.shards[s.limiter] > 1 {
		return nil
	}
	patience, retry, refused := 2*time.Second, oracle.Span{}, false
	if !passes {
		retry = w.model.RetryAfter([]oracle.Part{part})
		if retry.Hi < 4000 {
			stop := time.AfterFunc(300*time.Microsecond, func() { w.g.now.Add(retry.Hi) })
			defer stop.Stop()
		} else if retry.Lo < 500_000 {
			return nil
		} else { // as much as leaves no doubt, since a busy machine must not end the context first
			patience, refused = time.Duration(min(retry.Lo*3/10, 60_000_000))*time.Microsecond, true
		}
	}
	ctx, end := context.WithTimeout(context.Background(), patience)
	defer end()
	d, err := w.limiters[s.limiter].WaitCall(ctx, headgate.Call{Key: part.Key, Costs: costs, Each: part.Each})
	w.say("limiter %d: Wait(%d, %v) = %v, %v", s.limiter, s.key, costs, show(&d), err)
	if refused {
		if late := new(headgate.DeadlineError); !errors.As(err, &late) || late.RetryAfter.Microseconds() < retry.Lo-100_000 {
			return fmt.Errorf("no DeadlineError for a wait of %v µs", retry)
		}
		return w.look(part)
	}
	if !passes {
		w.by(retry.Hi)
	}
	if err == nil && !d.Allowed {
		return errors.New("a Wait was denied")
	}
	return w.judge(backend.Take, part, 0, &d, err)
}

// wrong makes a call that returns an error, and changes no count.
func (w *world) wrong(s *step) error {
	l, list, key := w.limiters[s.limiter], w.p.lists[s.limiter], w.key(s.key)
	costs := w.costs(s, false)
	ctx, end := context.WithCancel(context.Background())
	defer end()
	invalid, err := new(headgate.InvalidError), error(nil)
	ok := func() bool { return errors.As(err, &invalid) }
	switch s.draw[0] % 5 {
	case 0:
		costs[len(costs)-1] = -1
		_, err = l.Do(ctx, headgate.Call{Key: key, Costs: costs})
	case 1:
		_, err = l.Record(ctx, headgate.Call{Key: key, Costs: append(costs, 1)})
	case 2:
		_, _, err = l.Reserve(ctx, headgate.Call{Key: key, Costs: costs, Lease: time.Millisecond})
	case 3:
		end()
		_, _, err = l.Reserve(ctx, headgate.Call{Key: key, Costs: costs})
		ok = func() bool { return errors.Is(err, context.Canceled) }
	case 4:
		i := slices.IndexFunc(list, func(p headgate.Policy) bool { return !p.Shadow })
		if i < 0 || hasSlots(list) {
			return nil
		}
		costs[i] = list[i].Algorithm.Max() + 1
		_, err = l.Do(ctx, headgate.Call{Key: key, Costs: costs})
		ok = func() bool { return errors.Is(err, headgate.ErrNeverAdmissible) }
	}
	w.say("limiter %d: a wrong call %d(%d, %v) = %v", s.limiter, s.draw[0]%5, s.key, costs, err)
	if !ok() {
		return fmt.Errorf("the error is %v", err)
	}
	return w.look(w.at(s.limiter, key))
}

// lostCall compares what a caller gets whose answer was lost.
func (w *world) lostCall(op backend.Op, part oracle.Part, d *headgate.Decision, err error) error {
	if _, e := w.model.Do(op, []oracle.Part{part}, 0, nil); e != nil {
		return e
	}
	if e := w.unknown(op, part, d, err); e != nil {
		return e
	}
	return w.look(part)
}

// unknown compares the decision of a call that was perhaps counted: a denial of the key
// that this process remembers stands, else its failure mode decides. Not every denial stays
// in the cache, but the last one does.
func (w *world) unknown(op backend.Op, part oracle.Part, d *headgate.Decision, err error) error {
	if op == backend.Record || op == backend.Return {
		if !errors.Is(err, headgate.ErrPerhapsCounted) {
			return fmt.Errorf("a lost %v returns %v", op, err)
		}
		return nil
	}
	stands := d.Source == headgate.FromDenyCache && !d.Allowed && w.p.cache && w.stands(part)
	fails := errors.Is(d.Err, headgate.ErrPerhapsCounted) && d.Known == backend.NotCounted && d.Allowed == failsOpen(part.Policies)
	if err != nil || !stands && (!fails || w.denied[part.Key].holds(op, part, w.model.Now)) {
		return fmt.Errorf("a lost answer: %s, %v", show(d), err)
	}
	return nil
}

func failsOpen(list []headgate.Policy) bool {
	return !slices.ContainsFunc(list, func(p headgate.Policy) bool { return !p.Shadow && p.OnFailure != headgate.FailOpen })
}

// cached reports whether an answer is that of a moment ago: of a spread key always. The
// store must have denied the key, and this process have given nothing back since.
func (w *world) cached(op backend.Op, d *headgate.Decision, parts ...oracle.Part) (bool, error) {
	known := false
	w.noteDenial(op, d, parts)
	for i := range parts {
		id := denialOf(parts[i])
		known = known || w.denials[id] != nil
		if d.Allowed && d.NextAfter == 0 || d.Source != headgate.FromStore {
			continue
		}
		if d.Key == "" || d.Key == parts[i].Key {
			p := bindingOf(parts[i], d)
			w.denials[id], w.denials[countOf(parts[i].Key, p)] = parts[i].Policies, []headgate.Policy{p}
		} else if w.apart { // each key was asked, and may have been denied too
			w.denials[id] = parts[i].Policies
			for _, p := range parts[i].Policies {
				w.denials[countOf(parts[i].Key, p)] = []headgate.Policy{p}
			}
		}
	}
	if d.Source != headgate.FromDenyCache {
		return false, nil
	}
	if d.Allowed || !w.spread() && (!w.p.cache || !known) {
		return true, fmt.Errorf("from the deny cache: %v", show(d))
	}
	w.last = d.State
	for i := range parts {
		if d.Key == "" || d.Key == parts[i].Key {
			return true, w.stillDenied(op, d, parts[i])
		}
	}
	return true, fmt.Errorf("from the deny cache of another key: %q", d.Key)
}

// stillDenied compares a remembered denial with what the store answers now. Nothing makes
// room that this process does not see. So the store denies the call too, for no less long.
// For a higher cost than was denied the RetryAfter may be a lower bound.
//
// A TokenBucket of two rates is left out: the faster one may have made room since.
func (w *world) stillDenied(op backend.Op, d *headgate.Decision, part oracle.Part) error {
	if !w.oneRate(part.Policies) {
		return nil
	}
	part.Costs, part.Each = leastOf(op, part), make([]headgate.State, len(part.Costs))
	i := w.limiterOf(part)
	want, err := w.beside[i].Peek(context.Background(), headgate.Call{Key: part.Key, Costs: part.Costs, Each: part.Each})
	if err != nil {
		return fmt.Errorf("Peek: %w", err)
	}
	if _, err := w.model.Do(backend.Peek, []oracle.Part{part}, 0, &want); err != nil {
		return fmt.Errorf("Peek beside the deny cache: %w", err)
	}
	late := time.Duration(0)
	if part.Shards < 2 { // the rounding of a higher cost, see denial.TestHigherCost
		late = 2 * time.Microsecond
	}
	if want.Allowed || d.RetryAfter <= 0 || d.RetryAfter > want.RetryAfter+late {
		return fmt.Errorf("from the deny cache: %v; the store answers %v", show(d), show(&want))
	}
	return nil
}

// oneRate reports whether no level of the list has another rate in another list.
func (w *world) oneRate(list []headgate.Policy) bool {
	for _, p := range list {
		for _, q := range slices.Concat(w.p.lists...) {
			if p.Algorithm.Kind().Rates() && p.Name == q.Name && p.Algorithm.Limit() != q.Algorithm.Limit() {
				return false
			}
		}
	}
	return true
}

// denialOf returns what a denial is remembered by while the store decides: a key and a list.
func denialOf(part oracle.Part) string { return fmt.Sprint(part.Key, part.Policies, part.Shards) }

// countOf returns what a denial is remembered by where no store decides: a count, whatever
// list it stands in.
func countOf(key string, p headgate.Policy) string { return fmt.Sprint(key, " ", p.Name, p.Algorithm) }

func bindingOf(part oracle.Part, d *headgate.Decision) headgate.Policy {
	i := slices.IndexFunc(part.Policies, func(p headgate.Policy) bool { return p.Name == d.Policy })
	return part.Policies[max(0, i)]
}

// stands reports whether a count of the part is known to be spent.
func (w *world) stands(part oracle.Part) bool {
	return slices.ContainsFunc(part.Policies, func(p headgate.Policy) bool { return w.denials[countOf(part.Key, p)] != nil })
}

// denied is the last denial of a key by the store, if nothing has passed or was given back
// since.
type denied struct {
	id    string // of the list
	costs []int64
	until int64 // µs
}

// noteDenial keeps a denial that must stand if no store decides, of a call or of the next one of
// a run.
func (w *world) noteDenial(op backend.Op, d *headgate.Decision, parts []oracle.Part) {
	if d.Source == headgate.FromDenyCache || op == backend.Peek || op == backend.Record || op == backend.Return {
		return
	}
	for _, part := range parts {
		delete(w.denied, part.Key)
	}
	if part := parts[0]; len(parts) == 1 && (!d.Allowed || d.NextAfter > 0) && w.p.cache && !w.spread() && !hasSlots(part.Policies) {
		until := w.model.Now + min(d.RetryAfter+d.NextAfter, time.Minute).Microseconds()
		w.denied[part.Key] = denied{denialOf(part), leastOf(op, part), until}
	}
}

// holds reports whether the denial is one of this call.
func (e denied) holds(op backend.Op, part oracle.Part, now int64) bool {
	if now >= e.until || e.id != denialOf(part) {
		return false
	}
	for i, n := range leastOf(op, part) {
		if n < e.costs[i] {
			return false
		}
	}
	return true
}

// leastOf returns what a call must at least be granted.
func leastOf(op backend.Op, part oracle.Part) []int64 {
	if op == backend.AtMost {
		return slices.Repeat([]int64{1}, len(part.Costs))
	}
	return slices.Clone(part.Costs)
}

// given forgets the denials of a key by lists that have a count to which something was given
// back.
func (w *world) given(key string, list []headgate.Policy) {
	delete(w.denied, key)
	for id, of := range w.denials {
		if strings.HasPrefix(id, key) && slices.ContainsFunc(of, func(p headgate.Policy) bool { return counts(list, p) }) {
			delete(w.denials, id)
		}
	}
}

// counts reports whether the list has the policy's count.
func counts(list []headgate.Policy, p headgate.Policy) bool {
	return slices.ContainsFunc(list, func(q headgate.Policy) bool {
		return p.Name == q.Name && p.Algorithm.Identity() == q.Algorithm.Identity() && p.Shadow == q.Shadow
	})
}
