package batch_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/trace"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// draw returns groups of different keys with takes in order, runs of equal costs among
// them, and runs of groups that ask alike.
func draw(s *trace.Steps, r *rand.Rand) []*batch.Asked {
	var groups []*batch.Asked
	seen := map[string]bool{}
	for range 1 + r.IntN(6) {
		q := s.Next()
		if seen[q.Key] {
			continue
		}
		seen[q.Key] = true
		if n := len(groups); n > 0 && r.IntN(2) == 0 {
			groups = append(groups, alike(groups[n-1], q.Key))
			continue
		}
		g := &batch.Asked{Op: q.Op, Key: q.Key, Policies: q.Policies, Hash: names.DefaultPrefix.Hash(names.Tag(q.Key, ""))}
		for more := true; more; more = r.IntN(4) > 0 && q.Op != backend.Reset && q.Op != backend.Return {
			t := q.Group
			if r.IntN(2) == 0 && len(g.Takes) > 0 {
				t = g.Takes[len(g.Takes)-1].Group // a run
			} else if r.IntN(2) == 0 && q.Op != backend.Reset {
				t.Costs, t.Cost, t.Run, t.UpTo = nil, 1, 0, false
			}
			g.Takes = append(g.Takes, batch.Answer{Group: fresh(t)})
		}
		groups = append(groups, g)
	}
	return groups
}

// alike asks for another key what g asks.
func alike(g *batch.Asked, key string) *batch.Asked {
	h := &batch.Asked{Op: g.Op, Key: key, Policies: g.Policies, Hash: names.DefaultPrefix.Hash(names.Tag(key, ""))}
	for i := range g.Takes {
		t := g.Takes[i].Group
		t.Key = key
		h.Takes = append(h.Takes, batch.Answer{Group: fresh(t)})
	}
	return h
}

// fresh gives a group buffers of its own for the answer.
func fresh(g backend.Group) backend.Group {
	g.Each = make([]backend.State, len(g.Policies))
	return g
}

// TestBatchesDecideInOrder: many groups of many takes in one EVALSHA answer
// as the same calls one after the other at one instant.
func TestBatchesDecideInOrder(t *testing.T) {
	server := redistest.Start(t)
	s := trace.New(redistest.Seed(t))
	r := rand.New(rand.NewPCG(1, 2))
	model := trace.NewModel(s.Now)
	runner := batch.Alone(clock.Client{Processor: server.Client(t), Now: func() time.Time { return time.UnixMicro(s.Now()) }}, &layer.Shared{}, 10*time.Second)
	ctx := context.Background()
	for i := range redistest.Steps(2_500, 10_000) {
		groups := draw(s, r)
		require.NoError(t, runner.Run(ctx, groups))
		for _, g := range groups {
			for j := range g.Takes {
				got := &g.Takes[j]
				want := trace.Ask(ctx, model, backend.Request{Op: g.Op, Group: got.Group})
				answer := trace.Answer{Decision: got.Decision, Each: got.Each, Err: got.Err}
				// Ask fills buffers of its own; got's were filled by Run.
				require.NoError(t, trace.Same(want, answer), "batch %d at %d: %v take %d of %d, %+v", i, s.Now(), g.Op, j, len(g.Takes), got.Group)
			}
		}
	}
	server.NoImmortals(t)
}

func policy(a algo.Algorithm) []backend.Policy {
	return []backend.Policy{{Name: "p", Algorithm: a, OnFailure: backend.FailClosed}}
}

func group(key string, cost int64, ps []backend.Policy) *batch.Asked {
	return &batch.Asked{Op: backend.Take, Key: key, Hash: names.DefaultPrefix.Hash(names.Tag(key, "")), Policies: ps,
		Takes: takes(key, []int64{cost}, ps)}
}

func takes(key string, costs []int64, ps []backend.Policy) (all []batch.Answer) {
	for _, cost := range costs {
		all = append(all, batch.Answer{Group: backend.Group{Key: key, Policies: ps, Cost: cost}})
	}
	return all
}

