package script_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/headgate-go/headgate/internal/script"
	"github.com/headgate-go/headgate/internal/trace"

	"github.com/stretchr/testify/require"
)

// batch draws groups of different keys with takes in order, runs of equal
// costs among them.
func batch(s *trace.Steps, r *rand.Rand) []*script.Group {
	var groups []*script.Group
	seen := map[string]bool{}
	for range 1 + r.IntN(6) {
		q := s.Next()
		if seen[q.Key] {
			continue
		}
		seen[q.Key] = true
		g := &script.Group{Op: q.Op, Key: q.Key, Policies: q.Policies, Hash: script.DefaultPrefix.Hash(script.Tag(q.Key, ""))}
		for more := true; more; more = r.IntN(4) > 0 && q.Op != backend.Reset {
			t := q.Group
			if r.IntN(2) == 0 && len(g.Takes) > 0 {
				t = g.Takes[len(g.Takes)-1].Group // a run
			} else if r.IntN(2) == 0 && q.Op != backend.Reset {
				t.Costs, t.Cost = nil, 1
			}
			t.Each, t.Charge = make([]backend.State, len(t.Policies)), &backend.Charge{}
			g.Takes = append(g.Takes, script.Take{Group: t})
		}
		groups = append(groups, g)
	}
	return groups
}

// TestBatchesDecideInOrder: many groups of many takes in one EVALSHA answer
// as the same calls one after the other at one instant.
func TestBatchesDecideInOrder(t *testing.T) {
	server := redistest.Start(t)
	s := trace.New(uint64(time.Now().UnixNano()))
	r := rand.New(rand.NewPCG(1, 2))
	model := trace.NewModel(s.Now)
	runner := script.NewServer(script.Virtual{Client: server.Client(t), Now: func() time.Time { return time.UnixMicro(s.Now()) }}, "node", &backend.Hub{}, 10*time.Second)
	ctx := context.Background()
	for i := range 10_000 {
		groups := batch(s, r)
		require.NoError(t, runner.Run(ctx, groups))
		for _, g := range groups {
			for j := range g.Takes {
				got := &g.Takes[j]
				want := trace.Ask(ctx, model, backend.Request{Op: g.Op, Group: got.Group})
				got.Decision.Charge = nil
				answer := trace.Answer{Decision: got.Decision, Each: got.Each, Charge: *got.Charge, Err: got.Err}
				// Ask fills buffers of its own; got's were filled by Run.
				require.NoError(t, trace.Same(want, answer), "batch %d at %d: %v take %d of %d, %+v", i, s.Now(), g.Op, j, len(g.Takes), got.Group)
			}
		}
	}
	server.NoImmortals(t, "")
}

func policy(a algo.Algorithm) []backend.Policy {
	return []backend.Policy{{Name: "p", Algorithm: a, OnFailure: backend.FailClosed}}
}

func group(key string, cost int64, ps []backend.Policy) *script.Group {
	return &script.Group{Op: backend.Take, Key: key, Hash: script.DefaultPrefix.Hash(key), Policies: ps,
		Takes: []script.Take{{Group: backend.Group{Key: key, Policies: ps, Cost: cost}}}}
}

// TestGarbageFailsAlone: of a batch, only the group that met a value that is
// not ours fails.
func TestGarbageFailsAlone(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	ps := policy(algo.TokenBucket(algo.PerSecond(5), 5))
	runner := script.NewServer(client, "node", &backend.Hub{}, time.Second)
	require.NoError(t, client.Set(ctx, script.DefaultPrefix.Hash("b"), "not a hash", 0).Err())
	groups := []*script.Group{group("a", 1, ps), group("b", 1, ps), group("c", 1, ps)}
	require.NoError(t, runner.Run(ctx, groups))
	require.True(t, groups[0].Takes[0].Decision.Allowed)
	require.True(t, groups[2].Takes[0].Decision.Allowed)
	var corrupt *backend.CorruptError
	require.ErrorAs(t, groups[1].Takes[0].Err, &corrupt)
	require.Equal(t, "b", corrupt.Key)
	require.Equal(t, "not a hash", client.Get(ctx, script.DefaultPrefix.Hash("b")).Val())
}

// garbage are stored values of the right length with wrong insides.
func garbage(v string) map[string]string {
	nan := "\x00\x00\x00\x00\x00\x00\xf8\x7f"
	return map[string]string{
		"empty":    "",
		"short":    v[:len(v)-1],
		"text":     strings.Repeat("x", len(v)),
		"version":  "\x02" + v[1:],
		"zeros":    strings.Repeat("\x00", len(v)),
		"NaN":      v[:len(v)-8] + nan,
		"negative": v[:len(v)-1] + "\xc0",
		"fraction": v[:len(v)-8] + "\x00\x00\x00\x00\x00\x00\xe0\x3f",
	}
}

