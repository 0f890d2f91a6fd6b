package batch_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/lua"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestGarbageFailsAlone: of a batch, only the group that met a value that is
// not ours fails.
func TestGarbageFailsAlone(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	ps := policy(algo.TokenBucket(algo.PerSecond(5), 5))
	runner := batch.Alone(client, &layer.Shared{}, time.Second)
	require.NoError(t, client.Set(ctx, names.DefaultPrefix.Hash("b"), "not a hash", 0).Err())
	groups := []*batch.Asked{group("a", 1, ps), group("b", 1, ps), group("c", 1, ps)}
	require.NoError(t, runner.Run(ctx, groups))
	require.True(t, groups[0].Takes[0].Decision.Allowed)
	require.True(t, groups[2].Takes[0].Decision.Allowed)
	var corrupt *backend.CorruptError
	require.ErrorAs(t, groups[1].Takes[0].Err, &corrupt)
	require.Equal(t, "b", corrupt.Key)
	require.Equal(t, "not a hash", client.Get(ctx, names.DefaultPrefix.Hash("b")).Val())
}

// TestGarbageSetsFailAlone: the same of several policies, wherever in the
// batch the group stands: what it had to say before it was refused is not said.
func TestGarbageSetsFailAlone(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	runner, l := batch.Alone(client, &layer.Shared{}, time.Second), algo.PerHour(5)
	for n := 2; n <= 4; n++ {
		ps := make([]backend.Policy, n)
		for i := range ps {
			ps[i] = backend.Policy{Name: fmt.Sprint(i), Algorithm: algo.FixedWindow(l), OnFailure: backend.FailClosed}
		}
		for bad := range 3 {
			require.NoError(t, client.FlushDB(ctx).Err())
			gs := []*batch.Asked{group("0", 1, ps), group("1", 1, ps), group("2", 1, ps)}
			last := fmt.Sprint("f1h/", n-1)
			client.HSet(ctx, gs[bad].Hash, last, "not ours")
			require.NoError(t, runner.Run(ctx, gs))
			for i, g := range gs {
				if i != bad {
					require.NoError(t, g.Takes[0].Err, "%d policies, group %d bad, group %d", n, bad, i)
					require.EqualValues(t, 1, g.Takes[0].Decision.Used)
					continue
				}
				var corrupt *backend.CorruptError
				require.ErrorAs(t, g.Takes[0].Err, &corrupt)
				require.Equal(t, map[string]string{last: "not ours"}, client.HGetAll(ctx, g.Hash).Val())
			}
		}
	}
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
	runner := batch.Alone(client, &layer.Shared{}, time.Second)
	l := algo.PerHour(10)
	for _, a := range []algo.Algorithm{algo.FixedWindow(l), algo.SlidingWindow(l), algo.TokenBucket(l, 10)} {
		ps := policy(a)
		g := group(a.Kind().String(), 1, ps)
		require.NoError(t, runner.Run(ctx, []*batch.Asked{g}))
		require.NoError(t, g.Takes[0].Err)
		field := client.HKeys(ctx, g.Hash).Val()[0]
		good := client.HGet(ctx, g.Hash, field).Val()
		for name, v := range garbage(good) {
			t.Run(fmt.Sprint(a.Kind(), "/", name), func(t *testing.T) {
				client.HSet(ctx, g.Hash, field, v)
				for _, op := range []backend.Op{backend.Take, backend.Peek} {
					for _, costs := range [][]int64{{1}, {1, 2}} {
						g, other := group(g.Key, costs[0], ps), group("other", 1, ps)
						g.Op, g.Takes = op, takes(g.Key, costs, ps)
						require.NoError(t, runner.Run(ctx, []*batch.Asked{g}))
						corrupted(t, g)
						require.NoError(t, runner.Run(ctx, []*batch.Asked{g, other}))
						corrupted(t, g)
						require.NoError(t, other.Takes[0].Err)
					}
				}
				require.Equal(t, v, client.HGet(ctx, g.Hash, field).Val())
			})
		}
	}
}