// TestScriptRefuses: what a client of another make could send is refused by
// the script itself, and stores nothing.
func TestScriptRefuses(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	runner := batch.Alone(client, &layer.Shared{}, time.Second)
	good := policy(algo.FixedWindow(algo.PerSecond(5)))
	three := []backend.Policy{
		{Name: "a", Algorithm: algo.FixedWindow(algo.PerSecond(5))},
		{Name: "b", Algorithm: algo.TokenBucket(algo.PerSecond(5), 5)},
		{Name: "c", Algorithm: algo.SlidingLog(algo.PerSecond(5))},
	}
	for name, g := range map[string]*batch.Asked{
		"cost above limit": group("k", 6, good),
		"cost 0":           group("k", 0, good),
		"cost negative":    group("k", -1, good),
		"limit":            group("k", 1, policy(algo.FixedWindow(algo.PerSecond(algo.MaxCount+1)))),
		"period":           group("k", 1, policy(algo.SlidingWindow(algo.Per(5, time.Microsecond)))),
		"long period":      group("k", 1, policy(algo.SlidingLog(algo.Per(5, 2*algo.MaxPeriod)))),
		"buckets":          group("k", 1, policy(algo.BucketedWindow(algo.PerSecond(5), 1))),
		"algorithm":        group("k", 1, policy(algo.Algorithm{})),
		"set above limit":  group("k", 6, three[:2]),
		"set with a log":   group("k", 6, three),
		"set of nothing":   group("k", 0, three[:2]),
		"log and nothing":  group("k", 0, three),
	} {
		again := alike(g, "l")
		require.NoError(t, runner.Run(ctx, []*batch.Asked{g, again}), name)
		var invalid *backend.InvalidError
		require.ErrorAs(t, g.Takes[0].Err, &invalid, name)
		require.ErrorAs(t, again.Takes[0].Err, &invalid, name)
		require.Empty(t, client.Keys(ctx, "*").Val(), name)
	}
}

// TestFullServerRefuses: with no memory left nothing is stored, neither states nor logs,
// in a list of one policy or of several.
func TestFullServerRefuses(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	runner := batch.Alone(client, &layer.Shared{}, time.Second)
	logs := policy(algo.SlidingLog(algo.PerMinute(5)))
	both := append([]backend.Policy{{Name: "f", Algorithm: algo.FixedWindow(algo.PerMinute(5))}}, logs...)
	require.NoError(t, runner.Run(ctx, []*batch.Asked{group("old", 1, logs)}))
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	for _, ps := range [][]backend.Policy{logs, both, both[:1]} {
		require.ErrorIs(t, runner.Run(ctx, []*batch.Asked{group("new", 1, ps)}), backend.ErrUnavailable)
	}
	require.EqualValues(t, 1, client.DBSize(ctx).Val())
}

// TestDeniedStateOutlivesItsDenial: a level that denies by a lowered rate lives
// for as long as it counts by that one.
func TestDeniedStateOutlivesItsDenial(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	runner := batch.Alone(client, &layer.Shared{}, time.Second)
	fast := policy(algo.TokenBucket(algo.Per(10, time.Second), 10))
	slow := policy(algo.TokenBucket(algo.Per(10, algo.MaxPeriod/2), 10))
	other := backend.Policy{Name: "other", Algorithm: algo.FixedWindow(algo.PerDay(5))}
	log := backend.Policy{Name: "log", Algorithm: algo.SlidingLog(algo.PerDay(5))}
	for shape, more := range map[string][]backend.Policy{"alone": nil, "in a set": {other}, "with a log": {log}} {
		require.NoError(t, runner.Run(ctx, []*batch.Asked{group(shape, 10, fast)}))
		g := group(shape, 1, append(slices.Clone(slow), more...))
		g.Takes[0].Costs = []int64{10, 1}[:len(g.Policies)]
		require.NoError(t, runner.Run(ctx, []*batch.Asked{g}))
		require.NoError(t, g.Takes[0].Err)
		require.False(t, g.Takes[0].Decision.Allowed, shape)
		require.GreaterOrEqual(t, client.PTTL(ctx, g.Hash).Val(), g.Takes[0].Decision.RetryAfter, shape)
		fields := client.HGetAll(ctx, g.Hash).Val()
		require.Len(t, fields, 1, "a denied set stores nothing")
		kept := binary.LittleEndian.Uint32([]byte(fields["t/p"][1:]))
		require.Greater(t, time.Until(time.Unix(int64(kept), 0)), g.Takes[0].Decision.RetryAfter, "and no sweep removes it")
	}
}

