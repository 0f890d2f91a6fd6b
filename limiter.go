package headgate

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/internal/adapter"
	"github.com/headgate-go/headgate/internal/borrow"
	"github.com/headgate-go/headgate/internal/denial"
	"github.com/headgate-go/headgate/internal/free"
	"github.com/headgate-go/headgate/internal/joint"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/settlement"
	"github.com/headgate-go/headgate/internal/token"
	"github.com/headgate-go/headgate/internal/wait"
	"github.com/headgate-go/headgate/shard"
)

// Limiter decides, for a key, whether a call may pass now. Make one with New
// and share it: it is safe for concurrent use, and limiters on one store
// share its counts.
type Limiter struct {
	store      backend.Store // New's; the layers stand over it
	free       *free.Store   // the layers, outermost first; the next two are nil over a store in this process
	denial     *denial.Store
	borrow     *borrow.Store
	joint      *joint.Store
	shard      *shard.Store
	breaker    *breaker.Store
	direct     *memory.Store // decides if no layer has a part in it; nil: one has
	observer   func(Event)   // nil: none
	near       float64       // the share of a limit of Event.Near; not above 0: none
	policies   []Policy      // never written
	shards     int           // sub-keys of a key; below 2: none
	term       time.Duration // of loans; 0: none
	tokens     token.Key
	cancelling settlement.Background
	queues     *wait.Queues
	adapter    *adapter.Limiter // what adapters see
}