// corrupted requires that each take of the group has a CorruptError that names its key.
func corrupted(t *testing.T, g *batch.Asked) {
	t.Helper()
	for i := range g.Takes {
		var corrupt *backend.CorruptError
		require.ErrorAs(t, g.Takes[i].Err, &corrupt)
		require.Equal(t, g.Key, corrupt.Key)
	}
}

// TestLaterReleasesMayAppend: what stands behind a state is skipped, in a list of one
// policy and of several.
func TestLaterReleasesMayAppend(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	runner := batch.Alone(client, &layer.Shared{}, time.Second)
	l := algo.PerHour(10)
	var set []backend.Policy
	for _, a := range []algo.Algorithm{algo.FixedWindow(l), algo.SlidingWindow(l), algo.TokenBucket(l, 10)} {
		set = append(set, backend.Policy{Name: a.Kind().String(), Algorithm: a})
	}
	g := group("k", 3, set)
	require.NoError(t, runner.Run(ctx, []*batch.Asked{g}))
	for f, v := range client.HGetAll(ctx, g.Hash).Val() {
		client.HSet(ctx, g.Hash, f, v+"more")
	}
	for i := range set {
		g := group("k", 1, set[i:i+1])
		g.Op = backend.Peek
		require.NoError(t, runner.Run(ctx, []*batch.Asked{g}))
		require.NoError(t, g.Takes[0].Err)
		require.EqualValues(t, 3, g.Takes[0].Decision.Used)
	}
	g = group("k", 1, set)
	require.NoError(t, runner.Run(ctx, []*batch.Asked{g}))
	require.NoError(t, g.Takes[0].Err)
	require.EqualValues(t, 4, g.Takes[0].Decision.Used)
}

// TestResetOfWrongType names the key.
func TestResetOfWrongType(t *testing.T) {
	server := redistest.Start(t)
	client, ctx := server.Client(t), context.Background()
	runner := batch.Alone(client, &layer.Shared{}, time.Second)
	ps := policy(algo.FixedWindow(algo.PerMinute(5)))
	require.NoError(t, client.Set(ctx, names.DefaultPrefix.Hash("k"), "x", time.Hour).Err())
	g := group("k", 0, ps)
	g.Op = backend.Reset
	require.NoError(t, runner.Run(ctx, []*batch.Asked{g}))
	var corrupt *backend.CorruptError
	require.ErrorAs(t, g.Takes[0].Err, &corrupt)
}

// TestFractionsFailAlone: a fraction that the sum with an instant swallows.
func TestFractionsFailAlone(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	runner, l := batch.Alone(client, &layer.Shared{}, time.Second), algo.PerHour(10)
	for _, a := range []algo.Algorithm{algo.FixedWindow(l), algo.SlidingWindow(l), algo.TokenBucket(l, 10)} {
		for _, last := range []string{"\x01\x00\x00\x00\x00\x00\x00\x00", "\x9a\x99\x99\x99\x99\x99\xb9\x3f"} { // 5e-324, 0.1
			require.NoError(t, client.FlushDB(ctx).Err())
			ps := policy(a)
			b := group("b", 1, ps)
			require.NoError(t, runner.Run(ctx, []*batch.Asked{b}))
			field := client.HKeys(ctx, b.Hash).Val()[0]
			v := client.HGet(ctx, b.Hash, field).Val()
			client.HSet(ctx, b.Hash, field, v[:len(v)-8]+last)
			gs := []*batch.Asked{group("a", 1, ps), group("b", 1, ps), group("c", 1, ps)}
			_ = runner.Run(ctx, gs)
			require.NoError(t, gs[0].Takes[0].Err, a.String())
			require.NoError(t, gs[2].Takes[0].Err)
			var corrupt *backend.CorruptError
			require.ErrorAs(t, gs[1].Takes[0].Err, &corrupt)
		}
	}
}

