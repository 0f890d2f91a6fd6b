package headgate_test

import (
	"context"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

func dailyShadow(name string, n int64, shards int) headgate.Policy {
	p := daily(name, n)
	p.Shadow, p.Shards = true, shards
	return p
}

// remote is a memory store with a deny cache.
type remote struct {
	*memory.Store
	shared layer.Shared
}

func (s *remote) Shared() *layer.Shared { return &s.shared }

// TestShadowDeniedFromCache: what a shadow denied is not counted by the Commit,
// whether the store denied it or the deny cache.
func TestShadowDeniedFromCache(t *testing.T) {
	ctx := context.Background()
	s := &remote{Store: memory.New(nil)}
	l, err := headgate.New(s, []headgate.Policy{dailyShadow("s", 1, 0)}, nil)
	require.NoError(t, err)
	for i := range 5 {
		r, d, err := l.Reserve(ctx, headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.NoError(t, r.Commit(ctx, 1))
		if i == 1 {
			// fill the cache again: a settle forgets it
			_, err = l.Allow(ctx, "k")
			require.NoError(t, err)
		}
	}
	d, err := l.Peek(ctx, headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.EqualValues(t, 1, d.Used)
}

// TestShadowDeniedSpread: a reservation on a spread key that only a shadow denied
// passes, and its Commit and Extend do.
func TestShadowDeniedSpread(t *testing.T) {
	ctx := context.Background()
	l, err := headgate.New(memory.New(nil), []headgate.Policy{dailyShadow("s", 2, 2)}, nil)
	require.NoError(t, err)
	for i := range 4 {
		r, d, err := l.Reserve(ctx, headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.True(t, d.Allowed)
		if err := r.Extend(ctx); err != nil {
			t.Errorf("extend %d: %v", i, err)
		}
		if err := r.Commit(ctx, 1); err != nil {
			t.Errorf("commit %d: %v", i, err)
		}
	}
}

// TestShadowAlone: a cost above a shadow's limit passes, by each verb.
func TestShadowAlone(t *testing.T) {
	ctx := context.Background()
	l, err := headgate.New(memory.New(nil), []headgate.Policy{dailyShadow("s", 5, 0)}, nil)
	require.NoError(t, err)
	other, err := headgate.New(memory.New(nil), []headgate.Policy{daily("o", 100)}, nil)
	require.NoError(t, err)
	c := headgate.Call{Key: "k", Costs: []int64{50}}
	for name, ask := range map[string]func() (headgate.Decision, error){
		"do":          func() (headgate.Decision, error) { return l.Do(ctx, c) },
		"reserve":     func() (headgate.Decision, error) { _, d, err := l.Reserve(ctx, c); return d, err },
		"wait":        func() (headgate.Decision, error) { return l.Wait(ctx, c) },
		"waitreserve": func() (headgate.Decision, error) { _, d, err := l.WaitReserve(ctx, c); return d, err },
		"all":         func() (headgate.Decision, error) { return headgate.All(ctx, other.Call("o", 1), l.Call("k", 50)) },
	} {
		t.Run(name, func(t *testing.T) {
			d, err := ask()
			require.NoError(t, err)
			require.True(t, d.Allowed)
		})
	}
}

// TestShadowDeniedFromCacheOfAll is TestShadowDeniedFromCache for a reservation of several
// keys.
func TestShadowDeniedFromCacheOfAll(t *testing.T) {
	ctx := context.Background()
	s := &remote{Store: memory.New(nil)}
	l, err := headgate.New(s, []headgate.Policy{dailyShadow("s", 1, 0)}, nil)
	require.NoError(t, err)
	for range 2 {
		_, err := l.Allow(ctx, "k")
		require.NoError(t, err)
	}
	rs, d, err := headgate.ReserveAll(ctx, l.Call("other"), l.Call("k"))
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.NoError(t, rs.Commit(ctx))
	requireCount(t, l, "k", 1)
	requireCount(t, l, "other", 1)
}
