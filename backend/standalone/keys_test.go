package standalone_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestKeysTwins: requests of several keys, and settlements of them, have the same
// answers on Redis and in memory.
func TestKeysTwins(t *testing.T) {
	redistest.Plain(t)
	c, r := newCivil(t), rand.New(rand.NewPCG(1, 2))
	lists := [][]backend.Policy{
		calendars(algo.TokenBucket(algo.PerSecond(5), 20)),
		calendars(algo.SlidingLog(algo.PerSecond(9)), algo.FixedWindow(algo.PerSecond(12))),
		calendars(algo.BucketedWindow(algo.PerSecond(30), 10)),
		calendars(algo.CompactLog(algo.PerSecond(8)), algo.SlidingWindow(algo.PerSecond(12)), algo.Calendar(50, algo.Day(), time.UTC)),
		calendars(algo.InFlight(4), algo.TokenBucket(algo.PerSecond(30), 9)),
	}
	held := make([]map[backend.LeaseID]backend.Group, 4) // by the requests' index
	passed, denied := 0, 0
	for step := range redistest.Steps(1_500, 100_000) {
		c.set(c.now.Add(time.Duration(r.IntN(200)) * time.Millisecond))
		var qs []backend.Request
		for j := range 1 + r.IntN(len(held)) { // each on keys of its own
			if held[j] == nil {
				held[j] = map[backend.LeaseID]backend.Group{}
			}
			id := backend.LeaseID{1, byte(step), byte(step >> 8), byte(step >> 16), byte(j)}
			qs = append(qs, askKeys(r, lists, j, id, held[j]))
		}
		want, got := answersOf(c.process, qs), answersOf(c.redis, qs)
		require.Equal(t, want, got, "step %d: %v", step, qs)
		for j, q := range qs {
			if got[j].Decision.Allowed && q.Op == backend.Reserve {
				for i := range 1 + len(q.And) {
					held[j][q.GroupAt(i).Lease.ID] = *q.GroupAt(i)
				}
			}
			if len(q.And) > 0 && got[j].Decision.Allowed {
				passed++
			} else if len(q.And) > 0 {
				denied++
			}
		}
	}
	t.Logf("of several keys %d passed, %d denied", passed, denied)
	require.Greater(t, min(passed, denied), 300)
}

// askKeys draws a request of some keys, the j-th of a batch, or settles what is held.
func askKeys(r *rand.Rand, lists [][]backend.Policy, j int, id backend.LeaseID, held map[backend.LeaseID]backend.Group) backend.Request {
	q := backend.Request{Op: backend.Take}
	switch at := r.IntN(8); {
	case at < 2:
		q.Op = backend.Reserve
	case at == 2:
		q.Op = backend.Peek
	case at == 3:
		for id, g := range held {
			delete(held, id)
			g.Lease = &backend.Lease{ID: id, Length: time.Second, Attempt: backend.LeaseID{2}}
			return backend.Request{Op: backend.Settle, Group: g}
		}
	}
	for i := range 1 + r.IntN(3) {
		l := r.IntN(len(lists) - 1)
		if q.Op == backend.Reserve && r.IntN(2) == 0 {
			l = len(lists) - 1
		}
		g := backend.Group{Key: fmt.Sprint("k", r.IntN(3), "of", i, l, "in", j), Policies: lists[l], Cost: 1 + r.Int64N(3)}
		if l == len(lists)-1 {
			g.Cost = 1
		}
		if q.Op == backend.Reserve {
			id[15] = byte(i)
			g.Lease = &backend.Lease{ID: id, Length: time.Second}
		}
		if i == 0 {
			q.Group = g
		} else {
			q.And = append(q.And, g)
		}
	}
	return q
}

// keysAnswer is what a store wrote for a request.
type keysAnswer struct {
	backend.Answer
	states [][]backend.State
}

func answerOf(s backend.Store, q backend.Request) keysAnswer {
	return answersOf(s, []backend.Request{q})[0]
}

// answersOf asks for all at once where the store can.
func answersOf(s backend.Store, qs []backend.Request) []keysAnswer {
	all, asked, answers := make([]keysAnswer, len(qs)), slices.Clone(qs), make([]backend.Answer, len(qs))
	for j := range asked {
		q := &asked[j]
		q.And = slices.Clone(q.And)
		for i := range 1 + len(q.And) {
			g := q.GroupAt(i)
			g.Each = make([]backend.State, len(g.Policies))
		}
	}
	layer.DoAll(context.Background(), s, asked, answers)
	for j := range asked {
		all[j].Answer = answers[j]
		for i := range 1 + len(asked[j].And) {
			all[j].states = append(all[j].states, asked[j].GroupAt(i).Each)
		}
	}
	return all
}

