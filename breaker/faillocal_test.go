package breaker_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/breaker"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestImpatientFailLocal: a caller whose deadline ended while the reply was
// awaited has its process' share all the same.
func TestImpatientFailLocal(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer client.Close()
	p := policy
	p.OnFailure = headgate.FailLocal
	l, err := headgate.New(standalone.New(client, nil), []headgate.Policy{p}, &headgate.Options{Instances: 2})
	require.NoError(t, err)
	_, err = l.Allow(context.Background(), "warm")
	require.NoError(t, err)
	proxy.Set(redistest.SwallowReply(200 * time.Millisecond))
	var d headgate.Decision
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 40*time.Millisecond)
		defer cancel()
		d, err = l.Allow(ctx, "k")
		return err == nil // a busy machine may not send it in time
	}, 10*time.Second, time.Millisecond)
	require.True(t, d.Allowed)
	require.Equal(t, headgate.FromFailLocal, d.Source)
}

// TestRunFailsLocal: a run passes as far as there is room for in this process, and whole if the
// policies that fail local cost nothing.
func TestRunFailsLocal(t *testing.T) {
	local := backend.Policy{Name: "local", Algorithm: algo.FixedWindow(algo.Per(8, algo.MaxPeriod)), OnFailure: backend.FailLocal}
	open := backend.Policy{Name: "open", Algorithm: algo.FixedWindow(algo.Per(9, algo.MaxPeriod)), OnFailure: backend.FailOpen}
	s := breaker.New(gone{memory.New(nil)}, &breaker.Options{Local: memory.New(nil), Instances: 2})
	for _, c := range []struct{ local, open, run, passed int64 }{{1, 1, 3, 3}, {1, 0, 3, 1}, {0, 1, 3, 3}, {1, 1, 3, 0}} {
		r := backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Policies: []backend.Policy{local, open}, Costs: []int64{c.local, c.open}, Run: c.run, UpTo: true}}
		d, err := layer.Ask(context.Background(), s, r)
		require.NoError(t, s.Fail(context.Background(), &r, &d, err, nil))
		require.Equal(t, backend.FromFailLocal, d.Source)
		require.Equal(t, c.passed, d.Passed)
		require.Equal(t, c.passed > 0, d.Allowed)
	}
}

// gone is a store that decides nothing.
type gone struct{ backend.Store }

func (gone) Do(context.Context, *backend.Request, *backend.Decision) error {
	return backend.ErrUnavailable
}

// TestFailLocal: with the store gone each process has its share, and the
// strictest of a mixed set decides.
func TestFailLocal(t *testing.T) {
	server := redistest.Start(t)
	local := headgate.Policy{Name: "local", Algorithm: algo.FixedWindow(algo.Per(100, algo.MaxPeriod)), OnFailure: headgate.FailLocal}
	open := headgate.Policy{Name: "open", Algorithm: algo.FixedWindow(algo.Per(5, algo.MaxPeriod)), OnFailure: headgate.FailOpen}
	store := standalone.New(server.Client(t), nil)
	_, err := headgate.New(store, []headgate.Policy{local}, nil)
	var invalid *headgate.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "Options.Instances", invalid.What)
	l, err := headgate.New(store, []headgate.Policy{local, open}, &headgate.Options{Instances: 10})
	require.NoError(t, err)
	server.Kill()
	ctx := context.Background()
	for i := range 15 {
		d, err := l.Allow(ctx, "k")
		require.NoError(t, err)
		require.Equal(t, i < 10, d.Allowed, i)
		require.Equal(t, headgate.FromFailLocal, d.Source)
		require.ErrorIs(t, d.Err, headgate.ErrUnavailable)
		require.EqualValues(t, 10, d.Limit)
	}
	d, err := l.Do(ctx, headgate.Call{Key: "new", Costs: []int64{0, 1}})
	require.NoError(t, err)
	require.True(t, d.Allowed, "what costs nothing of the local policy asks for no share of it")
	again, err := headgate.New(store, []headgate.Policy{local}, &headgate.Options{Instances: 10})
	require.NoError(t, err)
	d, err = again.Allow(ctx, "k")
	require.NoError(t, err)
	require.False(t, d.Allowed, "limiters on one store share the local count")

	d, err = l.AllowN(ctx, "other", 5)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	closed, err := l.OnFailure(headgate.FailClosed)
	require.NoError(t, err)
	d, err = closed.Allow(ctx, "fresh")
	require.NoError(t, err)
	require.Equal(t, headgate.FromFailClosed, d.Source)
}

// TestReservedFailsLocal: a Reserve under an ID that is open in this process passes again, and charges
// nothing. With other costs it is an error.
func TestReservedFailsLocal(t *testing.T) {
	ctx, local := context.Background(), policy
	local.Algorithm, local.OnFailure = algo.FixedWindow(algo.Per(7, algo.MaxPeriod)), headgate.FailLocal
	l, err := headgate.New(gone{memory.New(nil)}, []headgate.Policy{local}, &headgate.Options{Instances: 1})
	require.NoError(t, err)
	c := headgate.Call{Key: "k", ID: "job", Costs: []int64{4}}
	for range 3 {
		_, d, err := l.Reserve(ctx, c)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Equal(t, headgate.FromFailLocal, d.Source)
		require.ErrorIs(t, d.Err, headgate.ErrUnavailable)
		require.Zero(t, d.RetryAfter)
	}
	c.Costs = []int64{5}
	_, d, err := l.Reserve(ctx, c)
	require.ErrorAs(t, err, new(*headgate.InvalidError))
	require.Equal(t, headgate.Decision{}, d)
	d, err = l.AllowN(ctx, "k", 3)
	require.NoError(t, err)
	require.True(t, d.Allowed, "4 of 7 are reserved")
}

