package headgate_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// invalid requires an *InvalidError about what, whose text has the value.
func invalid(t *testing.T, err error, what, value string) {
	t.Helper()
	var bad *headgate.InvalidError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, what, bad.What)
	require.Contains(t, err.Error(), value)
}

// TestBadStores: what is no store is refused where the limiter is made, and a
// store that nobody made answers no call.
func TestBadStores(t *testing.T) {
	type embedded struct{ *redis.Client }
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	several := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer several.Close()
	alone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer alone.Close()
	for name, c := range map[string]struct {
		store       backend.Store
		what, value string
	}{
		"nil":                          {nil, "store", "nil"},
		"nil memory":                   {(*memory.Store)(nil), "store", "nil"},
		"nil standalone":               {(*standalone.Store)(nil), "store", "nil"},
		"nil cluster":                  {(*cluster.Store)(nil), "store", "nil"},
		"nil func":                     {funcStore(nil), "store", "nil"},
		"zero standalone":              {&standalone.Store{}, "store", "zero standalone.Store"},
		"zero cluster":                 {&cluster.Store{}, "store", "zero cluster.Store"},
		"standalone on nil":            {standalone.New(nil, nil), "client", "nil"},
		"standalone on nil client":     {standalone.New((*redis.Client)(nil), nil), "client", "nil"},
		"standalone on nil own client": {standalone.New((*embedded)(nil), nil), "client", "nil"},
		"standalone on cluster":        {standalone.New(several, nil), "client", "*redis.ClusterClient"},
		"standalone on ring":           {standalone.New(ring, nil), "client", "*redis.Ring"},
		"standalone on pipeline":       {standalone.New(alone.Pipeline(), nil), "client", "Pipeline"},
		"cluster on nil":               {cluster.New(nil, nil), "client", "nil"},
		"cluster on nil client":        {cluster.New((*redis.ClusterClient)(nil), nil), "client", "nil"},
		"cluster on nil own client":    {cluster.New((*options)(nil), nil), "client", "nil"},
		"cluster on no options":        {cluster.New(options{}, nil), "addresses", "0"},
		"budget":                       {standalone.New(alone, &standalone.Options{Budget: time.Hour}), "budget", "1h"},
		"prefix":                       {standalone.New(alone, &standalone.Options{Prefix: "{"}), "prefix", "{"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := headgate.New(c.store, []headgate.Policy{perMinute}, nil)
			invalid(t, err, c.what, c.value)
			if strings.HasPrefix(c.value, "zero") {
				d, err := layer.Ask(context.Background(), c.store, backend.Request{Op: backend.Take,
					Group: backend.Group{Key: "k", Policies: []backend.Policy{perMinute}, Cost: 1}})
				invalid(t, err, c.what, c.value)
				require.Zero(t, d)
				_, err = c.store.(backend.Pinger).Ping(context.Background())
				invalid(t, err, c.what, c.value)
				c.store.(layer.Batcher).DoAll(context.Background(), make([]backend.Request, 1), make([]backend.Answer, 1))
				require.NoError(t, c.store.Close())
			}
		})
	}
}

type funcStore func()

func (funcStore) Check([]backend.Policy) error { return nil }
func (funcStore) Do(context.Context, *backend.Request, *backend.Decision) error {
	return nil
}
func (funcStore) Close() error { return nil }

func (funcStore) Capabilities() backend.Capabilities { return backend.Basic }

type options struct{ o *redis.ClusterOptions }

func (o options) Options() *redis.ClusterOptions { return o.o }

// TestZeroLimiter: a limiter that New did not make refuses every call, also a nil one.
func TestZeroLimiter(t *testing.T) {
	for what, l := range map[string]*headgate.Limiter{"zero": {}, "nil": nil} {
		t.Run(what, func(t *testing.T) { zeroLimiter(t, l) })
	}
}

