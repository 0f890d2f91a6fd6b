package breaker_test

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/stretchr/testify/require"
)

// TestFailShares: requests to the sub-keys of a call that fails local are decided one after
// the other, each with a zero decision, until one passes. The call counts once.
func TestFailShares(t *testing.T) {
	local := faulttest.Strict{Store: memory.New(nil), T: t}
	s := breaker.New(memory.New(nil), &breaker.Options{Local: local, Instances: 1})
	p := policy
	p.OnFailure = headgate.FailLocal
	r := backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Policies: []backend.Policy{p}, Cost: 10}}
	shares := func(yield func(*backend.Request) bool) {
		for _, sub := range []string{"a", "b"} {
			q := r
			if q.Sub = sub; !yield(&q) {
				return
			}
		}
	}
	for _, want := range []bool{true, true, false} {
		d := backend.Decision{Allowed: true}
		require.NoError(t, s.Fail(context.Background(), &r, &d, backend.ErrUnavailable, shares))
		require.Equal(t, want, d.Allowed)
		require.Equal(t, backend.FromFailLocal, d.Source)
	}
	require.EqualValues(t, 3, s.Stats().FailLocal)
	d := backend.Decision{Allowed: true}
	r.Op = backend.Reset // which has no failure mode
	require.ErrorIs(t, s.Fail(context.Background(), &r, &d, backend.ErrUnavailable, nil), backend.ErrUnavailable)
	require.Zero(t, d)
}

// TestFailAllocatesNothing: a failure mode's answer, while calls fail by the thousand.
func TestFailAllocatesNothing(t *testing.T) {
	s := breaker.New(memory.New(nil), nil)
	r := backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Policies: []backend.Policy{policy}, Cost: 1}}
	var d backend.Decision
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = s.Fail(context.Background(), &r, &d, backend.ErrUnavailable, nil) }))
	require.Equal(t, backend.FromFailClosed, d.Source)
}
