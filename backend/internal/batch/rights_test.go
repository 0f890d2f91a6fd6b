package batch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/batch"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// limited returns a server for a user without one right, and what its guard received.
func limited(t *testing.T, server *redistest.Server, missing string) (*batch.Server, *verdicts) {
	admin := server.Client(t)
	require.NoError(t, admin.Do(context.Background(), "acl", "setuser", "u", "reset", "on", ">p", "~*", "+@all", missing).Err())
	v, hub := &verdicts{}, &layer.Shared{}
	hub.SetGuard(v)
	return batch.Alone(server.Client(t, func(o *redis.Options) { o.Username, o.Password = "u", "p" }), hub, 5*time.Second), v
}

// TestAMissingRightIsItsGroups: of a batch, the groups that need a right which
// is missing are refused and charge nothing; the others are decided.
func TestAMissingRightIsItsGroups(t *testing.T) {
	server := redistest.Start(t)
	admin, ctx := server.Client(t), context.Background()
	l := algo.PerMinute(9)
	fixed, log := policy(algo.FixedWindow(l)), policy(algo.SlidingLog(l))
	two := []backend.Policy{fixed[0], {Name: "q", Algorithm: algo.TokenBucket(l, 9)}}
	both := []backend.Policy{{Name: "f", Algorithm: algo.FixedWindow(l)}, log[0]}
	for _, c := range []struct {
		missing string
		lists   map[string][]backend.Policy // that need it
		beside  []backend.Policy            // that don't
	}{
		{"zadd", map[string][]backend.Policy{"log": log, "both": both}, fixed},
		{"zrange", map[string][]backend.Policy{"log": log, "both": both}, two},
		{"hset", map[string][]backend.Policy{"fixed": fixed, "two": two, "both": both}, log},
		{"hget", map[string][]backend.Policy{"fixed": fixed}, two},
		{"hmget", map[string][]backend.Policy{"two": two, "both": both}, fixed},
		{"zcount", map[string][]backend.Policy{"log": log, "both": both}, fixed},
	} {
		for name, list := range c.lists {
			t.Run(fmt.Sprint(c.missing, " ", name), func(t *testing.T) {
				require.NoError(t, admin.FlushDB(ctx).Err())
				before := group("b", 1, list) // so that there is something to read
				require.NoError(t, batch.Alone(admin, &layer.Shared{}, time.Second).Run(ctx, []*batch.Asked{before}))
				require.NoError(t, before.Takes[0].Err)
				runner, v := limited(t, server, "-"+c.missing)
				gs := []*batch.Asked{group("a", 1, c.beside), group("b", 1, list), group("c", 1, c.beside)}
				_ = runner.Run(ctx, gs)
				for _, i := range []int{0, 2} {
					require.NoError(t, gs[i].Takes[0].Err)
					require.EqualValues(t, 1, gs[i].Takes[0].Decision.Used)
				}
				err := gs[1].Takes[0].Err
				require.ErrorIs(t, err, backend.ErrUnavailable)
				require.NotErrorIs(t, err, backend.ErrPerhapsCounted)
				require.ErrorContains(t, err, upper(c.missing))
				require.Zero(t, v.count(layer.ErrFailed), "the server is not to blame")
				look := group("b", 1, list)
				require.NoError(t, batch.Alone(admin, &layer.Shared{}, time.Second).Run(ctx, []*batch.Asked{look}))
				require.EqualValues(t, 2, look.Takes[0].Decision.Used, "the refused take was charged")
			})
		}
	}
}

func upper(s string) string {
	b := []byte(s)
	for i := range b {
		b[i] &^= 0x20
	}
	return string(b)
}