func zeroLimiter(t *testing.T, l *headgate.Limiter) {
	ctx := context.Background()
	for name, call := range map[string]func() error{
		"Allow":       func() error { _, err := l.Allow(ctx, "k"); return err },
		"AllowN":      func() error { _, err := l.AllowN(ctx, "k", 2); return err },
		"AllowAtMost": func() error { _, err := l.AllowAtMost(ctx, "k", 2); return err },
		"Peek":        func() error { _, err := l.Peek(ctx, headgate.Call{Key: "k"}); return err },
		"Do":          func() error { _, err := l.Do(ctx, headgate.Call{Key: "k", Costs: []int64{1}}); return err },
		"Record":      func() error { _, err := l.Record(ctx, headgate.Call{Key: "k", Costs: []int64{1}}); return err },
		"Reserve":     func() error { _, _, err := l.Reserve(ctx, headgate.Call{Key: "k"}); return err },
		"Wait":        func() error { _, err := l.Wait(ctx, "k"); return err },
		"WaitReserve": func() error { _, _, err := l.WaitReserve(ctx, headgate.Call{Key: "k"}); return err },
		"All":         func() error { _, err := headgate.All(ctx, l.Part("k")); return err },
		"Reset":       func() error { return l.Reset(ctx, "k") },
		"Ping":        func() error { _, err := l.Ping(ctx); return err },
		"With":        func() error { _, err := l.With(perMinute); return err },
		"Costs":       func() error { _, err := l.Costs(nil, map[string]int64{"a": 1}); return err },
		"WithShards":  func() error { _, err := l.WithShards(2); return err },
		"WithBorrow":  func() error { _, err := l.WithBorrow(time.Second); return err },
		"OnFailure":   func() error { _, err := l.OnFailure(headgate.FailOpen); return err },
	} {
		t.Run(name, func(t *testing.T) { invalid(t, call(), "limiter", "zero") })
	}
	_, err := l.Resume("token")
	invalid(t, err, "token", "5")
	var none context.Context
	_, err = limiter(t, memory.New(nil), nil, perMinute).Ping(none)
	invalid(t, err, "context", "nil")
	require.Zero(t, l.Stats())
	require.Empty(t, l.Stats().Circuits)
	require.Empty(t, l.Policies())
}

