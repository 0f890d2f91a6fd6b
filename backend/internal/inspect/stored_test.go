package inspect_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/backend/internal/inspect"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// TestNamesAreRead: what is stored of a key is found again, as policies of the
// same names and identities, whatever the key is.
func TestNamesAreRead(t *testing.T) {
	server := redistest.Start(t)
	c, ctx := server.Client(t), t.Context()
	set := batch.Settings{Prefix: names.DefaultPrefix, Shared: &layer.Shared{}, Budget: time.Second}
	q := batch.NewQueue(batch.NewServer(c, "node", set), nil)
	n := inspect.Node{Client: c, Prefix: names.DefaultPrefix}
	var policies []backend.Policy
	for _, period := range []time.Duration{time.Millisecond, 90 * time.Second, time.Hour, 24 * time.Hour, 1500 * time.Microsecond} {
		l := algo.Per(10, period)
		for i, a := range []algo.Algorithm{algo.FixedWindow(l), algo.SlidingWindow(l), algo.BucketedWindow(l, 7), algo.SlidingLog(l)} {
			policies = append(policies, backend.Policy{Name: fmt.Sprint("p_", i, "-", period.Microseconds()), Algorithm: a})
		}
	}
	policies = append(policies, backend.Policy{Name: "bucket", Algorithm: algo.TokenBucket(algo.PerDay(10), 10)})
	for i, every := range []algo.CivilPeriod{algo.Day(), algo.Week(0), algo.Month(31)} {
		zone := time.FixedZone([]string{"UTC", "America/Argentina/Ushuaia", "+05:30"}[i], 0)
		policies = append(policies, backend.Policy{Name: fmt.Sprint("civil", i), Algorithm: algo.Calendar(10, every, zone)})
	}
	keys := []string{"user:42", "user:4", "a{b}c", "~m", "stars*?[a-c]\\^x", "a b", "\xff", strings.Repeat("x", 80)}
	for _, key := range keys {
		r := &backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Policies: policies, Cost: 1}}
		var d backend.Decision
		require.NoError(t, q.Do(ctx, names.Tag(key, ""), 0, r, &d))
	}
	for _, key := range keys {
		parts := inspect.Parts{}
		require.NoError(t, parts.Add(ctx, n, key))
		require.NoError(t, parts.Add(ctx, n, key), "a name that comes twice")
		all := parts.Sorted()
		require.Len(t, all, 1, key)
		require.Empty(t, all[0].Unknown)
		require.Equal(t, identities(policies), identities(all[0].Policies), key)
	}
}

func identities(policies []backend.Policy) map[string]rule.Identity {
	all := map[string]rule.Identity{}
	for _, p := range policies {
		all[p.Name] = p.Algorithm.Identity()
	}
	return all
}

// TestNamesThatAreNotOurs: none of them is taken for a count.
func TestNamesThatAreNotOurs(t *testing.T) {
	for _, field := range []string{"", "f", "f/a", "f60s/a", "f1m", "f1m/a b", "f1m/", "f1m/10/a", "b1h/a", "b1h/01/a", "b1h/1000/a", "t1m/a", "ta", "x1m/a", "f1m/a/b", "f-1m/a", "f0m/a", "f99999d/a", "c/a", "cUTC/a", "cd/a", "cd1/UTC/a", "cm/UTC/a", "cm0/UTC/a", "cm01/UTC/a", "cw7/UTC/a", "cd/Local/a", "cd/a b/a", "c1d/UTC/a", "fd/UTC/a"} {
		_, ok := names.Field(field)
		require.False(t, ok, field)
	}
	for _, name := range []string{"", "headgate:", "headgate:{", "headgate:a", "other:{a}", "headgate:{~}", "headgate:{~a}"} {
		_, _, ok := names.DefaultPrefix.Key(name)
		require.False(t, ok, name)
	}
	server := redistest.Start(t)
	c, ctx := server.Client(t), t.Context()
	require.NoError(t, c.Set(ctx, "headgate:{a}", "text", 0).Err())
	require.NoError(t, c.Set(ctx, "headgate:{a}:log:60s/a", "text", 0).Err())
	require.NoError(t, c.HSet(ctx, "headgate:{~a~s}", "z1m/a", "text").Err())
	parts := inspect.Parts{}
	require.NoError(t, parts.Add(ctx, inspect.Node{Client: c, Prefix: names.DefaultPrefix}, "a"))
	require.Equal(t, []backend.Stored{
		{Unknown: []string{"headgate:{a}:log:60s/a", "headgate:{a}"}},
		{Sub: "s", Unknown: []string{"headgate:{~a~s} z1m/a"}},
	}, parts.Sorted())
}
