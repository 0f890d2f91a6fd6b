package shard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/denial"
)

// reading is what sub-keys answered to one request.
//
// It is shared by all calls that waited for it, and never written after read has returned.
type reading struct {
	states []backend.State // the sum of the shares that answered; never written
	whole  bool            // these are all shares
	above  bool            // one of them counts more than its part of the limit
	dead   []int           // those that did not answer
	sent   time.Duration   // before they were asked
	err    error           // why the first of dead did not answer
}

// read asks these sub-keys at once, in one round trip per node where next can, and
// notes what they answer. Its error is why the request itself was refused, which says
// nothing of a share. The answers have one array of states, since a key over 1,024
// shares has as many.
//
// A share that does not answer is no error of the reading. Its failure modes decide later,
// and only if no other share has room.
func (k *hotKey) read(ctx context.Context, s *Store, r *backend.Request, shares []int) (_ *reading, refused error) {
	n, j := len(shares), len(k.policies)
	requests, answers := make([]backend.Request, n), make([]backend.Answer, n)
	each := make([]backend.State, n*j)
	for at, i := range shares {
		q := &requests[at]
		*q = *r
		q.Sub, q.Policies, q.Shards, q.Each = k.names.Name(i), k.subs[i].policies, 0, each[at*j:(at+1)*j:(at+1)*j]
	}
	f, parts := &reading{sent: k.denials.Now()}, [][]backend.State(nil)
	s.next.DoAll(ctx, requests, answers)
	for at, i := range shares {
		a := &answers[at]
		if a.Err == nil {
			parts, f.above = append(parts, requests[at].Each), f.above || k.above(requests[at].Each)
			k.observe(i, &r.Group, a.Decision.Allowed, requests[at].Each, f.sent)
			continue
		}
		if backend.Undecided(a.Err) {
			k.unanswered(ctx, i, a.Err)
		} else {
			refused = a.Err
		}
		f.dead, f.err = append(f.dead, i), cmp.Or(f.err, a.Err)
	}
	f.states, f.whole = k.sum(parts), len(parts) == len(k.subs)
	//mutant:partial-sum-levels-nothing
	if f.whole && !f.above {
		k.level.Store(true)
	}
	return f, refused
}

// readSum reads these shares, together with the calls that need it at the same time: those
// of which no denial is known, or all. A spent key must not be read once by each of its callers. The reading
// goes on without a caller that leaves. Calls of other costs read for themselves: a share
// that denies the larger cost may allow the smaller one.
func (k *hotKey) readSum(ctx context.Context, s *Store, r *backend.Request, shares []int) (*reading, error) {
	q := *r
	// A Peek charges nothing, so its answer can serve any number of callers.
	q.Op, q.Run, q.UpTo, q.Costs = backend.Peek, 0, false, slices.Clone(r.Costs) // the caller's are not used after it leaves
	q.StoreTime = nil
	//mutant:one-sum-for-all
	answer := k.sums.DoChan(fmt.Sprint(denial.Costs(&r.Group), len(shares) == len(k.subs)), func() (any, error) {
		s.stats.sums.Add(1)
		//mutant:sum-outlives-caller
		return k.read(context.WithoutCancel(ctx), s, &q, shares)
	})
	if begin := time.Now(); r.StoreTime != nil {
		defer func() { r.StoreTime.Add(int64(time.Since(begin))) }()
	}
	select {
	case got := <-answer:
		return got.Val.(*reading), got.Err
	case <-ctx.Done():
		return nil, fmt.Errorf("headgate: call not counted: %w", ctx.Err())
	}
}

// sum sums the states of shares. The key passes a call again when the first share does,
// since a call must fit in one, in all of its policies. The key is unused when the last
// share is. A share that counts more than its part takes room from the others, and the key
// passes nothing until it does not. Shares that are no part of the sum count as spent.
func (k *hotKey) sum(parts [][]backend.State) []backend.State {
	sum := make([]backend.State, len(k.policies))
	for n, states := range parts {
		first := n == 0 || k.retryAfter(states) < k.retryAfter(sum)
		for j := range states {
			s, t := &states[j], &sum[j]
			t.Used += s.Used
			t.Lent += s.Lent
			t.Remaining += s.Remaining
			t.ResetAfter = max(t.ResetAfter, s.ResetAfter)
			if first {
				t.RetryAfter = s.RetryAfter
			}
		}
	}
	for j := range sum {
		s, p := &sum[j], &k.policies[j]
		s.Policy, s.Known, s.Limit = p.Name, backend.Exact, p.Algorithm.Max()
		switch {
		case len(parts) < len(k.subs):
			//mutant:partial-sum-estimated
			s.Known, s.Used = backend.Estimated, s.Limit-s.Remaining
		//mutant:remaining-of-lowered-limit
		case s.Used+s.Remaining > s.Limit:
			s.Remaining = max(0, s.Limit-s.Used)
		}
		for _, states := range parts {
			if t := &states[j]; t.Used > t.Limit { // until no share is above its part
				s.RetryAfter = max(s.RetryAfter, t.RetryAfter)
			}
		}
	}
	return sum
}

// retryAfter returns when these states let a call pass: when the last policy does.
//
// Of a list of shadows it is 0: they deny nothing.
func (k *hotKey) retryAfter(states []backend.State) time.Duration {
	return k.decide(states).RetryAfter
}

// decide returns the decision that these states make.
//
// A shadow binds only if all policies are shadows. Then it denies nothing.
func (k *hotKey) decide(states []backend.State) (d backend.Decision) {
	by := backend.Binding(k.policies, states)
	d.State = states[by]
	if k.policies[by].Shadow {
		d.RetryAfter = 0
	}
	d.Allowed = d.RetryAfter == 0
	return d
}

// view is what is remembered of a key's shares for calls of one group, g.
//
// It is made anew for each look, and holds for that instant only: other calls change what
// is remembered at any time.
type view struct {
	denial.Denial       // of all shares that deny it: the key's, if there are no others
	alike         bool  // all of them denied calls of g's costs: then the numbers are exact for g
	open          []int // shares that may have room
	dead          []int // those that did not answer, and must meet their failure mode
}

// view sorts the shares. A share that denies g has no room until an instant that is
// remembered, so a sum need not read it. In a saturated TokenBucket, where every share has
// its own instant, most are such. The key's denial was sent when the first of the shares'
// was. It binds by all that bind one of them, and ends when the first of theirs does.
func (k *hotKey) view(g *backend.Group, now time.Duration) *view {
	v := &view{alike: true}
	v.Costs, v.Sent, v.Told, v.Ends = denial.Costs(g), now, now, now+denial.Standing
	n, parts := len(k.policies), [][]backend.State(nil)
	each := make([]backend.State, len(k.subs)*n) // one array, since there may be 1,024 shares
	for i := range k.subs {
		switch d := k.denied(i, g, now); {
		case d == nil:
			//mutant:share-is-not-key
			v.open = append(v.open, i)
		case d.States == nil:
			v.dead = append(v.dead, i)
		default:
			states := each[i*n : (i+1)*n]
			for j := range states {
				states[j] = d.State(j, g, now)
			}
			parts = append(parts, states)
			v.Sent, v.Ends, v.Bound = min(v.Sent, d.Sent), min(v.Ends, d.Ends), v.Bound|d.Bound
			//mutant:exact-denial
			v.alike = v.alike && slices.Equal(d.Costs, v.Costs)
		}
	}
	v.States = k.sum(parts)
	return v
}