// TestRightsOfASet: a user who may write one of two keys writes neither.
func TestRightsOfASet(t *testing.T) {
	for _, missing := range []string{"-hset", "-zadd", "-pexpire"} {
		server := redistest.Start(t)
		admin, ctx := server.Client(t), context.Background()
		require.NoError(t, admin.Do(ctx, "acl", "setuser", "u", "on", ">p", "~*", "+@all", missing).Err())
		client := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "u", "p" })
		runner := batch.Alone(client, &layer.Shared{}, time.Second)
		both := append(policy(algo.SlidingLog(algo.PerMinute(5))), backend.Policy{Name: "f", Algorithm: algo.FixedWindow(algo.PerMinute(5))})
		require.Error(t, runner.Run(ctx, []*batch.Asked{group("k", 1, both)}), missing)
		require.Zero(t, admin.DBSize(ctx).Val(), missing)
	}
}

// TestPruningIsBounded: a log whose calls all expired at once is neither
// pruned at once nor counted.
func TestPruningIsBounded(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	now := time.UnixMicro(trace.Start)
	runner := batch.Alone(clock.Client{Processor: client, Now: func() time.Time { return now }}, &layer.Shared{}, 10*time.Second)
	ps := policy(algo.SlidingLog(algo.PerMinute(2000)))
	take := func(at time.Time) backend.Decision {
		now = at
		g := group("k", 1, ps)
		require.NoError(t, runner.Run(ctx, []*batch.Asked{g}))
		return g.Takes[0].Decision
	}
	for i := range 1000 {
		take(time.UnixMicro(trace.Start + int64(i)))
	}
	take(time.UnixMicro(trace.Start).Add(30 * time.Second))
	d := take(time.UnixMicro(trace.Start).Add(61 * time.Second))
	require.EqualValues(t, 2, d.Used)
	require.EqualValues(t, 1002-128, client.ZCard(ctx, names.DefaultPrefix.Hash("k")+":log:1m/p").Val())
}

// verdicts is a guard that notes what it receives.
type verdicts struct {
	late atomic.Int64 // answers
	mu   sync.Mutex
	all  []error
}

func (v *verdicts) Enter(string) (func(error), error) {
	return func(x error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.all = append(v.all, x)
	}, nil
}

func (v *verdicts) Awaits(string) bool { return false }
func (v *verdicts) Full(backend.Full)  {}

func (v *verdicts) Answered(string) { v.late.Add(1) }

func (v *verdicts) Gone(string) {}

func (v *verdicts) Batch(backend.Batch, time.Duration) {}

// left returns how many round trips have left.
func (v *verdicts) left() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.all)
}

func (v *verdicts) count(x error) (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, y := range v.all {
		if errors.Is(y, x) {
			n++
		}
	}
	return n
}

// TestAFullPoolIsExcused: of calls that wait for the one connection of a
// client, while it waits for a slow answer, the node is not blamed.
func TestAFullPoolIsExcused(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := server.Client(t, func(o *redis.Options) { o.Addr, o.PoolSize, o.PoolTimeout = proxy.Addr(), 1, time.Minute })
	v, hub := &verdicts{}, &layer.Shared{}
	hub.SetGuard(v)
	ps := policy(algo.FixedWindow(algo.PerMinute(5)))
	warm := batch.Alone(client, hub, 10*time.Second)
	require.NoError(t, warm.Run(context.Background(), []*batch.Asked{group("warm", 1, ps)}))
	runner := batch.Alone(client, hub, 200*time.Millisecond)
	proxy.Set(redistest.Delay(150 * time.Millisecond))
	var running sync.WaitGroup
	for i := range 8 {
		running.Add(1)
		go func() {
			defer running.Done()
			_ = runner.Run(context.Background(), []*batch.Asked{group(fmt.Sprint(i), 1, ps)})
		}()
	}
	running.Wait()
	require.Positive(t, v.count(layer.ErrExcused))
	require.LessOrEqual(t, v.count(layer.ErrFailed), 1, "at most the one that was sent last")
}

// deaf is a client that returns when it pleases, whatever context it is given.
type deaf struct{ until chan struct{} }

func (d deaf) Process(context.Context, redis.Cmder) error {
	<-d.until
	return nil
}

// TestTripsOutliveTheirCallers: the node is judged by the budget, not by the
// caller that left sooner, and once. A process that is late by itself excuses the node, so
// that a busy machine tries again.
func TestTripsOutliveTheirCallers(t *testing.T) {
	for range 5 {
		if outlives(t) == layer.ErrFailed {
			return
		}
	}
	t.Error("the node was never judged")
}

