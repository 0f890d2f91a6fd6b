package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
)

// wrongs are mistakes that a store can make, one or more for each sentence.
var wrongs = []wrong{
	{"charges only the first policy", "Fits", doing(chargesFirst)},
	{"takes a cost of 0 for one of 1", "CostZero", asking(func(r *backend.Request) {
		if r.Op == backend.Take && r.Costs != nil {
			r.Costs = slices.Clone(r.Costs)
			for i := range r.Costs {
				r.Costs[i] = max(r.Costs[i], 1)
			}
		}
	})},
	{"stores an entry a cost of 0", "CostZero", after(func(s *reference, r backend.Request, _ backend.Decision, err error) {
		if r.Op == backend.Take && slices.Contains(r.Costs, 0) && err == nil {
			s.touch(r)
		}
	})},
	{"lets one unit too many pass", "Denied", instead(oneMore)},
	{"charges one policy of a denied set", "Denied", after(chargesAnyway)},
	{"counts denials", "DeniedStores", after(func(s *reference, r backend.Request, d backend.Decision, err error) {
		if r.Op == backend.Take && !d.Allowed && err == nil {
			s.force(r)
		}
	})},
	{"stores an entry a denial", "DeniedStores", after(func(s *reference, r backend.Request, d backend.Decision, err error) {
		if r.Op == backend.Take && !d.Allowed && err == nil {
			s.touch(r)
		}
	})},
	{"answers from a cache that nobody knows of", "Denied", answering(func(r *backend.Request, d *backend.Decision, _ *backend.State) {
		if r.Op == backend.Take && !d.Allowed && d.Err == nil {
			d.Source, d.Known = backend.FromDenyCache, backend.Estimated
		}
	})},
	{"remembers denials for too long", "RetryAfter", remembers},
	{"writes when it peeks", "Peek", after(func(s *reference, r backend.Request, d backend.Decision, err error) {
		if r.Op == backend.Peek && d.Allowed && r.Cost > 0 {
			s.force(r)
		}
	})},
	{"stores an entry a peek", "Peek", after(func(s *reference, r backend.Request, _ backend.Decision, err error) {
		if r.Op == backend.Peek && err == nil {
			s.touch(r)
		}
	})},
	{"peeks for one unit whatever the cost", "Peek", asking(func(r *backend.Request) {
		if r.Op == backend.Peek && r.Cost > 0 && r.Cost <= 10 {
			r.Cost = 1
		}
	})},
	{"forgets every policy on a reset", "Reset", after(func(s *reference, r backend.Request, _ backend.Decision, _ error) {
		if r.Op == backend.Reset {
			s.forget(func(c cell) bool { return c.key == r.Key })
		}
	})},
	{"resets nothing", "Reset", asking(func(r *backend.Request) {
		if r.Op == backend.Reset {
			r.Op, r.Cost, r.Costs = backend.Peek, 0, nil
		}
	})},
	{"enforces shadows", "ShadowDenies", asking(func(r *backend.Request) {
		r.Policies = slices.Clone(r.Policies)
		for i := range r.Policies {
			r.Policies[i].Shadow = false
		}
	})},
	{"passes a run whole or not", "RunUpTo", asking(func(r *backend.Request) {
		if r.UpTo {
			r.Run, r.Cost, r.UpTo = min(r.Run, 10), min(r.Run, 10), false
		}
	})},
	{"says nothing of the next call", "NextAfter", answering(func(_ *backend.Request, d *backend.Decision, _ *backend.State) { d.NextAfter = 0 })},
	{"delays by shadows", "Queue", answering(func(_ *backend.Request, d *backend.Decision, _ *backend.State) { d.Delay = max(d.Delay, d.State.Delay) })},
	{"delays nothing", "Queue", answering(func(_ *backend.Request, d *backend.Decision, _ *backend.State) { d.Delay = 0 })},
	{"charges shadows whole runs", "ShadowRun", asking(func(r *backend.Request) { r.Run = 0 })},
	{"charges shadows of a denied take", "ShadowCharges", after(func(s *reference, r backend.Request, d backend.Decision, err error) {
		if r.Op == backend.Take && !d.Allowed && err == nil {
			r.Policies = slices.DeleteFunc(slices.Clone(r.Policies), func(p backend.Policy) bool { return !p.Shadow })
			if r.Costs = nil; len(r.Policies) > 0 {
				s.force(r)
			}
		}
	})},
	{"counts each list apart", "Name", asking(func(r *backend.Request) {
		for i := range r.Policies {
			r.Sub += r.Policies[i].Name + " "
		}
	})},
	{"counts by place in the list", "Name", asking(func(r *backend.Request) {
		r.Policies = slices.Clone(r.Policies)
		for i := range r.Policies {
			r.Policies[i].Name = fmt.Sprint(r.Policies[i].Algorithm.Kind(), i)
		}
	})},
	{"starts over with a new limit", "Limit", asking(func(r *backend.Request) {
		if len(r.Policies) > 0 {
			r.Sub = r.Policies[0].Algorithm.String()
		}
	})},
	{"folds the case of keys", "Keys", fold(strings.ToLower)},
	{"ends keys at a zero byte", "Keys", fold(func(s string) string { return strings.SplitN(s, "\x00", 2)[0] })},
	{"trims keys", "Keys", fold(strings.TrimSpace)},
	{"repairs keys", "Keys", fold(func(s string) string { return strings.ToValidUTF8(s, "?") })},
	{"cuts keys", "Keys", fold(head(64))},
	{"reads braces in keys", "Keys", fold(within)},
	{"answers with the first policy", "Binds", doing(firstBinds)},
	{"answers with the last of equals", "Binds", doing(lastOfEquals)},
	{"leaves Each as it was", "Each", asking(func(r *backend.Request) { r.Each = nil })},
	{"fills Each backwards", "Each", doing(func(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
		d, err := ask(s, ctx, r)
		slices.Reverse(r.Each)
		return d, err
	})},
	{"does not say that it counted", "Counted", answering(func(_ *backend.Request, d *backend.Decision, s *backend.State) {
		if !d.Allowed {
			s.Known = backend.NotCounted
		}
	})},
	{"says that nothing remains on a denial", "Remaining", answering(func(_ *backend.Request, d *backend.Decision, s *backend.State) {
		if !d.Allowed {
			s.Remaining = 0
		}
	})},
	{"lets less than nothing remain", "Remaining", answering(func(_ *backend.Request, _ *backend.Decision, s *backend.State) {
		s.Remaining = s.Limit - s.Used
	})},
	{"says a tick too early to retry", "RetryAfter", answering(func(_ *backend.Request, _ *backend.Decision, s *backend.State) {
		s.RetryAfter = max(0, s.RetryAfter-tick)
	})},
	{"says a tick too late to retry", "RetryAfter", answering(func(_ *backend.Request, _ *backend.Decision, s *backend.State) {
		if s.RetryAfter > 0 {
			s.RetryAfter += tick
		}
	})},
	{"says to retry at the next reset", "RetryAfter", answering(func(_ *backend.Request, _ *backend.Decision, s *backend.State) {
		if s.RetryAfter > 0 {
			s.RetryAfter = s.ResetAfter
		}
	})},
	{"says a tick too late that it is unused", "ResetAfter", answering(func(_ *backend.Request, _ *backend.Decision, s *backend.State) {
		if s.ResetAfter > 0 {
			s.ResetAfter += tick
		}
	})},
	{"leaves out the other keys", "Capabilities", doing(func(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
		r.And = nil
		return ask(s, ctx, r)
	})},
	{"takes an operation that it does not know for a peek", "Capabilities", doing(func(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
		if !backend.Basic.Ops.Has(r.Op) {
			r.Op = backend.Peek
		}
		return ask(s, ctx, r)
	})},
	{"denies what can never pass", "Refused", doing(func(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
		d, err := ask(s, ctx, r)
		if errors.Is(err, backend.ErrNeverAdmissible) {
			err = nil
		}
		return d, err
	})},
	{"takes a cost below nothing as nothing", "Refused", asking(func(r *backend.Request) { r.Cost = max(r.Cost, 0) })},
	{"ignores the context", "Context", doing(func(s *reference, _ context.Context, r backend.Request) (backend.Decision, error) {
		return ask(s, context.Background(), r)
	})},
	{"starts over where it finds garbage", "Corrupt", doing(startsOver)},
	{"names no key", "Corrupt", doing(func(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
		d, err := ask(s, ctx, r)
		if errors.As(err, new(*backend.CorruptError)) {
			err = &backend.CorruptError{Stored: "somewhere"}
		}
		return d, err
	})},
	{"calls a lost reply unavailable", "Unavailable", replacing(backend.ErrPerhapsCounted, backend.ErrUnavailable)},
	{"calls a refusal perhaps counted", "Unavailable", replacing(backend.ErrUnavailable, backend.ErrPerhapsCounted)},
	{"sends again when a reply is lost", "AtMostOnce", doing(func(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
		d, err := ask(s, ctx, r)
		if errors.Is(err, backend.ErrPerhapsCounted) {
			return ask(s, ctx, r)
		}
		return d, err
	})},
	{"forgets an expiry", "Expires", expiring(func(_ *reference, name string, left time.Duration) time.Duration {
		if strings.Contains(name, "{key 1}") {
			return -1
		}
		return left
	})},
	{"expires a key with its shortest window", "Expires", expiring(func(_ *reference, name string, left time.Duration) time.Duration {
		if strings.Contains(name, "{long}") {
			return min(left, time.Hour)
		}
		return left
	})},
	{"serves on after Close", "Close", func(s *reference, u *Subject) { spoil(s, u).close = func() error { return nil } }},
	{"minds being closed twice", "Close", closesOnce},
	{"says beside an error what it met", "Zero", handed(func(r *backend.Request, d *backend.Decision, err error) {
		if err != nil && len(r.Policies) > 0 {
			d.Policy = r.Policies[0].Name
		}
	})},
	{"says beside a lost reply that it passed", "Zero", handed(func(_ *backend.Request, d *backend.Decision, err error) {
		d.Allowed = d.Allowed || errors.Is(err, backend.ErrPerhapsCounted)
	})},
	{"makes room for the states", "Left", handed(func(r *backend.Request, _ *backend.Decision, _ error) {
		if r.Each == nil {
			r.Each = make([]backend.State, len(r.Policies))
		}
	})},
	{"sorts the costs", "Left", handed(func(r *backend.Request, _ *backend.Decision, _ error) {
		slices.Sort(r.Costs)
		slices.Reverse(r.Costs)
	})},
	{"charges who has left", "Kept", late(func(s *reference, l *left) { s.force(*l.request) })},
	{"charges what who has left had asked", "Kept", late(func(s *reference, l *left) {
		if l.asked.Costs != nil {
			s.force(l.asked)
		}
	})},
	{"answers who has left", "Kept", late(answersLate)},
	{"checks, then acts", "Concurrent: Store keeps counts and decides on them atomically.", doing(checkThenAct)},
	{"ignores the previous window", "Examples: floor(8 * (60 - 45) / 60) + 3 = 5", instead(as(rule.KindSlidingWindow, algo.FixedWindow))},
	{"takes a fixed window for a log", "Bounds: no trailing window ever holds more", instead(as(rule.KindSlidingLog, algo.FixedWindow))},
	{"counts all in two buckets", "Bounds: BucketedWindow of B buckets", instead(as(rule.KindBucketedWindow, func(l algo.Limit) algo.Algorithm {
		return algo.BucketedWindow(l, 2)
	}))},
	{"keeps a whole interval", "OddRates: rates are exact", instead(wholeInterval)},
	{"carries everything", "BadInput: bad input gives a typed error", func(s *reference, u *Subject) { spoil(s, u).check = func([]backend.Policy) error { return nil } }},
	{"gives untyped errors", "Refused", replacing(nil, errors.New("bad"))},
	{"starts over with a longer list", "Name", after(func(s *reference, r backend.Request, _ backend.Decision, _ error) {
		if len(r.Policies) == 3 {
			s.forget(func(c cell) bool { return c.key == r.Key })
		}
	})},
}