// TestLogFractionsFailAlone: the same in a log: a score, and two sums.
func TestLogFractionsFailAlone(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	now := time.UnixMicro(1745000145_000_000)
	runner := batch.Alone(clock.Client{Processor: client, Now: func() time.Time { return now }}, &layer.Shared{}, time.Second)
	at, one := float64(now.UnixMicro()), "\x01\x3f\xf0\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" // sum 1, cost 1
	for name, c := range map[string]struct {
		limit int64
		m     []redis.Z
	}{
		"score, on a denial":  {2, []redis.Z{{Score: at - 0.5, Member: one}, {Score: at, Member: "\x01\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"}}},
		"another version":     {100, []redis.Z{{Score: at, Member: "\x20" + one[1:]}}},
		"sum 10.5, used 10.5": {100, []redis.Z{{Score: at - 1, Member: one}, {Score: at, Member: "\x01\x40\x25\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"}}},
	} {
		require.NoError(t, client.FlushDB(ctx).Err())
		ps := policy(algo.SlidingLog(algo.PerHour(c.limit)))
		gs := []*batch.Asked{group("a", 1, ps), group("b", 1, ps)}
		client.ZAdd(ctx, gs[1].Hash+":log:1h/p", c.m...)
		_ = runner.Run(ctx, gs)
		require.NoError(t, gs[0].Takes[0].Err, name)
		var corrupt *backend.CorruptError
		require.ErrorAs(t, gs[1].Takes[0].Err, &corrupt, name)
	}
}

// TestGarbageBesideALog: what stands beside a log in place of what is lent of it.
func TestGarbageBesideALog(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	runner, l := batch.Alone(client, &layer.Shared{}, time.Second), algo.PerHour(10)
	lent := "\x11" + strings.Repeat("e", 8) + strings.Repeat("\x00", 12)
	for name, bad := range map[string]string{
		"version alone": "\x11", "short": lent[:20], "of one end without it": lent[:20] + "\x01", "of many": lent[:20] + "\xff",
		"longer": lent + "more", "version": "\x12" + lent[1:],
	} {
		for kind, a := range map[string]algo.Algorithm{"log": algo.SlidingLog(l), "pack": algo.CompactLog(l)} {
			for _, op := range []backend.Op{backend.Take, backend.Peek, backend.Record} {
				require.NoError(t, client.FlushDB(ctx).Err())
				ps := policy(a)
				gs := []*batch.Asked{group("a", 1, ps), group("b", 1, ps), group("c", 1, ps)}
				require.NoError(t, runner.Run(ctx, []*batch.Asked{group("b", 1, ps)}))
				gs[1].Op = op
				at := gs[1].Hash + ":" + kind + ":1h/p"
				if kind == "log" {
					client.ZAdd(ctx, at, redis.Z{Score: float64(time.Now().UnixMicro()), Member: bad})
				} else {
					client.HSet(ctx, at, "h", bad)
				}
				before := client.Dump(ctx, at).Val()
				_ = runner.Run(ctx, gs)
				require.NoError(t, gs[0].Takes[0].Err, name)
				require.NoError(t, gs[2].Takes[0].Err, name)
				var corrupt *backend.CorruptError
				require.ErrorAs(t, gs[1].Takes[0].Err, &corrupt, "%s of a %s, %v", name, kind, op)
				require.Equal(t, before, client.Dump(ctx, at).Val(), name)
			}
		}
	}
}

// TestResetRefusedLeavesAll: a reset that meets a value that is not ours resets
// nothing.
func TestResetRefusedLeavesAll(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	runner, l := batch.Alone(client, &layer.Shared{}, time.Second), algo.PerHour(3)
	ps := []backend.Policy{{Name: "f", Algorithm: algo.FixedWindow(l)}, {Name: "l", Algorithm: algo.SlidingLog(l)}}
	g := group("k", 1, ps)
	require.NoError(t, runner.Run(ctx, []*batch.Asked{g}))
	client.Set(ctx, g.Hash, "not ours", time.Hour)
	g = group("k", 0, ps)
	g.Op = backend.Reset
	require.NoError(t, runner.Run(ctx, []*batch.Asked{g}))
	require.Error(t, g.Takes[0].Err)
	require.EqualValues(t, 1, client.ZCard(ctx, g.Hash+":log:1h/l").Val(), "refused, and yet the log is gone")
}