// outlives returns how the node is judged whose caller leaves before the budget ends.
func outlives(t *testing.T) (verdict error) {
	const budget = 500 * time.Millisecond
	v, hub := &verdicts{}, &layer.Shared{}
	hub.SetGuard(v)
	client := deaf{make(chan struct{})}
	runner := batch.Alone(client, hub, budget)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	begin := time.Now()
	err := runner.Run(ctx, []*batch.Asked{group("k", 1, policy(algo.FixedWindow(algo.PerMinute(5))))})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begin), batch.Deadline(0, budget), "the caller waits for nobody")
	require.Eventually(t, func() bool { return v.count(layer.ErrFailed)+v.count(layer.ErrExcused) == 1 }, 10*time.Second, time.Millisecond)
	close(client.until)
	require.Never(t, func() bool { return len(v.all) > 1 }, 50*time.Millisecond, 10*time.Millisecond)
	require.Eventually(t, func() bool { return v.late.Load() == 1 }, 10*time.Second, time.Millisecond, "the answer shows that the node is there")
	if v.count(layer.ErrFailed) == 1 {
		return layer.ErrFailed
	}
	return layer.ErrExcused
}

// TestExpiryOnlyGrows: a short policy does not cut the life of a long one
// that lies under the same key.
func TestExpiryOnlyGrows(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	runner := batch.Alone(client, &layer.Shared{}, time.Second)
	long := []backend.Policy{{Name: "long", Algorithm: algo.FixedWindow(algo.PerDay(5))}}
	short := []backend.Policy{{Name: "short", Algorithm: algo.FixedWindow(algo.Per(1000, time.Millisecond))}}
	require.NoError(t, runner.Run(ctx, []*batch.Asked{group("k", 1, long)}))
	for range 5 {
		require.NoError(t, runner.Run(ctx, []*batch.Asked{group("k", 1, short)}))
	}
	require.Greater(t, client.PTTL(ctx, names.DefaultPrefix.Hash("k")).Val(), 2*time.Hour)

	// And the other way round, nothing that counts outlives its key.
	require.NoError(t, runner.Run(ctx, []*batch.Asked{group("j", 1, short)}))
	require.Less(t, client.PTTL(ctx, names.DefaultPrefix.Hash("j")).Val(), time.Minute)
	require.NoError(t, runner.Run(ctx, []*batch.Asked{group("j", 1, long)}))
	require.Greater(t, client.PTTL(ctx, names.DefaultPrefix.Hash("j")).Val(), 2*time.Hour)

	// A key that lost its expiry gets one again, by a new count and by a known one.
	for _, l := range []algo.Limit{algo.PerMinute(5), algo.PerDay(5)} {
		require.NoError(t, client.Persist(ctx, names.DefaultPrefix.Hash("j")).Err())
		third := []backend.Policy{{Name: "third", Algorithm: algo.TokenBucket(l, 5)}}
		require.NoError(t, runner.Run(ctx, []*batch.Asked{group("j", 1, third)}))
		require.Positive(t, client.PTTL(ctx, names.DefaultPrefix.Hash("j")).Val())
	}
}

// TestFieldsOfOthersLeave: also where the list that stays in use never stores one of its
// own fields. The key may have more fields than a call looks at.
func TestFieldsOfOthersLeave(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	now := time.UnixMicro(trace.Start)
	runner := batch.Alone(clock.Client{Processor: client, Now: func() time.Time { return now }}, &layer.Shared{}, time.Second)
	mine := []backend.Policy{{Name: "calls", Algorithm: algo.FixedWindow(algo.PerHour(1e9))}, {Name: "tokens", Algorithm: algo.FixedWindow(algo.PerHour(9))}}
	for _, fields := range []int{1, 300} {
		key := fmt.Sprint(fields)
		for i := range fields {
			gone := []backend.Policy{{Name: fmt.Sprint("gone", i), Algorithm: algo.FixedWindow(algo.Per(9, 7*24*time.Hour))}}
			require.NoError(t, runner.Run(ctx, []*batch.Asked{group(key, 1, gone)}))
		}
		for range 30 {
			g := group(key, 0, mine)
			g.Takes[0].Costs = []int64{1, 0}
			require.NoError(t, runner.Run(ctx, []*batch.Asked{g}))
			require.True(t, g.Takes[0].Decision.Allowed)
			now = now.Add(24 * time.Hour)
		}
		require.Equal(t, []string{"f1h/calls"}, client.HKeys(ctx, names.DefaultPrefix.Hash(key)).Val())
	}
}