// TestFailLocalRate: the share of a TokenBucket is its rate / instances too, also where
// the events don't divide: 19/s among 10 is 1.9/s, and 5/s is one unit in 2 s.
func TestFailLocalRate(t *testing.T) {
	for _, c := range []struct{ rate, burst, instances int64 }{{19, 100, 10}, {5, 100, 10}} {
		a := algo.TokenBucket(algo.PerSecond(c.rate), c.burst)
		share := a.Share(1, c.instances)
		require.EqualValues(t, c.burst/c.instances, share.Max(), "the burst's share of %d/s", c.rate)
		minute := share.Worst(time.Minute) - share.Max()
		require.EqualValues(t, 60*c.rate/c.instances, minute, "units in a minute of %d/s", c.rate)
	}
}

// TestFailLocalSlowRate: a tenth of 5/s is one unit in 2 s, and of a burst of 100 it is 10.
func TestFailLocalSlowRate(t *testing.T) {
	server := redistest.Start(t)
	l, err := headgate.New(standalone.New(server.Client(t), nil), []headgate.Policy{{
		Name: "rate", Algorithm: algo.TokenBucket(algo.PerSecond(5), 100), OnFailure: headgate.FailLocal,
	}}, &headgate.Options{Instances: 10})
	require.NoError(t, err)
	server.Kill()
	d, err := l.Allow(context.Background(), "k")
	require.NoError(t, err)
	require.Equal(t, headgate.FromFailLocal, d.Source)
	require.True(t, d.Allowed, "a tenth of a burst of 100 is 10: %+v", d)
}

// TestFailLocalWithoutAShare: an algorithm that would leave each process nothing is
// refused, by New and by With, with both numbers. So no call of it is denied for good
// while the store is down.
func TestFailLocalWithoutAShare(t *testing.T) {
	day := func(n int64) algo.Limit { return algo.PerDay(n) }
	window := func(n int64) headgate.Policy { return headgate.Policy{Algorithm: algo.FixedWindow(day(n))} }
	for name, c := range map[string]struct {
		policy    headgate.Policy
		shards    int
		instances int
		most      string // "": accepted
	}{
		"FixedWindow":           {window(7), 0, 8, "at most 7,"},
		"FixedWindow, one each": {window(7), 0, 7, ""},
		"SlidingWindow":         {headgate.Policy{Algorithm: algo.SlidingWindow(day(7))}, 0, 8, "at most 7,"},
		"BucketedWindow":        {headgate.Policy{Algorithm: algo.BucketedWindow(day(7), 10)}, 0, 8, "at most 7,"},
		"SlidingLog":            {headgate.Policy{Algorithm: algo.SlidingLog(day(7))}, 0, 8, "at most 7,"},
		"CompactLog":            {headgate.Policy{Algorithm: algo.CompactLog(day(7))}, 0, 8, "at most 7,"},
		"Calendar":              {headgate.Policy{Algorithm: algo.Calendar(7, algo.Day(), time.UTC)}, 0, 8, "at most 7,"},
		"InFlight":              {headgate.Policy{Algorithm: algo.InFlight(7)}, 0, 8, "at most 7,"},
		"burst":                 {headgate.Policy{Algorithm: algo.TokenBucket(day(100), 7)}, 0, 8, "at most 7,"},
		"slow rate":             {headgate.Policy{Algorithm: algo.TokenBucket(day(1), 100)}, 0, 8, ""},
		"rate of nothing":       {headgate.Policy{Algorithm: algo.TokenBucket(algo.Per(7, algo.MaxPeriod), 100)}, 0, 8, "at most 7,"},
		"spread":                {window(100), 16, 8, "at most 7,"},
		"spread, one each":      {window(100), 16, 7, ""},
		"shadow":                {headgate.Policy{Algorithm: algo.FixedWindow(day(7)), Shadow: true}, 0, 8, ""},
		"shadow, no instances":  {headgate.Policy{Algorithm: algo.FixedWindow(day(7)), Shadow: true}, 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.policy.Name, c.policy.OnFailure = "p", headgate.FailLocal
			_, err := headgate.New(memory.New(nil), []headgate.Policy{c.policy}, &headgate.Options{Instances: c.instances, Shards: c.shards})
			open, failed := headgate.New(memory.New(nil), []headgate.Policy{policy}, &headgate.Options{Instances: c.instances})
			require.NoError(t, failed)
			l, with := open.With(c.policy)
			if with == nil {
				_, with = l.WithShards(c.shards)
			}
			for _, err := range []error{err, with} {
				if c.most == "" {
					require.NoError(t, err)
					continue
				}
				var invalid *headgate.InvalidError
				require.ErrorAs(t, err, &invalid)
				require.Equal(t, c.instances, invalid.Value)
				require.Contains(t, invalid.Want, c.most)
			}
		})
	}
}