// TestBadLists: numbers out of range are refused where the limiter is made.
func TestBadLists(t *testing.T) {
	with := func(f func(p *headgate.Policy)) []headgate.Policy {
		p := perMinute
		f(&p)
		return []headgate.Policy{p}
	}
	rule := func(a algo.Algorithm) []headgate.Policy { return with(func(p *headgate.Policy) { p.Algorithm = a }) }
	for name, c := range map[string]struct {
		policies    []headgate.Policy
		what, value string
	}{
		"no policy":           {nil, "policies", "0"},
		"65 policies":         {many(65), "policies", "65"},
		"limit 0":             {rule(algo.FixedWindow(algo.PerDay(0))), "limit", "0"},
		"limit -1":            {rule(algo.SlidingWindow(algo.PerDay(-1))), "limit", "-1"},
		"limit of a log":      {rule(algo.SlidingLog(algo.PerDay(algo.MaxLogLimit + 1))), "limit", "1000001"},
		"limit too high":      {rule(algo.FixedWindow(algo.PerDay(algo.MaxCount + 1))), "limit", fmt.Sprint(algo.MaxCount + 1)},
		"period too short":    {rule(algo.FixedWindow(algo.Per(1, time.Microsecond))), "period", "1µs"},
		"period too long":     {rule(algo.FixedWindow(algo.Per(1, algo.MaxPeriod+time.Microsecond))), "period", "9600h0m0.000001s"},
		"burst 0":             {rule(algo.TokenBucket(algo.PerDay(1), 0)), "burst", "0"},
		"burst too high":      {rule(algo.TokenBucket(algo.PerDay(1), algo.MaxLimit+1)), "burst", fmt.Sprint(algo.MaxLimit + 1)},
		"buckets 1":           {rule(algo.BucketedWindow(algo.PerDay(1), 1)), "buckets", "1"},
		"buckets too many":    {rule(algo.BucketedWindow(algo.PerDay(1), algo.MaxBuckets+1)), "buckets", fmt.Sprint(algo.MaxBuckets + 1)},
		"no algorithm":        {rule(algo.Algorithm{}), "algorithm", `"none": want one made by a function of package algo`},
		"no failure mode":     {with(func(p *headgate.Policy) { p.OnFailure = 0 }), "failure mode of policy api", `"not set": want FailOpen`},
		"a mode of none":      {with(func(p *headgate.Policy) { p.OnFailure = 9 }), "failure mode of policy api", "9"},
		"local, no instances": {with(func(p *headgate.Policy) { p.OnFailure = headgate.FailLocal }), "Options.Instances", "0: want at least 1, for FailLocal of policy api"},
		"two of one name":     {[]headgate.Policy{perMinute, perMinute}, "policy name", "api"},
		"a name with a space": {with(func(p *headgate.Policy) { p.Name = "a b" }), "policy name", "a b"},
		"no name":             {with(func(p *headgate.Policy) { p.Name = "" }), "policy name", `""`},
		"a route":             {with(func(p *headgate.Policy) { p.Name = "POST /v1/items" }), "policy name", "POST_v1_items"},
		"a long name":         {with(func(p *headgate.Policy) { p.Name = strings.Repeat("a", 65) }), "policy name", "aaaa"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, s := range []backend.Store{memory.New(nil), nowhere(t), nowhereAtAll(t)} {
				_, err := headgate.New(s, c.policies, nil)
				invalid(t, err, c.what, c.value)
			}
		})
	}
	for _, shards := range []int{-1, 101, 1025} {
		l, err := headgate.New(memory.New(nil), []headgate.Policy{perMinute}, &headgate.Options{Shards: shards})
		require.Nil(t, l)
		invalid(t, err, "shards", fmt.Sprint(shards))
	}
	_, err := headgate.New(memory.New(nil), []headgate.Policy{perMinute}, &headgate.Options{DenyCacheTTL: 2 * time.Second})
	invalid(t, err, "DenyCacheTTL", "2s")
}

func many(n int) (ps []headgate.Policy) {
	for i := range n {
		p := perMinute
		p.Name = fmt.Sprint("p", i)
		ps = append(ps, p)
	}
	return ps
}