// TestRightsOfSecondWrites: a right that only a later write needs is found
// missing before the first.
func TestRightsOfSecondWrites(t *testing.T) {
	server := redistest.Start(t)
	admin, ctx := server.Client(t), context.Background()
	l := algo.PerMinute(9)
	log := policy(algo.SlidingLog(l))
	now := time.UnixMicro(1_745_000_145_000_000)
	for _, missing := range []string{"pexpire", "pttl", "zremrangebyrank", "unlink"} {
		for name, list := range map[string][]backend.Policy{
			"fixed": policy(algo.FixedWindow(l)), "log": log,
			"two":  {{Name: "f", Algorithm: algo.FixedWindow(l)}, {Name: "s", Algorithm: algo.SlidingWindow(l)}},
			"both": {{Name: "f", Algorithm: algo.FixedWindow(l)}, log[0]},
		} {
			logs := name == "log" || name == "both"
			if missing != "pexpire" && !logs {
				continue
			}
			t.Run(missing+" "+name, func(t *testing.T) {
				require.NoError(t, admin.FlushDB(ctx).Err())
				virtual := batch.Alone(clock.Client{Processor: admin, Now: func() time.Time { return now }}, &layer.Shared{}, time.Second)
				switch missing { // something to drop: what has left, or lies too far ahead
				case "zremrangebyrank", "pttl":
					require.NoError(t, virtual.Run(ctx, []*batch.Asked{group("k", 1, list)}))
				case "unlink":
					require.NoError(t, admin.ZAdd(ctx, names.DefaultPrefix.Log("k", &log[0]), redis.Z{Score: 9e15, Member: "ahead"}).Err())
				}
				stored := admin.DBSize(ctx).Val()
				runner, v := limited(t, server, "-"+missing)
				gs := []*batch.Asked{group("k", 1, list)}
				_ = runner.Run(ctx, gs)
				require.ErrorIs(t, gs[0].Takes[0].Err, backend.ErrUnavailable)
				require.ErrorContains(t, gs[0].Takes[0].Err, upper(missing))
				require.Equal(t, stored, admin.DBSize(ctx).Val())
				require.Zero(t, v.count(layer.ErrFailed))
				g := group("k", 1, list)
				require.NoError(t, batch.Alone(admin, &layer.Shared{}, time.Second).Run(ctx, []*batch.Asked{g}))
				require.EqualValues(t, 1, g.Takes[0].Decision.Used)
			})
		}
	}
}

// TestResetWithoutARight: of a hash and a log neither goes.
func TestResetWithoutARight(t *testing.T) {
	server := redistest.Start(t)
	admin, ctx := server.Client(t), context.Background()
	l := algo.PerMinute(9)
	both := []backend.Policy{{Name: "f", Algorithm: algo.FixedWindow(l)}, {Name: "l", Algorithm: algo.SlidingLog(l)}}
	for _, missing := range []string{"hdel", "unlink", "zcard"} {
		require.NoError(t, admin.FlushDB(ctx).Err())
		require.NoError(t, batch.Alone(admin, &layer.Shared{}, time.Second).Run(ctx, []*batch.Asked{group("k", 1, both)}))
		runner, _ := limited(t, server, "-"+missing)
		g := group("k", 0, both)
		g.Op = backend.Reset
		_ = runner.Run(ctx, []*batch.Asked{g})
		require.ErrorIs(t, g.Takes[0].Err, backend.ErrUnavailable)
		require.ErrorContains(t, g.Takes[0].Err, upper(missing))
		require.EqualValues(t, 2, admin.DBSize(ctx).Val(), missing)
	}
}

// TestNoRightToSweep: a user who may not sweep a hash decides as ever.
func TestNoRightToSweep(t *testing.T) {
	server := redistest.Start(t)
	for _, missing := range []string{"hrandfield", "hdel"} {
		runner, _ := limited(t, server, "-"+missing)
		for i, period := range []time.Duration{time.Second, time.Minute, time.Second} {
			g := group(missing, 1, policy(algo.FixedWindow(algo.Per(1<<20, period))))
			require.NoError(t, runner.Run(context.Background(), []*batch.Asked{g}))
			require.NoError(t, g.Takes[0].Err, "%s, call %d", missing, i)
		}
	}
}

// TestNoRightToTheClock: without it nothing can be decided, or counted.
func TestNoRightToTheClock(t *testing.T) {
	runner, _ := limited(t, redistest.Start(t), "-time")
	err := runner.Run(context.Background(), []*batch.Asked{group("k", 1, policy(algo.FixedWindow(algo.PerMinute(5))))})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "NOPERM TIME")
}