// New returns a limiter that counts in s by every one of the policies. It
// does no I/O. It refuses, with an error that names the value, what could not
// be kept. Examples are numbers out of range, two policies of one name, a policy without a
// failure mode, a store made with wrong arguments.
//
// Closing the store ends every limiter on it; a limiter itself holds nothing
// to close.
func New(s backend.Store, policies []Policy, opts *Options) (*Limiter, error) {
	if layer.IsNil(s) {
		return nil, &InvalidError{What: "store", Value: nil, Want: "a store, as memory.New(nil)"}
	}
	if opts == nil {
		opts = &Options{}
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	var denied *denial.Store
	l := &Limiter{store: s, observer: opts.Observer, near: cmp.Or(opts.Near, defaultNear), adapter: &adapter.Limiter{Log: opts.Logger, Keys: onePer(s, func(bool) *adapter.Keys { return adapter.NewKeys() })}, tokens: slices.Clone(opts.TokenKey), cancelling: settlement.NewBackground(), breaker: breaker.New(s, &breaker.Options{
		Local:     onePer(s, func(bool) *memory.Store { return memory.New(nil) }),
		Instances: opts.Instances,
		Known:     func(r *backend.Request, d *Decision) bool { return denied.Stands(r, d) },
		Observer:  opts.Observer,
		Logger:    opts.Logger,
	})}
	l.shard = shard.New(l.breaker, s)
	l.queues = onePer(s, func(bounded bool) *wait.Queues {
		qs := wait.NewQueues(bounded)
		l.shard.Shared().Subscribe(func(n layer.Notice) {
			switch n.Change {
			case layer.Closing:
				qs.Close()
			case layer.Removed, layer.Returned:
				qs.Freed(n.Group)
			}
		})
		return qs
	})
	l.joint = joint.New(l.shard, l.breaker, s, l.cancelling)
	l.free = free.New(l.joint, l.shard, true)
	if shared := layer.Of(s); shared != nil && !shared.Local { // a local decision costs less than a look
		l.borrow = borrow.New(l.joint, shared, l.borrowed)
		denied = denial.New(l.borrow, shared, cmp.Or(opts.DenyCacheTTL, denial.Longest))
		l.denial, l.free = denied, free.New(denied, l.shard, false)
	}
	return l.list(policies, opts.Shards, opts.Borrow)
}

// onePer returns what limiters on s have one of, such as the store that decides for
// FailLocal. What one of them let pass another does not let pass again. Limiters on a store
// of another author share nothing.
func onePer[T any](s backend.Store, fresh func(shared bool) T) T {
	shared := layer.Of(s)
	if shared == nil {
		return fresh(false)
	}
	type key struct{} // one for each T
	return shared.Value(key{}, func() any { return fresh(true) }).(T)
}

// With returns a limiter with another list of policies on the same store: for
// free and paid plans, or a limit per tenant. Policies of both lists share a
// count where name, algorithm and period agree, whatever their limits are. The list
// has the Shards and the term of l.
func (l *Limiter) With(policies ...Policy) (*Limiter, error) {
	if l.zero() {
		return nil, errZero
	}
	return l.list(policies, l.shards, l.term)
}

// WithShards returns a limiter of the same policies whose keys are spread over so many sub-keys:
// see Options.Shards. Limiters share the counts of a key if they have the same Shards.
func (l *Limiter) WithShards(shards int) (*Limiter, error) {
	if l.zero() {
		return nil, errZero
	}
	return l.list(l.policies, shards, l.term)
}

// WithBorrow returns a limiter on the same counts which borrows for a term: see Options.Borrow.
func (l *Limiter) WithBorrow(term time.Duration) (*Limiter, error) {
	if l.zero() {
		return nil, errZero
	}
	return l.list(l.policies, l.shards, term)
}

// list returns the limiter of a list.
func (l *Limiter) list(policies []Policy, shards int, term time.Duration) (*Limiter, error) {
	if err := l.shard.CheckShards(policies, shards); err != nil {
		return nil, err
	}
	if err := borrow.Check(policies, term, l.shard.Capabilities()); err != nil {
		return nil, err
	}
	other := *l
	other.policies, other.shards, other.term = slices.Clone(policies), shards, term
	if shards == 1 { // as 0
		other.shards = 0
	}
	other.adapter = &adapter.Limiter{Log: l.adapter.Log, Store: l.store, Policies: other.policies, Shards: other.shards, Borrow: term, Keys: l.adapter.Keys, Layers: l.breaker}
	other.direct = nil
	//mutant:spread-in-memory
	if m, ok := l.store.(*memory.Store); ok && l.observer == nil && other.shards < 2 {
		other.direct = m
	}
	return &other, nil
}

// OnFailure returns a limiter on the same counts where every policy has the
// failure mode m. It is for a call site that needs another mode than the others.
func (l *Limiter) OnFailure(m FailureMode) (*Limiter, error) {
	policies := l.Policies()
	for i := range policies {
		policies[i].OnFailure = m
	}
	return l.With(policies...)
}

// Headroom returns a limiter on the same counts whose limits are lower by a part, from 0 to below
// 1. Calls that can wait go by it, and those that can't by l. With 0.2 the former are denied when
// 80 % of a limit is used, rounded down, so a fifth is left for the latter. Of a TokenBucket or a
// LeakyQueue it is the burst that is lower, and not the rate.
func (l *Limiter) Headroom(part float64) (*Limiter, error) {
	if !(part >= 0 && part < 1) { // NaN too
		return nil, &InvalidError{What: "headroom", Value: part, Want: "0 to below 1, as a part of the limits"}
	}
	policies := l.Policies()
	for i := range policies {
		a := &policies[i].Algorithm
		//mutant:headroom-is-left
		*a = a.WithMax(int64(float64(a.Max())*(1-part) + 1e-6)) // 1 - 0.9 is a little less than 0.1
	}
	return l.With(policies...)
}

// Allow decides a call that costs one unit of every policy.
//
// A denial is a Decision, not an error. An error means that the call was wrong (an empty
// key, a cost that can never pass, a closed store), or that ctx ended first. Then nothing
// was sent or counted. Where the store could not decide, the decision is by the policies'
// failure modes, and its Source and Err say so. A call that the store would deny as it
// did a moment ago is denied without asking it: FromDenyCache; see Options.DenyCacheTTL.
//
// It returns within the store's budget, whatever the server does, or sooner
// when ctx ends.
func (l *Limiter) Allow(ctx context.Context, key string) (d Decision, err error) {
	err = l.allow(ctx, key, 1, &d) // no more: so short it is inlined, and d copied once less
	return d, err
}

// AllowN decides a call that costs n units of every policy, all or nothing;
// n is from 0 to what the policies can grant. A larger one is
// ErrNeverAdmissible. A call of 0 passes without a round trip: FromNone.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (d Decision, err error) {
	err = l.allow(ctx, key, n, &d)
	return d, err
}

