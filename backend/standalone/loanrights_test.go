package standalone_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestBorrowWithoutARight: a Borrow that lacks a right is refused, and leaves all counts and
// the lease that it named as they were.
func TestBorrowWithoutARight(t *testing.T) {
	server := redistest.Start(t)
	l := algo.PerMinute(400)
	p := func(name string, a algo.Algorithm) backend.Policy {
		return backend.Policy{Name: name, Algorithm: a, OnFailure: backend.FailClosed}
	}
	fixed, log, packed := p("f", algo.TokenBucket(algo.PerHour(400), 400)), p("l", algo.SlidingLog(l)), p("c", algo.CompactLog(l))
	needs := map[string]string{
		"fixed": "get hmget set hset", "log": "get hmget set zadd zrange zcount zrem zremrangebyrank pttl pexpire",
		"packed": "get hmget set hset hget pexpire hdel", "all": "get hmget set hset hget zadd zrange zcount zrem zremrangebyrank pttl pexpire hdel",
	}
	for name, list := range map[string][]backend.Policy{
		"fixed": {fixed}, "log": {log}, "packed": {packed}, "all": {fixed, log, packed},
	} {
		for missing := range strings.FieldsSeq(needs[name]) {
			t.Run(name+" "+missing, func(t *testing.T) { borrowWithout(t, server, list, missing) })
		}
	}
}

func borrowWithout(t *testing.T, server *redistest.Server, list []backend.Policy, missing string) {
	ctx, admin := context.Background(), server.Client(t)
	require.NoError(t, admin.FlushDB(ctx).Err())
	require.NoError(t, admin.Do(ctx, "acl", "setuser", "u", "reset", "on", ">p", "~*", "+@all", "-"+missing).Err())
	at := int64(trace.Start)
	store := func(c *redis.Client) backend.Store {
		return standalone.New(clock.Client{Processor: c, Now: func() time.Time { return time.UnixMicro(at) }}, unhurried)
	}
	whole, limited := store(admin), store(server.Client(t, func(o *redis.Options) { o.Username, o.Password = "u", "p" }))
	ask := func(s backend.Store, op backend.Op, key string, cost int64, loan *backend.Loan) (backend.State, error) {
		r := backend.Request{Op: op, Loan: loan, Group: backend.Group{Key: key, Policies: list, Cost: cost, Each: make([]backend.State, len(list))}}
		err := s.Do(ctx, &r, new(backend.Decision))
		for i := range r.Each {
			require.True(t, err != nil || op == backend.Borrow || r.Each[i].Used == r.Each[0].Used, "the policies differ: %+v", r.Each)
		}
		return r.Each[0], err
	}
	refused := func(err error) {
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.NotErrorIs(t, err, backend.ErrPerhapsCounted)
		require.ErrorContains(t, err, strings.ToUpper(missing))
	}
	if missing != "zcount" { // which a log without entries does not need
		_, err := ask(limited, backend.Borrow, "new", 3, &backend.Loan{ID: backend.LeaseID{1}, Seq: 1, Term: time.Second, Want: 40})
		refused(err)
		state, err := ask(whole, backend.Peek, "new", 1, nil)
		require.NoError(t, err)
		require.Zero(t, state.Used)
	}
	loan := func(seq uint32, want int64) *backend.Loan {
		l := &backend.Loan{ID: backend.LeaseID{1}, Seq: seq, Term: time.Second, Want: want}
		if seq > 1 {
			l.Held[0] = backend.Held{Seq: 1, Used: 7}
		}
		return l
	}
	first := loan(1, 40)
	_, err := ask(whole, backend.Borrow, "k", 1, first)
	require.NoError(t, err)
	require.EqualValues(t, 40, first.Lent.Units)
	at += 100_000
	_, err = ask(limited, backend.Borrow, "k", 3, loan(2, 40))
	refused(err)
	state, err := ask(whole, backend.Peek, "k", 1, nil)
	require.NoError(t, err)
	require.EqualValues(t, 41, state.Used)
	require.EqualValues(t, 40, state.Lent)
	last := loan(3, 0)
	_, err = ask(whole, backend.Borrow, "k", 0, last)
	require.NoError(t, err)
	require.Equal(t, backend.Charged, last.Lent.Settled)
	state, err = ask(whole, backend.Peek, "k", 1, nil)
	require.NoError(t, err)
	require.EqualValues(t, 8, state.Used)
	require.Zero(t, state.Lent)
}

// TestRecallIsNotNeeded: a denial recalls lent units by a write. A server that refuses writes
// denies as ever.
func TestRecallIsNotNeeded(t *testing.T) {
	server := redistest.Start(t)
	ctx, admin := context.Background(), server.Client(t)
	store := standalone.New(admin, unhurried)
	for _, a := range []algo.Algorithm{algo.FixedWindow(algo.PerDay(100)), algo.SlidingLog(algo.PerDay(100)), algo.CompactLog(algo.PerDay(100))} {
		require.NoError(t, admin.ConfigSet(ctx, "maxmemory", "0").Err())
		key, list := a.String(), []backend.Policy{{Name: "p", Algorithm: a, OnFailure: backend.FailClosed}}
		ask := func(op backend.Op, cost int64, loan *backend.Loan) (d backend.Decision) {
			r := backend.Request{Op: op, Loan: loan, Group: backend.Group{Key: key, Policies: list, Cost: cost}}
			if op == backend.Reserve {
				r.Lease = &backend.Lease{ID: backend.LeaseID{3}, Length: time.Minute}
			}
			require.NoError(t, store.Do(ctx, &r, &d), "%v %v", a, op)
			return d
		}
		loan := &backend.Loan{ID: backend.LeaseID{1}, Seq: 1, Term: time.Second, Want: 40}
		require.True(t, ask(backend.Borrow, 20, loan).Allowed)
		require.EqualValues(t, 40, loan.Lent.Units)
		require.NoError(t, admin.ConfigSet(ctx, "maxmemory", "1").Err())
		for _, op := range []backend.Op{backend.Take, backend.Reserve} {
			d := ask(op, 65, nil)
			require.True(t, !d.Allowed && d.Source == backend.FromStore, "%v %v: %+v", a, op, d)
		}
	}
}