func nowhere(t *testing.T) backend.Store {
	s, err := standalone.Open("redis://127.0.0.1:1", nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func nowhereAtAll(t *testing.T) backend.Store {
	s, err := cluster.Open([]string{"127.0.0.1:1"}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestBadCalls: a wrong call is a typed error that names the value, on every store, for
// keys that are plain, spread and borrowed, and changes no count.
func TestBadCalls(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	one, err := standalone.Open("redis://"+server.Addr(), &standalone.Options{Budget: 10 * time.Second})
	require.NoError(t, err)
	stores := map[string]backend.Store{"memory": memory.New(nil), "standalone": one}
	if !testing.Short() {
		stores["cluster"], err = cluster.Open(redistest.StartCluster(t).Addrs(), &cluster.Options{Budget: 10 * time.Second})
		require.NoError(t, err)
	}
	for name, s := range stores {
		for kind, opts := range map[string]*headgate.Options{"plain": nil, "spread": {Shards: 4}, "borrowed": {Borrow: 100 * time.Millisecond}} {
			t.Run(name+" "+kind, func(t *testing.T) {
				p := perMinute
				p.Name, p.Algorithm = kind, algo.FixedWindow(algo.Per(100, algo.MaxPeriod))
				l, err := headgate.New(s, []headgate.Policy{p}, opts)
				require.NoError(t, err)
				badCalls(t, l)
			})
		}
		require.NoError(t, s.Close())
		l, err := headgate.New(s, []headgate.Policy{perMinute}, nil)
		require.NoError(t, err)
		_, err = l.Allow(context.Background(), "k")
		require.ErrorIs(t, err, headgate.ErrClosed, name)
	}
}

func badCalls(t *testing.T, l *headgate.Limiter) {
	ctx, none := context.Background(), context.Context(nil)
	for range 3 {
		d, err := l.Allow(ctx, "k")
		require.NoError(t, err)
		require.True(t, d.Allowed, d.Err)
	}
	long := strings.Repeat("k", 4097)
	do := func(key string, costs []int64, each []headgate.State) error {
		_, err := l.Do(ctx, headgate.Call{Key: key, Costs: costs, Each: each})
		return err
	}
	call := func(ctx context.Context, key string, n int64) map[string]error {
		errs := map[string]error{}
		_, errs["AllowN"] = l.AllowN(ctx, key, n)
		_, errs["Do"] = l.Do(ctx, headgate.Call{Key: key, Costs: []int64{n}})
		_, errs["Peek"] = l.Peek(ctx, headgate.Call{Key: key, Costs: []int64{n}})
		_, _, errs["Reserve"] = l.Reserve(ctx, headgate.Call{Key: key, Costs: []int64{n}})
		_, errs["Wait"] = l.WaitCall(ctx, headgate.Call{Key: key, Costs: []int64{n}})
		_, errs["All"] = headgate.All(ctx, l.Part(key, n), l.Part("another"))
		if n <= 1 { // which may be above the limit
			_, errs["AllowAtMost"] = l.AllowAtMost(ctx, key, n)
			_, errs["Record"] = l.Record(ctx, headgate.Call{Key: key, Costs: []int64{n}})
		}
		if n == 1 {
			_, errs["Allow"] = l.Allow(ctx, key)
			errs["Reset"] = l.Reset(ctx, key)
		}
		return errs
	}
	for name, c := range map[string]struct {
		errs        map[string]error
		what, value string
	}{
		"nil context":     {call(none, "k", 1), "context", "nil"},
		"empty key":       {call(ctx, "", 1), "key", `""`},
		"long key":        {call(ctx, long, 1), "key", "4097 bytes"},
		"huge key":        {call(ctx, strings.Repeat("k", 64<<20), 1), "key", "67108864 bytes"},
		"cost -1":         {call(ctx, "k", -1), "cost", "-1: want 0 to "},
		"cost 101":        {call(ctx, "k", 101), "cost", "101"},
		"huge cost":       {call(ctx, "k", math.MaxInt64), "cost", "9223372036854775807"},
		"least cost":      {call(ctx, "k", math.MinInt64), "cost", "-9223372036854775808"},
		"no costs":        {map[string]error{"Do": do("k", []int64{}, nil)}, "costs", "0"},
		"two costs":       {map[string]error{"Do": do("k", []int64{1, 1}, nil)}, "costs", "2"},
		"room for 2 more": {map[string]error{"Do": do("k", []int64{1}, make([]headgate.State, 3))}, "len(Call.Each)", "3: want 1, a state per policy"},
	} {
		for verb, err := range c.errs {
			t.Run(name+" "+verb, func(t *testing.T) {
				invalid(t, err, c.what, c.value)
				require.Less(t, len(err.Error()), 200)
				if name == "cost 101" || name == "huge cost" {
					require.ErrorIs(t, err, headgate.ErrNeverAdmissible)
				}
			})
		}
	}
	free, err := l.AllowN(ctx, "k", 0)
	require.NoError(t, err)
	require.Equal(t, headgate.FromNone, free.Source)
	d, err := l.Allow(ctx, strings.Repeat("k", 4096))
	require.NoError(t, err)
	require.True(t, d.Allowed, d.Err)
	require.Eventually(t, func() bool { // no count changed, and what was lent is back
		d, err = l.Peek(ctx, headgate.Call{Key: "k"})
		return err == nil && d.Used == 3
	}, 10*time.Second, time.Millisecond, "%+v", &d)
}