// TestGarbageIsLeft: whatever lies where a state should, it is named and left
// as it was.
func TestGarbageIsLeft(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	runner := script.NewServer(client, "node", &backend.Hub{}, time.Second)
	l := algo.PerHour(10)
	for _, a := range []algo.Algorithm{algo.FixedWindow(l), algo.SlidingWindow(l), algo.TokenBucket(l, 10)} {
		ps := policy(a)
		g := group(a.Kind().String(), 1, ps)
		require.NoError(t, runner.Run(ctx, []*script.Group{g}))
		require.NoError(t, g.Takes[0].Err)
		field := client.HKeys(ctx, g.Hash).Val()[0]
		good := client.HGet(ctx, g.Hash, field).Val()
		for name, v := range garbage(good) {
			t.Run(fmt.Sprint(a.Kind(), "/", name), func(t *testing.T) {
				client.HSet(ctx, g.Hash, field, v)
				g := group(g.Key, 1, ps)
				require.NoError(t, runner.Run(ctx, []*script.Group{g}))
				var corrupt *backend.CorruptError
				require.ErrorAs(t, g.Takes[0].Err, &corrupt)
				require.Equal(t, v, client.HGet(ctx, g.Hash, field).Val())
			})
		}
	}
}

// TestLaterReleasesMayAppend: what stands behind a state is read past, alone
// and in a set.
func TestLaterReleasesMayAppend(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	runner := script.NewServer(client, "node", &backend.Hub{}, time.Second)
	l := algo.PerHour(10)
	var set []backend.Policy
	for _, a := range []algo.Algorithm{algo.FixedWindow(l), algo.SlidingWindow(l), algo.TokenBucket(l, 10)} {
		set = append(set, backend.Policy{Name: a.Kind().String(), Algorithm: a})
	}
	g := group("k", 3, set)
	require.NoError(t, runner.Run(ctx, []*script.Group{g}))
	for f, v := range client.HGetAll(ctx, g.Hash).Val() {
		client.HSet(ctx, g.Hash, f, v+"more")
	}
	for i := range set {
		g := group("k", 1, set[i:i+1])
		g.Op = backend.Peek
		require.NoError(t, runner.Run(ctx, []*script.Group{g}))
		require.NoError(t, g.Takes[0].Err)
		require.EqualValues(t, 3, g.Takes[0].Decision.Used)
	}
	g = group("k", 1, set)
	require.NoError(t, runner.Run(ctx, []*script.Group{g}))
	require.NoError(t, g.Takes[0].Err)
	require.EqualValues(t, 4, g.Takes[0].Decision.Used)
}

// TestScriptRefuses: what a client of another make could send is refused by
// the script itself, and stores nothing.
func TestScriptRefuses(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	runner := script.NewServer(client, "node", &backend.Hub{}, time.Second)
	good := policy(algo.FixedWindow(algo.PerSecond(5)))
	three := []backend.Policy{
		{Name: "a", Algorithm: algo.FixedWindow(algo.PerSecond(5))},
		{Name: "b", Algorithm: algo.TokenBucket(algo.PerSecond(5), 5)},
		{Name: "c", Algorithm: algo.SlidingLog(algo.PerSecond(5))},
	}
	for name, g := range map[string]*script.Group{
		"cost above limit": group("k", 6, good),
		"cost 0":           group("k", 0, good),
		"cost negative":    group("k", -1, good),
		"limit":            group("k", 1, policy(algo.FixedWindow(algo.PerSecond(1<<32)))),
		"period":           group("k", 1, policy(algo.SlidingWindow(algo.Per(5, time.Microsecond)))),
		"long period":      group("k", 1, policy(algo.SlidingLog(algo.Per(5, 2*algo.MaxPeriod)))),
		"buckets":          group("k", 1, policy(algo.BucketedWindow(algo.PerSecond(5), 1))),
		"algorithm":        group("k", 1, policy(algo.Algorithm{})),
		"set above limit":  group("k", 6, three[:2]),
		"set with a log":   group("k", 6, three),
	} {
		require.NoError(t, runner.Run(ctx, []*script.Group{g}), name)
		var invalid *backend.InvalidError
		require.ErrorAs(t, g.Takes[0].Err, &invalid, name)
		require.Empty(t, client.Keys(ctx, "*").Val(), name)
	}
}

// TestPruningIsBounded: a log whose calls all expired at once is neither
// pruned at once nor counted.
func TestPruningIsBounded(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	now := time.UnixMicro(trace.Start)
	runner := script.NewServer(script.Virtual{Client: client, Now: func() time.Time { return now }}, "node", &backend.Hub{}, 10*time.Second)
	ps := policy(algo.SlidingLog(algo.PerMinute(2000)))
	take := func(at time.Time) backend.Decision {
		now = at
		g := group("k", 1, ps)
		require.NoError(t, runner.Run(ctx, []*script.Group{g}))
		return g.Takes[0].Decision
	}
	for i := range 1000 {
		take(time.UnixMicro(trace.Start + int64(i)))
	}
	take(time.UnixMicro(trace.Start).Add(30 * time.Second))
	d := take(time.UnixMicro(trace.Start).Add(61 * time.Second))
	require.EqualValues(t, 2, d.Used)
	require.EqualValues(t, 1002-128, client.ZCard(ctx, script.DefaultPrefix.Hash("k")+":log:p").Val())
}
