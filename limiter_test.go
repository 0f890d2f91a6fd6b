package headgate_test

import (
	"context"
	"slices"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

var perMinute = headgate.Policy{Name: "api", Algorithm: algo.TokenBucket(algo.PerMinute(100), 100), OnFailure: headgate.FailOpen}

// TestAllowDoesNotAllocate holds the promise for the hot path: one policy, a
// key that is known.
func TestAllowDoesNotAllocate(t *testing.T) {
	l, err := headgate.New(memory.New(nil), []headgate.Policy{perMinute}, nil)
	require.NoError(t, err)
	ctx := context.Background()
	allocs := testing.AllocsPerRun(1000, func() {
		if _, err := l.Allow(ctx, "user:42"); err != nil {
			t.Error(err)
		}
	})
	require.Zero(t, allocs)
}

// TestASpreadKeyDoesNotAllocate either, and counts for all its sub-keys.
func TestASpreadKeyDoesNotAllocate(t *testing.T) {
	p := perMinute
	p.Algorithm = algo.FixedWindow(algo.Per(1_000_000, algo.MaxPeriod))
	plain, err := headgate.New(memory.New(nil), []headgate.Policy{p}, nil)
	require.NoError(t, err)
	ctx := context.Background()
	_, err = plain.Allow(ctx, "user:42") // a count of the key itself, which is another
	require.NoError(t, err)
	l, err := plain.WithShards(16)
	require.NoError(t, err)
	for range 1000 { // every sub-key is known then
		_, _ = l.Allow(ctx, "user:42")
	}
	allocs := testing.AllocsPerRun(1000, func() {
		if _, err := l.Allow(ctx, "user:42"); err != nil {
			t.Error(err)
		}
	})
	require.Zero(t, allocs)
	d, err := l.Peek(ctx, headgate.Call{Key: "user:42"})
	require.NoError(t, err)
	require.EqualValues(t, 2001, d.Used)
	require.EqualValues(t, 1, l.Stats().Spread.Sums, "before the first take")
	_, err = l.WithShards(2000)
	require.ErrorContains(t, err, "2000")
}

func TestNewRefuses(t *testing.T) {
	ok := perMinute
	unset := ok
	unset.OnFailure = 0
	unknown := ok
	unknown.OnFailure = 77
	nameless := ok
	nameless.Name = "a b"
	for _, c := range []struct {
		name     string
		store    backend.Store
		policies []headgate.Policy
		what     string
	}{
		{"no store", nil, []headgate.Policy{ok}, "store"},
		{"no policy", memory.New(nil), nil, "policies"},
		{"unset failure mode", memory.New(nil), []headgate.Policy{unset}, "failure mode of policy api"},
		{"unknown failure mode", memory.New(nil), []headgate.Policy{unknown}, "failure mode of policy api"},
		{"two of one name", memory.New(nil), []headgate.Policy{ok, ok}, "policy name"},
		{"a bad name", memory.New(nil), []headgate.Policy{nameless}, "policy name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := headgate.New(c.store, c.policies, nil)
			var invalid *headgate.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, c.what, invalid.What)
		})
	}
}

func TestKeyIsInjective(t *testing.T) {
	seen := map[string][]string{}
	parts := []string{"b", "a", ":", "%", "a:b", "%3A", "%25", "a%3Ab", "::", "\x00"}
	var lists [][]string
	for _, a := range parts {
		lists = append(lists, []string{a})
		for _, b := range parts {
			lists = append(lists, []string{a, b})
			for _, c := range parts {
				lists = append(lists, []string{a, b, c})
			}
		}
	}
	for _, l := range lists {
		k := headgate.Key(l...)
		require.NotContains(t, seen, k, "%q", l)
		seen[k] = l
	}
	for _, empty := range [][]string{{}, {""}, {"user", ""}, {"", "42"}, {"user", "", "search"}} {
		require.Empty(t, headgate.Key(empty...), "%q", empty)
	}
	require.Equal(t, "user:42:search", headgate.Key("user", "42", "search"))
}

