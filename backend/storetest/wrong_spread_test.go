package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/lab/redistest"
)

// spreader spreads keys over sub-keys of a reference, as simply as can be: a
// take asks one after the other, and all are read to tell of the whole. Each
// field is something that may be wrong.
type spreader struct {
	ask    doFunc // one sub-key
	part   func(a algo.Algorithm, i, k int64) algo.Algorithm
	name   func(r *backend.Request, i int) string
	most   func(p *backend.Policy, k int64) int64 // that one call may cost
	tries  func(k int) int                        // how many sub-keys a take asks
	reads  func(k int) int                        // how many a peek does
	resets func(k int) int
	again  func(error) bool // whether a take goes on to the next after that
	sum    func(sum, share *backend.State)
	say    func(r *backend.Request, s *backend.State)
}

func newSpreader() *spreader {
	all := func(k int) int { return k }
	return &spreader{
		ask:    ask,
		part:   func(a algo.Algorithm, i, k int64) algo.Algorithm { return a.Part(i, k) },
		name:   func(_ *backend.Request, i int) string { return fmt.Sprint("share", i) },
		most:   func(p *backend.Policy, k int64) int64 { a := p.Algorithm.Part(0, k); return a.Max() },
		tries:  all,
		reads:  all,
		resets: all,
		again:  func(error) bool { return false },
		sum:    adds,
		say:    func(*backend.Request, *backend.State) {},
	}
}

func adds(sum, share *backend.State) {
	sum.Used += share.Used
	sum.Remaining += share.Remaining
	sum.ResetAfter = max(sum.ResetAfter, share.ResetAfter)
}

// longest is when all of a share's policies let the call pass.
func longest(policies []backend.Policy, states []backend.State) int64 {
	return int64(states[backend.Binding(policies, states)].RetryAfter)
}

func (w *spreader) do(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
	if err := r.Check(ctx, backend.Basic); err != nil {
		return backend.Decision{}, err
	}
	for i := range r.Policies {
		if n, most := r.CostOf(i), w.most(&r.Policies[i], int64(r.Shards)); r.Op != backend.Reset && n > most {
			return backend.Decision{}, fmt.Errorf("%w: %w", backend.ErrNeverAdmissible, &backend.InvalidError{What: "cost", Value: n, Want: fmt.Sprint("at most ", most)})
		}
	}
	switch r.Op {
	case backend.Take:
		return w.take(s, ctx, r)
	case backend.Reset:
		for i := range w.resets(r.Shards) {
			if _, err := w.ask(s, ctx, w.share(r, i)); err != nil {
				return backend.Decision{}, err
			}
		}
		r.Cost, r.Costs = 0, nil
	}
	return w.total(s, ctx, r)
}

// upTo takes the calls of a run one by one.
func (w *spreader) upTo(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
	n, passed, last := r.Run, int64(0), backend.Decision{}
	for r.Run, r.UpTo = 0, false; passed < n; passed++ {
		d, err := w.take(s, ctx, r)
		if err != nil || !d.Allowed {
			if passed == 0 {
				return d, err
			}
			break
		}
		last = d
	}
	last.Passed = passed
	return last, nil
}

func (w *spreader) take(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
	if r.UpTo {
		return w.upTo(s, ctx, r)
	}
	whole := r
	for i := range w.tries(r.Shards) {
		d, err := w.ask(s, ctx, w.share(r, i))
		if err != nil && !w.again(err) {
			return d, err
		}
		if err == nil && d.Allowed {
			whole.Cost, whole.Costs = 0, nil
			whole, err := w.total(s, ctx, whole)
			whole.Allowed, whole.RetryAfter, whole.Passed = true, 0, d.Passed
			return whole, err
		}
	}
	d, err := w.total(s, ctx, whole)
	d.Allowed = false
	return d, err
}

// share returns the request on the i-th sub-key.
func (w *spreader) share(r backend.Request, i int) backend.Request {
	r.Sub, r.Policies, r.Each = w.name(&r, i), slices.Clone(r.Policies), nil
	for j := range r.Policies {
		p := &r.Policies[j]
		p.Algorithm = w.part(p.Algorithm, int64(i), int64(r.Shards))
	}
	r.Shards = 0
	return r
}

// total peeks at all sub-keys.
func (w *spreader) total(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
	sum, retry := make([]backend.State, len(r.Policies)), []backend.State(nil)
	for i := range w.reads(r.Shards) {
		q := w.share(r, i)
		q.Op, q.Each = backend.Peek, make([]backend.State, len(r.Policies))
		if _, err := w.ask(s, ctx, q); err != nil {
			return backend.Decision{}, err
		}
		for j := range sum {
			w.sum(&sum[j], &q.Each[j])
		}
		if retry == nil || longest(r.Policies, q.Each) < longest(r.Policies, retry) {
			retry = q.Each
		}
	}
	for j := range sum {
		sum[j].Policy, sum[j].Limit, sum[j].RetryAfter, sum[j].Known = r.Policies[j].Name, r.Policies[j].Algorithm.Max(), retry[j].RetryAfter, backend.Exact
		w.say(&r, &sum[j])
	}
	copy(r.Each, sum)
	d := backend.Decision{State: sum[backend.Binding(r.Policies, sum)]}
	d.Allowed = d.RetryAfter == 0
	return d, nil
}

// spreading spoils the spreader.
func spreading(f func(*spreader)) func(*reference, *Subject) {
	return func(s *reference, u *Subject) {
		w := newSpreader()
		f(w)
		spoil(s, u).do = w.do
	}
}

