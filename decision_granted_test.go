package headgate_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// oneCost are the verbs that take one cost for all policies.
var oneCost = map[string]func(*headgate.Limiter, string, int64) (headgate.Decision, error){
	"AllowN": func(l *headgate.Limiter, key string, n int64) (headgate.Decision, error) {
		return l.AllowN(context.Background(), key, n)
	},
	"AllowAtMost": func(l *headgate.Limiter, key string, n int64) (headgate.Decision, error) {
		return l.AllowAtMost(context.Background(), key, n)
	},
}

// TestGranted: a call that passes may use what it asked for, by each verb, whatever made
// the decision; one that was denied may use nothing.
func TestGranted(t *testing.T) {
	const open, closed, local = headgate.FailOpen, headgate.FailClosed, headgate.FailLocal
	for name, c := range map[string]struct {
		modes  [2]headgate.FailureMode
		limit  int64
		down   bool
		shadow bool
		want   headgate.Source
		passes bool
	}{
		"store":               {[2]headgate.FailureMode{open, open}, 20, false, false, headgate.FromStore, true},
		"open":                {[2]headgate.FailureMode{open, open}, 20, true, false, headgate.FromFailOpen, true},
		"closed":              {[2]headgate.FailureMode{open, closed}, 20, true, false, headgate.FromFailClosed, false},
		"local":               {[2]headgate.FailureMode{local, local}, 20, true, false, headgate.FromFailLocal, true},
		"local beside open":   {[2]headgate.FailureMode{local, open}, 20, true, false, headgate.FromFailLocal, true},
		"shadows":             {[2]headgate.FailureMode{open, open}, 20, false, true, headgate.FromStore, true},
		"shadows above limit": {[2]headgate.FailureMode{open, open}, 2, false, true, headgate.FromStore, true},
		"shadows, down":       {[2]headgate.FailureMode{open, open}, 20, true, true, headgate.FromFailOpen, true},
	} {
		for _, shards := range []int{0, 2} {
			policies := []headgate.Policy{daily("a", c.limit), daily("b", c.limit)}
			for i := range policies {
				policies[i].OnFailure, policies[i].Shards, policies[i].Shadow = c.modes[i], shards, c.shadow
			}
			s := newLossy()
			s.shared = new(layer.Shared)
			l := limiter(t, s, &headgate.Options{Instances: 1}, policies...)
			if c.down {
				s.lose(onAll, 0)
			}
			check := func(verb string, n int64, ask func(key string) (headgate.Decision, error)) {
				t.Run(fmt.Sprint(name, shards, verb, n), func(t *testing.T) {
					d, err := ask(fmt.Sprint(verb, n))
					require.NoError(t, err)
					require.Equal(t, c.passes, d.Allowed)
					require.Equal(t, n, d.Granted)
					if verb != "AllowAtMost" { // which has its own bound on cost
						require.Equal(t, c.want, d.Source)
					}
				})
			}
			same := int64(3)
			if !c.passes {
				same = 0
			}
			for verb, ask := range oneCost {
				check(verb, same, func(key string) (headgate.Decision, error) { return ask(l, key, 3) })
			}
			of := func(ask ask, costs ...int64) func(string) (headgate.Decision, error) {
				return func(key string) (headgate.Decision, error) {
					_, d, err := ask(l, headgate.Call{Key: key, Costs: costs})
					return d, err
				}
			}
			refused := func(verb string) bool { // of a spread key
				return shards > 0 && (strings.Contains(verb, "All") || strings.Contains(verb, "Reserve"))
			}
			for verb, ask := range takes {
				if refused(verb) {
					continue
				}
				check(verb, same, of(ask, 3, 3))
				check(verb+" of other costs", 0, of(ask, 3, 5))
			}
			for verb, ask := range waits {
				if c.passes && !refused(verb) {
					check(verb, same, of(ask, 3, 3))
				}
			}
		}
	}
}

// TestLocalLeaseOfNothing: a reservation that costs nothing of a policy that fails local
// is settled in this process all the same.
func TestLocalLeaseOfNothing(t *testing.T) {
	s, local := newLossy(), daily("a", 20)
	s.lose(onAll, 0)
	local.OnFailure = headgate.FailLocal
	l := limiter(t, s, &headgate.Options{Instances: 1}, local, daily("b", 20))
	r, d, err := l.Reserve(context.Background(), headgate.Call{Key: "k", Costs: []int64{0, 1}})
	require.NoError(t, err)
	require.Equal(t, headgate.FromFailLocal, d.Source)
	require.True(t, d.Allowed)
	require.ErrorIs(t, r.Commit(context.Background(), 7, 1), headgate.ErrUnavailable)
	d, err = l.Peek(context.Background(), headgate.Call{Key: "k"})
	require.NoError(t, err)
	require.EqualValues(t, 7, d.Used)
}

// TestGrantedOfDenial: a denial grants nothing, by the store or by the deny cache.
func TestGrantedOfDenial(t *testing.T) {
	l := limiter(t, remote(memory.New(nil)), nil, daily("a", 4), daily("b", 4))
	for verb, ask := range takes {
		c := headgate.Call{Key: verb, Costs: []int64{3, 3}}
		_, _, err := ask(l, c)
		require.NoError(t, err)
		for _, want := range []headgate.Source{headgate.FromStore, headgate.FromDenyCache} {
			_, d, err := ask(l, c)
			require.NoError(t, err)
			require.False(t, d.Allowed)
			require.Equal(t, want, d.Source, verb)
			require.Zero(t, d.Granted)
		}
	}
}

// TestGrantedBesideShadow: what shadows cost does not change what the call may use.
func TestGrantedBesideShadow(t *testing.T) {
	shadow := daily("b", 20)
	shadow.Shadow = true
	for _, s := range []backend.Store{memory.New(nil), oneKey(memory.New(nil))} {
		l := limiter(t, s, nil, daily("a", 20), shadow)
		for verb, ask := range takes {
			_, d, err := ask(l, headgate.Call{Key: verb, Costs: []int64{3, 5}})
			require.NoError(t, err)
			require.EqualValues(t, 3, d.Granted, verb)
		}
	}
}

// TestGrantedOfKeys: keys that are granted different numbers of units name none.
func TestGrantedOfKeys(t *testing.T) {
	forms(t, func(t *testing.T, s backend.Store) {
		l := limiter(t, s, nil, daily("a", 20))
		d, err := headgate.All(context.Background(), l.Call("k", 2), l.Call("j", 3))
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Zero(t, d.Granted)
	})
}