func TestWithAndOnFailureShareCounts(t *testing.T) {
	ctx := context.Background()
	l, err := headgate.New(memory.New(nil), []headgate.Policy{perMinute}, nil)
	require.NoError(t, err)
	strict, err := l.OnFailure(headgate.FailClosed)
	require.NoError(t, err)
	more := headgate.Policy{Name: "day", Algorithm: algo.FixedWindow(algo.PerDay(1000)), OnFailure: headgate.FailClosed}
	both, err := l.With(perMinute, more)
	require.NoError(t, err)
	_, err = l.AllowN(ctx, "k", 10)
	require.NoError(t, err)
	_, err = strict.AllowN(ctx, "k", 20)
	require.NoError(t, err)
	each := make([]headgate.State, 2)
	d, err := both.Do(ctx, headgate.Call{Key: "k", Costs: []int64{5, 500}, Each: each})
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.InDelta(t, 35, each[0].Used, 1)
	require.Equal(t, int64(500), each[1].Used)
	require.Equal(t, headgate.FailOpen, l.Policies()[0].OnFailure, "OnFailure left the first limiter as it was")
	require.NoError(t, both.Reset(ctx, "k"))
	d, err = both.Peek(ctx, headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.Zero(t, d.Used)
}

// TestCallWithoutCosts: nil costs are 1 of each policy.
func TestCallWithoutCosts(t *testing.T) {
	day := headgate.Policy{Name: "day", Algorithm: algo.FixedWindow(algo.PerDay(1000)), OnFailure: headgate.FailClosed}
	l, err := headgate.New(memory.New(nil), []headgate.Policy{day, perMinute}, nil)
	require.NoError(t, err)
	for range 2 {
		_, err = l.Do(context.Background(), headgate.Call{Key: "k"})
		require.NoError(t, err)
	}
	each := make([]headgate.State, 2)
	_, err = l.Peek(context.Background(), headgate.Call{Key: "k", Each: each})
	require.NoError(t, err)
	require.EqualValues(t, 2, each[0].Used)
	require.EqualValues(t, 2, each[1].Used)
}

func TestClosedStoreEndsLimiters(t *testing.T) {
	s := memory.New(nil)
	l, err := headgate.New(s, []headgate.Policy{perMinute}, nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = l.Allow(context.Background(), "k")
	require.ErrorIs(t, err, headgate.ErrClosed)
}

func TestPingOfAStoreThatHasNone(t *testing.T) {
	l, err := headgate.New(memory.New(nil), []headgate.Policy{perMinute}, nil)
	require.NoError(t, err)
	warnings, err := l.Ping(context.Background())
	require.NoError(t, err)
	require.Empty(t, warnings)
}

// TestCallsLeaveNothingBehind: what one call says of itself holds for no other,
// though they have a request and a decision by turns.
func TestCallsLeaveNothingBehind(t *testing.T) {
	ctx := context.Background()
	day := headgate.Policy{Name: "day", Algorithm: algo.FixedWindow(algo.PerDay(1000)), OnFailure: headgate.FailClosed}
	l, err := headgate.New(memory.New(nil), []headgate.Policy{day, perMinute}, &headgate.Options{Observer: func(headgate.Event) {}})
	require.NoError(t, err)
	for range 10 {
		each := make([]headgate.State, 2)
		_, err = l.Do(ctx, headgate.Call{Key: "k", Costs: []int64{7, 3}, Each: each})
		require.NoError(t, err)
		said := slices.Clone(each)
		d, err := l.Allow(ctx, "other")
		require.NoError(t, err)
		require.True(t, d.Allowed)
		d, err = l.AllowN(ctx, "other", 1000)
		require.ErrorIs(t, err, headgate.ErrNeverAdmissible)
		require.Zero(t, d)
		require.Equal(t, said, each)
	}
}