func TestSpreadReference(t *testing.T) {
	redistest.Plain(t)
	for _, k := range []int{2, 5} {
		Spread(t, Harness{New: func(*testing.T) Subject {
			s, subject := onVirtualTime()
			spreading(func(*spreader) {})(s, &subject)
			return subject
		}}, k)
	}
}

// wrongSpreads are mistakes that a store can make that spreads keys, one or
// more for each sentence of Spread.
var wrongSpreads = []wrong{
	{"takes what one sub-key has", "UpTo", leasing(func(r *backend.Request) {
		if r.UpTo {
			r.Run = min(r.Run, 6)
		}
	})},
	{"rounds each share up", "WholeLimit", spreading(func(w *spreader) {
		w.part = func(a algo.Algorithm, _, k int64) algo.Algorithm { return a.Part(k-1, k) }
	})},
	{"lets each share pass the whole limit", "WholeLimit", spreading(func(w *spreader) {
		w.part = func(a algo.Algorithm, _, _ int64) algo.Algorithm { return a }
	})},
	{"denies where one share is spent", "WholeLimit", spreading(func(w *spreader) { w.tries = one })},
	{"leaves the last share out", "WholeLimit", spreading(func(w *spreader) { w.tries = less })},
	{"peeks at one share", "Peek", spreading(func(w *spreader) { w.reads = one })},
	{"hides that Remaining is a guess", "Exact", spreading(func(w *spreader) {
		w.say = func(r *backend.Request, s *backend.State) {
			if r.Op == backend.Take && s.Remaining > 0 {
				s.Remaining--
			}
		}
	})},
	{"says to retry when the last share lets it pass", "RetryAfter", spreading(func(w *spreader) {
		w.say = func(_ *backend.Request, s *backend.State) {
			if s.RetryAfter > 0 {
				s.RetryAfter = s.ResetAfter
			}
		}
	})},
	{"says that it is unused when its last share is", "ResetAfter", spreading(func(w *spreader) {
		w.sum = func(sum, share *backend.State) {
			adds(sum, share)
			sum.ResetAfter = share.ResetAfter
		}
	})},
	{"resets one share", "Reset", spreading(func(w *spreader) { w.resets = one })},
	{"leaves one share as it was on a reset", "Reset", spreading(func(w *spreader) { w.resets = less })},
	{"counts each list apart", "Name", spreading(func(w *spreader) {
		w.name = func(r *backend.Request, i int) string { return fmt.Sprint(r.Policies[0].Name, len(r.Policies), i) }
	})},
	{"leaves Each as it was", "Counted", spreadingAsked(func(_ *context.Context, r *backend.Request) { r.Each = nil })},
	{"reads braces in keys", "Keys", spreadingAsked(func(_ *context.Context, r *backend.Request) { r.Key = within(r.Key) })},
	{"denies what no share could grant", "Share", spreading(func(w *spreader) {
		w.most = func(p *backend.Policy, _ int64) int64 { return p.Algorithm.Max() }
		w.ask = func(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
			d, err := ask(s, ctx, r)
			if errors.Is(err, backend.ErrNeverAdmissible) {
				err = nil
			}
			return d, err
		}
	})},
	{"ignores the context", "Context", spreadingAsked(func(ctx *context.Context, _ *backend.Request) { *ctx = context.Background() })},
	{"tries elsewhere what was perhaps counted", "Lost", spreading(func(w *spreader) {
		w.again = func(err error) bool { return errors.Is(err, backend.ErrPerhapsCounted) }
	})},
	{"forgets an expiry", "Expires", func(s *reference, u *Subject) {
		spreading(func(*spreader) {})(s, u)
		expiring(func(_ *reference, name string, left time.Duration) time.Duration {
			if strings.Contains(name, "share1") {
				return -1
			}
			return left
		})(s, u)
	}},
	{"takes a fixed window for a log", "Storm", spreading(func(w *spreader) {
		w.part = func(a algo.Algorithm, i, k int64) algo.Algorithm {
			return as(rule.KindSlidingLog, algo.FixedWindow)(a.Part(i, k))
		}
	})},
	{"checks, then acts", "Crowd", spreading(func(w *spreader) { w.ask = checkThenAct })},
	{"serves on after Close", "Close", func(s *reference, u *Subject) {
		spoil(s, u).close = func() error { return nil }
		u.Store.(*spoiled).do = newSpreader().do
	}},
	{"answers who has left", "Kept", func(s *reference, u *Subject) {
		spreading(func(*spreader) {})(s, u)
		late(answersLate)(s, u)
	}},
}

func one(int) int    { return 1 }
func less(k int) int { return k - 1 }

// spreadingAsked spoils the request on the whole key.
func spreadingAsked(f func(*context.Context, *backend.Request)) func(*reference, *Subject) {
	return doing(func(s *reference, ctx context.Context, r backend.Request) (backend.Decision, error) {
		f(&ctx, &r)
		return newSpreader().do(s, ctx, r)
	})
}

func TestWrongSpreadsFail(t *testing.T) { fail(t, wrongSpreads, spreads, "^TestWrongSpreadChild$") }

func TestWrongSpreadChild(t *testing.T) { Spread(t, wrongHarness(t, wrongSpreads), 4) }

func TestEachSpreadSentenceIsBrokenBySomeStore(t *testing.T) { breakAll(t, wrongSpreads, spreads) }