func answersLate(_ *reference, l *left) { *l.decision = backend.Decision{Allowed: true} }

func chargesFirst(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
	look := r
	look.Op = backend.Peek
	if d, err := ask(s, ctx, look); r.Op == backend.Take && err == nil && d.Allowed {
		r.Policies, r.Each = r.Policies[:1], nil
		if r.Costs != nil {
			r.Costs = r.Costs[:1]
		}
	}
	return ask(s, ctx, r)
}

func chargesAnyway(s *reference, r backend.Request, d backend.Decision, err error) {
	if r.Op != backend.Take || d.Allowed || err != nil {
		return
	}
	for i := range r.Policies {
		one := backend.Group{Key: r.Key, Policies: r.Policies[i : i+1], Cost: r.CostOf(i)}
		if d, _ := ask(s, context.Background(), backend.Request{Op: backend.Take, Group: one}); d.Allowed {
			return
		}
	}
}

// touch leaves an empty entry for each policy.
func (s *reference) touch(r backend.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range r.Policies {
		if c := cellOf(&r.Group, i); s.mu.cells[c] == nil {
			s.mu.cells[c] = make([]int64, r.Policies[i].Algorithm.Words())
		}
	}
}

// oneMore raises what an algorithm can grant by a unit.
func oneMore(a algo.Algorithm) algo.Algorithm {
	l := a.Limit()
	l.Events++
	for i, k := range []rule.Kind{rule.KindFixedWindow, rule.KindSlidingWindow, rule.KindBucketedWindow, rule.KindSlidingLog, rule.KindTokenBucket} {
		if k == a.Kind() {
			return shapes[i].kind(0)(l)
		}
	}
	return a
}