// allow is request for a call without costs of its own: a request is large, and is not
// made where a question has one.
func (l *Limiter) allow(ctx context.Context, key string, n int64, d *Decision) error {
	if l != nil && l.direct != nil && n != 0 {
		err := l.direct.Do(ctx, &backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Policies: l.policies, Cost: n}}, d)
		if err == nil {
			l.count(backend.Take, key, d)
		}
		return err
	}
	q := l.ask(backend.Take, key)
	q.request.Cost = n
	return l.do(ctx, q, d)
}

// request decides r and writes the decision to the zero d. r may be on the caller's stack:
// a question escapes through the layers' interfaces.
func (l *Limiter) request(ctx context.Context, r *backend.Request, d *Decision) error {
	if l != nil && l.direct != nil && !free.Of(r.Op, &r.Group) {
		r.Policies = l.policies
		err := l.direct.Do(ctx, r, d)
		if err == nil {
			l.count(r.Op, r.Key, d)
		}
		return err
	}
	q := l.ask(r.Op, r.Key)
	q.request.Cost, q.request.Costs, q.request.Run, q.request.UpTo, q.request.Each = r.Cost, r.Costs, r.Run, r.UpTo, r.Each
	return l.do(ctx, q, d)
}

// Call is a decision with all that can be asked of it.
type Call struct {
	Key string
	// Costs are the units that the call takes, one for each policy in the limiter's order.
	// Nil is 1 of each. A policy of cost 0 beside another one denies the call only where it
	// is above its limit. If all are 0 no store is asked: FromNone. Limiter.Costs goes by names.
	Costs []int64
	// Each, where it is not nil, has one State for each policy and is filled
	// with them, in the limiter's order. It is the caller's to reuse.
	Each []State
	// Lease is the length of a reservation's lease: 1 s to 24 h, rounded up to the
	// millisecond, such as time.Until(deadline); 0 is DefaultLease. Only Reserve uses it.
	Lease time.Duration
	// ID names the reservation by one of the caller's, such as a job's: Limiter.Reserved.
	ID string
	// LateCommit is for calls that may run longer than twice their lease without Hold. It keeps
	// the reservation's record for ten minutes, or for twice the lease if that is longer, from
	// the Reserve or the last Extend. Without it, the record is kept for twice the lease. While
	// the record is kept, a Commit charges what was used above the estimate. The record takes
	// space in the store for so long, even after the Commit.
	LateCommit bool
}

// Do decides a call with a cost of its own for each policy, such as one request and 3,000
// tokens. It charges all or nothing, and returns the state of each.
func (l *Limiter) Do(ctx context.Context, c Call) (d Decision, err error) {
	err = l.call(ctx, backend.Take, &c, &d)
	return d, err
}

// Peek answers what Do would and writes nothing. Each of its costs may be 0.
func (l *Limiter) Peek(ctx context.Context, c Call) (d Decision, err error) {
	err = l.call(ctx, backend.Peek, &c, &d)
	return d, err
}

// Record charges a call that has happened already, without asking, above the limit if
// need be: later calls are denied until it has aged. Costs of the call are as Do's,
// but may be above what the policies can grant. What the count can't hold, beyond
// twice the greatest limit of an algorithm, is not counted: Used stays there.
//
// The decision has the states after the charge, and is always Allowed, with a RetryAfter
// of 0 even above the limit. A Peek has the time until the next call passes.
//
// A Record has no failure mode: where the store can't count, Record returns an error. After
// ErrPerhapsCounted a Record can't be repeated safely. If a cost must be counted once, use
// Reserve before the call, with an estimate above 0, and repeat its Commit.
//
// A limiter with an InFlight policy can't Record, even at a cost of 0: make one without
// that policy by With.
func (l *Limiter) Record(ctx context.Context, c Call) (d Decision, err error) {
	err = l.call(ctx, backend.Record, &c, &d)
	return d, err
}