// TestKeysWithoutARight: where one key's charge needs a right that is missing, no key is
// charged.
func TestKeysWithoutARight(t *testing.T) {
	server, ctx := redistest.Start(t), context.Background()
	admin := server.Client(t)
	fixed, log := calendars(algo.FixedWindow(algo.PerHour(9))), calendars(algo.SlidingLog(algo.PerHour(9)))
	slots, pack := calendars(algo.InFlight(9)), calendars(algo.CompactLog(algo.PerHour(9)))
	for _, c := range []struct {
		op      backend.Op
		last    []backend.Policy
		missing []string
	}{
		{backend.Take, log, []string{"zadd", "pexpire", "pttl", "zremrangebyrank", "unlink", "zrange"}},
		{backend.Take, pack, []string{"hdel"}},
		{backend.Reserve, slots, []string{"zadd", "pexpire", "pttl", "zremrangebyrank", "unlink"}},
		{backend.Reserve, fixed, []string{"set"}},
	} {
		for _, missing := range c.missing {
			t.Run(fmt.Sprint(c.op, " ", missing), func(t *testing.T) {
				require.NoError(t, admin.FlushDB(ctx).Err())
				if missing == "unlink" { // it lies too far ahead, and goes first
					require.NoError(t, admin.ZAdd(ctx, names.DefaultPrefix.Log("b", &c.last[0]), redis.Z{Score: 9e15, Member: "ahead"}).Err())
				}
				require.NoError(t, admin.Do(ctx, "acl", "setuser", "u", "reset", "on", ">p", "~*", "+@all", "-"+missing).Err())
				s := standalone.New(server.Client(t, func(o *redis.Options) { o.Username, o.Password = "u", "p" }), unhurried)
				q := backend.Request{Op: c.op, Group: backend.Group{Key: "a", Policies: fixed, Cost: 1}, And: []backend.Group{{Key: "b", Policies: c.last, Cost: 1}}}
				if c.op == backend.Reserve {
					q.Lease = &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute}
					q.And[0].Lease = q.Lease
				}
				first := q // so that the first key's charge needs no expiry
				first.Lease, first.And = nil, nil
				first.Op = backend.Take
				_, err := layer.Ask(ctx, standalone.New(admin, unhurried), first)
				require.NoError(t, err)
				_, err = layer.Ask(ctx, s, q)
				require.ErrorIs(t, err, backend.ErrUnavailable)
				first.Op = backend.Peek
				d, err := layer.Ask(ctx, standalone.New(admin, unhurried), first)
				require.NoError(t, err)
				require.EqualValues(t, 1, d.Used)
			})
		}
	}
}

// TestKeysCallerIsOff: where the boundaries of one key's Calendar are not those around
// the server's clock, no key is charged, and all are asked once more.
func TestKeysCallerIsOff(t *testing.T) {
	c := newCivil(t)
	list := calendars(algo.Calendar(3, algo.Day(), time.UTC))
	for i, groups := range [][]backend.Group{
		{{Key: "a", Policies: calendars(algo.SlidingLog(algo.PerDay(9))), Cost: 1}, {Key: "b", Policies: list, Cost: 1}},
		{{Key: "c", Policies: list, Cost: 1}, {Key: "d", Policies: list, Cost: 1}, {Key: "e", Policies: calendars(algo.SlidingLog(algo.PerDay(9))), Cost: 1}},
	} {
		c.set(time.Date(2024, 3, 9, 12, 0, 0, 0, time.UTC))
		c.here = c.now.Add(48 * time.Hour)
		q := backend.Request{Op: backend.Take, Group: groups[0], And: groups[1:]}
		for n := range 4 {
			var got keysAnswer
			want := int64(1)
			if n == 0 {
				want = 2
			}
			require.Equal(t, want, c.commands(t, func() { got = answerOf(c.redis, q) }), "%d, call %d", i, n)
			require.Equal(t, answerOf(c.process, q), got)
			require.Equal(t, n < 3, got.Decision.Allowed)
		}
	}
}