// as makes another algorithm of one kind.
func as(k rule.Kind, f func(algo.Limit) algo.Algorithm) func(algo.Algorithm) algo.Algorithm {
	return func(a algo.Algorithm) algo.Algorithm {
		if a.Kind() == k {
			return f(a.Limit())
		}
		return a
	}
}

func firstBinds(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
	if r.Each == nil {
		r.Each = make([]backend.State, len(r.Policies))
	}
	d, err := ask(s, ctx, r)
	if err == nil {
		d.State = r.Each[0]
	}
	return d, err
}

func lastOfEquals(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
	if r.Each == nil {
		r.Each = make([]backend.State, len(r.Policies))
	}
	d, err := ask(s, ctx, r)
	for i := range r.Each {
		if e := &r.Each[i]; err == nil && e.RetryAfter == d.RetryAfter && e.Remaining == d.Remaining {
			d.State = *e
		}
	}
	return d, err
}

func startsOver(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
	d, err := ask(s, ctx, r)
	if errors.As(err, new(*backend.CorruptError)) {
		s.forget(func(c cell) bool { return c.key == r.Key })
		return ask(s, ctx, r)
	}
	return d, err
}

// replacing puts one error for another; for nil it puts it for all that are typed.
func replacing(was, is error) func(*reference, *Subject) {
	return doing(func(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
		d, err := ask(s, ctx, r)
		if was != nil && errors.Is(err, was) || was == nil && errors.As(err, new(*backend.InvalidError)) {
			err = is
		}
		return d, err
	})
}

func expiring(f func(s *reference, name string, left time.Duration) time.Duration) func(*reference, *Subject) {
	return func(s *reference, u *Subject) {
		u.Expiries = func() map[string]time.Duration {
			all := s.expiries()
			for name, left := range all {
				all[name] = f(s, name, left)
			}
			return all
		}
	}
}

func closesOnce(s *reference, u *Subject) {
	w, left := spoil(s, u), int64(math.MaxInt64)
	w.close = func() error {
		if left != math.MaxInt64 {
			return backend.ErrClosed
		}
		left = 0
		return s.Close()
	}
}

// remembers is a deny cache that never lets go.
func remembers(s *reference, u *Subject) {
	u.Cached = true
	var denied sync.Map
	spoil(s, u).do = func(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
		if d, ok := denied.Load(r.Key); ok && r.Op == backend.Take && r.Check(ctx, backend.Basic) == nil {
			return d.(backend.Decision), nil
		}
		d, err := ask(s, ctx, r)
		if r.Op == backend.Take && err == nil && !d.Allowed {
			again := d
			again.Source, again.Known = backend.FromDenyCache, backend.Estimated
			denied.Store(r.Key, again)
		}
		return d, err
	}
}
