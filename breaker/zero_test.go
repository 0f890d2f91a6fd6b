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

// TestFailAny: the ways of a call are decided one after the other, each with a
// zero decision, which is zero again where they end in an error.
func TestFailAny(t *testing.T) {
	local := faulttest.Strict{Store: memory.New(nil), T: t}
	s := breaker.New(memory.New(nil), &breaker.Options{Local: local, Instances: 1})
	p := policy
	p.OnFailure = headgate.FailLocal
	ask := func(keys ...string) (d backend.Decision, err error) {
		err = s.FailAny(context.Background(), len(keys), func(i int) *backend.Request {
			r := &backend.Request{Op: backend.Take, Group: backend.Group{Key: keys[i], Policies: []backend.Policy{p}, Cost: 10}}
			if keys[i] == "" {
				r.Op = backend.Reset // which has no failure mode
			}
			return r
		}, backend.ErrUnavailable, &d)
		return d, err
	}
	for _, want := range []bool{true, true, false} {
		d, err := ask("a", "b")
		require.NoError(t, err)
		require.Equal(t, want, d.Allowed)
		require.Equal(t, backend.FromFailLocal, d.Source)
	}
	d, err := ask("a", "")
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.Zero(t, d)
	require.EqualValues(t, 3, s.Stats().FailLocal)
}

// TestFailAllocatesNothing: a failure mode's answer, while calls fail by the thousand.
func TestFailAllocatesNothing(t *testing.T) {
	s := breaker.New(memory.New(nil), nil)
	r := backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Policies: []backend.Policy{policy}, Cost: 1}}
	var d backend.Decision
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = s.Fail(context.Background(), &r, &d, backend.ErrUnavailable) }))
	require.Equal(t, backend.FromFailClosed, d.Source)
}
