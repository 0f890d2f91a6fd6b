package headgate_test

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// TestAtIsAPart: At is an index into the parts of the call, whichever key of that part binds. The
// event has the same.
func TestAtIsAPart(t *testing.T) {
	forms(t, func(t *testing.T, s backend.Store) {
		var event headgate.Event
		m, ctx := newModels(t, s, &headgate.Options{Observer: func(e headgate.Event) { event = e }}, headgate.FailClosed), context.Background()
		first := func() headgate.Decision {
			d, err := headgate.First(ctx, m.parts(1)...)
			require.NoError(t, err)
			require.Equal(t, d.At, event.Decision.At)
			return d
		}
		_, err := m.user.AllowN(ctx, "u", 3)
		require.NoError(t, err)
		for _, want := range []int{0, 0, 0, 1} {
			d := first()
			require.True(t, d.Allowed)
			require.Equal(t, want, d.At)
			m.quiet(t)
		}
		require.NoError(t, m.fast.Reset(ctx, "u"))
		d := first()
		require.False(t, d.Allowed)
		require.Equal(t, "user", d.Policy, "the second key of each part")
		require.Less(t, d.At, 2)

		_, err = m.user.AllowN(ctx, "v", 6)
		require.NoError(t, err)
		last := m.fast.Part("v")
		last.And = []headgate.Part{m.cheap.Part("w"), m.user.Part("v")}
		for _, decide := range []func(context.Context, ...headgate.Part) (headgate.Decision, error){headgate.WaitAll, headgate.All} {
			d, err := decide(ctx, m.cheap.Part("v"), last)
			require.NoError(t, err)
			require.Equal(t, "user", d.Policy)
			require.Equal(t, 1, d.At)
			require.Equal(t, 1, event.Decision.At)
			m.quiet(t)
		}
	})
}