// TestResetOfAWrongLog: it leaves what is no log, too.
func TestResetOfAWrongLog(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	runner := batch.Alone(client, &layer.Shared{}, time.Second)
	g := group("k", 0, policy(algo.SlidingLog(algo.PerHour(3))))
	g.Op = backend.Reset
	client.Set(ctx, g.Hash+":log:1h/p", "not ours", time.Hour)
	require.NoError(t, runner.Run(ctx, []*batch.Asked{g}))
	require.Error(t, g.Takes[0].Err)
	require.Equal(t, "not ours", client.Get(ctx, g.Hash+":log:1h/p").Val())
}

// TestCorruptLogIsNamed: by the key that holds it.
func TestCorruptLogIsNamed(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	runner := batch.Alone(client, &layer.Shared{}, time.Second)
	g := group("k", 1, policy(algo.SlidingLog(algo.PerHour(3))))
	client.Set(ctx, g.Hash+":log:1h/p", "not ours", time.Hour)
	require.NoError(t, runner.Run(ctx, []*batch.Asked{g}))
	var corrupt *backend.CorruptError
	require.ErrorAs(t, g.Takes[0].Err, &corrupt)
	require.Equal(t, g.Hash+":log:1h/p", corrupt.Stored)
}

// TestScriptEndsAndRefuses: what no release sends, a section of several
// policies without groups among it, is over in time, and stores nothing.
func TestScriptEndsAndRefuses(t *testing.T) {
	server, ctx := redistest.Start(t), context.Background()
	client := server.Client(t, func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = time.Second, -1 })
	require.NoError(t, client.ScriptLoad(ctx, lua.Script).Err())
	head, one, mega := "\x01\x00\x01\x01\x01\x00\x01\x00\x02\x00\x00\x00", "\x00\x00\x00\x00\x00\x00\xf0\x3f", "\x00\x00\x00\x00\x80\x84\x2e\x41" // 1, 1e6
	half, huge := "\x00\x00\x00\x00\x00\x00\xf8\x3f", "\x9c\x75\x00\x88\x3c\xe4\x37\x7e"                                                          // 1.5, 1e300
	for _, body := range []string{
		head + "\x03" + one + mega + one + one + huge + "\x01\x00\x00\x00" + one,
		head + "\x01" + half + mega + one + one + one + "\x01\x00\x00\x00" + half,
		"\x00\x00\x03" + head[3:], // no groups; last: the server is busy then
	} {
		t.Run("", func(t *testing.T) {
			client.FlushDB(ctx)
			err := client.EvalSha(ctx, lua.SHA, []string{"x"}, "", body, "f:p").Err()
			require.False(t, err != nil && strings.Contains(err.Error(), "timeout"), "the script never ends")
			require.Zero(t, client.DBSize(ctx).Val(), "stored, to live %v", client.PTTL(ctx, "x").Val())
		})
		client.ScriptKill(ctx)
	}
}

// TestARingThatDoesNotAddUp: buckets whose sum is another than the one kept are
// not ours: fewer would deny for ever, more would pass for nothing.
func TestARingThatDoesNotAddUp(t *testing.T) {
	client, ctx := redistest.Start(t).Client(t), context.Background()
	now := time.UnixMicro(1745000145_000_000)
	runner := batch.Alone(clock.Client{Processor: client, Now: func() time.Time { return now }}, &layer.Shared{}, time.Second)
	ps := policy(algo.BucketedWindow(algo.PerMinute(10), 6))
	g := group("k", 10, ps)
	require.NoError(t, runner.Run(ctx, []*batch.Asked{g}))
	v := client.HGet(ctx, g.Hash, "b1m/6/p").Val()
	for _, fill := range []string{"\x00", "\xff"} {
		client.HSet(ctx, g.Hash, "b1m/6/p", v[:25]+strings.Repeat(fill, len(v)-25))
		now = now.Add(75 * time.Second)
		g = group("k", 10, ps)
		require.NoError(t, runner.Run(ctx, []*batch.Asked{g}))
		var corrupt *backend.CorruptError
		require.ErrorAs(t, g.Takes[0].Err, &corrupt)
	}
}
