package denial

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// fake is a store that answers as it is told to, with a clock.
type fake struct {
	shared layer.Shared
	now    atomic.Int64 // nanoseconds
	asked  atomic.Int64
	heeds  bool // a context that ends
	do     func(r *backend.Request) (backend.Decision, error)
}

func (f *fake) Shared() *layer.Shared {
	f.shared.Clock, f.shared.Budget = f.Now, 60*time.Millisecond
	return &f.shared
}

// able is all operations, of up to two keys.
var able = backend.Capabilities{Ops: ^backend.Ops(0), Keys: 2}

func (f *fake) Now() time.Time { return time.Unix(1_745_000_000, f.now.Load()) }

func (f *fake) Check([]backend.Policy) error       { return nil }
func (f *fake) Capabilities() backend.Capabilities { return able }
func (f *fake) Close() error                       { f.shared.Closed.Store(true); return nil }
func (f *fake) advance(d time.Duration)            { f.now.Add(int64(d)) }
func (f *fake) wrapper(d time.Duration) *Store     { return New(f, f.Shared(), d) }

func (f *fake) Do(ctx context.Context, r *backend.Request, d *backend.Decision) (err error) {
	f.asked.Add(1)
	at := f.shared.Sending(r)
	defer func() { f.shared.Sent(r, d, at, err) }()
	if f.shared.Closed.Load() {
		return backend.ErrClosed
	}
	if err := r.Check(ctx, able); err != nil {
		return err
	}
	if !f.heeds {
		*d, err = f.do(r)
		return err
	}
	own, done := *r, make(chan backend.Answer, 1)
	go func() {
		d, err := f.do(&own)
		done <- backend.Answer{Decision: d, Err: err}
	}()
	select {
	case a := <-done:
		*d = a.Decision
		return a.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// policies of limits 10, 20 …, so that costs may differ.
func policies(n int) (ps []backend.Policy) {
	for i := range n {
		ps = append(ps, backend.Policy{
			Name:      string(rune('a' + i)),
			Algorithm: algo.TokenBucket(algo.PerSecond(10), int64(10*(i+1))),
			OnFailure: backend.FailClosed,
		})
	}
	return ps
}

var one = policies(1)

// denies says that a key is denied for so long.
func denies(retry time.Duration) func(r *backend.Request) (backend.Decision, error) {
	return func(r *backend.Request) (d backend.Decision, _ error) {
		at := make([]backend.Reading, len(r.Policies))
		for i := range at {
			at[i] = backend.Reading{Used: 10, RetryAt: 1 + int64(i) + retry.Microseconds(), ResetAt: 1 + int64(time.Minute/time.Microsecond)}
		}
		r.Decide(1, at, &d)
		return d, nil
	}
}

// leaves lets pass and says that so many units remain.
func leaves(n int64) func(r *backend.Request) (backend.Decision, error) {
	return func(r *backend.Request) (d backend.Decision, _ error) {
		r.Decide(1, []backend.Reading{{Used: 10 - n, ResetAt: 2}}, &d)
		return d, nil
	}
}

func take(key string, ps []backend.Policy, n int64) backend.Request {
	return backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Policies: ps, Cost: n}}
}

// upTo takes as many calls of one unit as fit, up to n.
func upTo(key string, ps []backend.Policy, n int64) backend.Request {
	return backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Policies: ps, Cost: 1, Run: n, UpTo: true}}
}

// settle settles a lease of n units of every policy by what was used; by nothing, all is
// given back.
func settle(key string, ps []backend.Policy, n int64, used ...int64) backend.Request {
	r := backend.Request{Op: backend.Settle, Group: backend.Group{Key: key, Policies: ps, Costs: slices.Repeat([]int64{n}, len(ps))}}
	r.Lease = &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute, Actual: used}
	return r
}

func ask(t testing.TB, s *Store, r backend.Request) backend.Decision {
	t.Helper()
	d, err := layer.Ask(context.Background(), s, r)
	require.NoError(t, err)
	return d
}

// cached asks and says whether the cache answered.
func cached(t testing.TB, s *Store, r backend.Request) bool {
	t.Helper()
	before := s.next.(*fake).asked.Load()
	d := ask(t, s, r)
	require.Equal(t, d.Source == backend.FromDenyCache, s.next.(*fake).asked.Load() == before)
	return d.Source == backend.FromDenyCache
}

// denied is a wrapper that knows of a denial of the key "k".
func denied(t testing.TB, retry time.Duration, ps []backend.Policy, n int64) (*fake, *Store) {
	t.Helper()
	f := &fake{do: denies(retry)}
	s, r := f.wrapper(Longest), take("k", ps, n)
	r.Each = make([]backend.State, len(ps))
	require.False(t, cached(t, s, r))
	return f, s
}
