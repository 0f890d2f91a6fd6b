package policyfile

import (
	"fmt"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestFloodOfAPlan: the keys of a plan, and those of its tenants, take at most half of a store
// in memory. New keys of another plan have counts of their own.
func TestFloodOfAPlan(t *testing.T) {
	f := parse(t, `
policies:
  api: {algorithm: fixed-window, limit: 1, period: 30d, on-failure: closed}
plans:
  free: [api]
  paid: [api]
default: free
tenants:
  guest: {policies: {api: {period: 60d}}}
`, nil)
	s := memory.New(&memory.Options{MaxKeys: 300})
	l, err := f.Limiters(s, nil)
	require.NoError(t, err)
	passes := func(l *headgate.Limiter, key string) bool {
		d, err := l.Allow(t.Context(), key)
		require.NoError(t, err)
		return d.Allowed
	}
	paid, ok := l.Plan("paid")
	require.True(t, ok)
	require.True(t, passes(paid, "first"))
	passed := 0
	for i := range 1000 {
		for _, flood := range []*headgate.Limiter{l.For("anybody"), l.For("guest")} {
			if passes(flood, fmt.Sprint("flood", i)) {
				passed++
			}
		}
	}
	require.InDelta(t, 150, passed, 3, "and one by each shared count")
	for i := range 50 {
		require.True(t, passes(paid, fmt.Sprint("user", i)))
		require.False(t, passes(paid, fmt.Sprint("user", i)))
	}
	stats := s.Stats()
	require.Len(t, stats.Classes, 1)
	require.Equal(t, "free", stats.Classes[0].Class)
}

// TestFloodOfTheOnlyPlan: its keys may take all counts.
func TestFloodOfTheOnlyPlan(t *testing.T) {
	s := memory.New(&memory.Options{MaxKeys: 100})
	l, err := parse(t, `
policies:
  api: {algorithm: fixed-window, limit: 1, period: 30d, on-failure: closed}
plans:
  free: [api]
default: free
`, nil).Limiters(s, nil)
	require.NoError(t, err)
	for i := range 100 {
		d, err := l.For("anybody").Allow(t.Context(), fmt.Sprint(i))
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	require.Zero(t, s.Stats().Shared)
}