// Return takes units out of what is counted of the key now, such as those of a call whose answer
// was wrong. Costs are one for each policy in the limiter's order, or none: 1 of each. Of windows
// and logs the newest units leave first. No count falls below zero, so Used is less by as many
// units as were counted. Lent units are not returned.
//
// The decision has the states afterwards, and is always Allowed, with a RetryAfter of 0. Denials of
// the key that this process remembers are forgotten; another process's show within a second. What
// is returned lies outside of an algorithm's Worst: the caller vouches for it.
//
// A reservation gives its units back by Commit and Cancel, which return no unit of another call.
// One that is settled after a Return gives back at most what is left where it was charged.
//
// A Return has no failure mode, and can't be repeated safely after ErrPerhapsCounted. A limiter
// with an InFlight or a LeakyQueue policy has no Return, nor has a spread key.
func (l *Limiter) Return(ctx context.Context, key string, costs ...int64) (d Decision, err error) {
	err = l.call(ctx, backend.Return, &Call{Key: key, Costs: costs}, &d)
	return d, err
}

// AllowAtMost takes as many units of every policy as there are, up to n, from 0 to
// 10^15 - 1. How many is the decision's Passed, and NextAfter is when there is another one,
// if there were fewer than n. A LeakyQueue passes at most its burst. The call is denied if
// there is none. A spread key gives what its sub-keys have, one after the other, and the
// decision's states are estimates. If the call fails open, n pass. A limiter with an InFlight
// policy has no AllowAtMost: make one without that policy by With.
func (l *Limiter) AllowAtMost(ctx context.Context, key string, n int64) (d Decision, err error) {
	policies := l.listed()
	for i := range policies {
		p := &policies[i]
		//mutant:at-once-within-burst
		if p.Algorithm.Kind().Queues() && !p.Shadow { // all units that pass go on at once
			n = min(n, p.Algorithm.Max())
		}
	}
	err = l.request(ctx, &backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Cost: min(n, 1), Run: n, UpTo: n != 0}}, &d)
	return d, err
}

func (l *Limiter) call(ctx context.Context, op backend.Op, c *Call, d *Decision) error {
	return l.request(ctx, &backend.Request{Op: op, Group: backend.Group{Key: c.Key, Cost: 1, Costs: c.Costs, Each: c.Each}}, d)
}

func init() {
	adapter.Register(func(limiter any) *adapter.Limiter {
		if l := limiter.(*Limiter); !l.zero() {
			return l.adapter
		}
		return new(adapter.Limiter)
	})
}

// zero reports whether the limiter is nil or was not made by New.
func (l *Limiter) zero() bool { return l == nil || l.shard == nil }

var errZero = &InvalidError{What: "limiter", Value: "nil or a zero Limiter", Want: "one that New returned"}

// Reset removes the counts of the key for the limiter's policies. It has no failure
// mode: where the store can't remove them, Reset returns an error.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	var d Decision
	return l.do(ctx, l.ask(backend.Reset, key), &d)
}

// Ping checks whether the store is fit to serve. It returns as an error what makes
// it unfit, and as warnings what only weakens its promise, such as an eviction
// policy that removes counts. It does I/O: it is for start-up checks and health
// endpoints, not for the path of a request.
func (l *Limiter) Ping(ctx context.Context) (warnings []string, err error) {
	switch {
	case l.zero():
		return nil, errZero
	case ctx == nil:
		return nil, backend.CheckContext(ctx)
	}
	return l.shard.Ping(ctx)
}

// Policies returns a copy of the limiter's policies, in order.
func (l *Limiter) Policies() []Policy { return slices.Clone(l.listed()) }

// listed returns the policies, none of a nil Limiter.
func (l *Limiter) listed() []Policy {
	if l == nil {
		return nil
	}
	return l.policies
}
