package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/record"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/stretchr/testify/require"
)

// TestPostgresClosed: a closed store, and policies out of range, are errors of every operation.
func TestPostgresClosed(t *testing.T) {
	s := open(t, postgres.Options{})
	bad := []backend.Policy{{Name: "p", OnFailure: backend.FailClosed}}
	for _, op := range []backend.Op{backend.Reset, backend.Take} {
		var invalid *backend.InvalidError
		_, err := ask(s, op, "k", bad)
		require.ErrorAs(t, err, &invalid, "%v", op)
	}
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, err := ask(s, backend.Take, "k", daily(1))
	require.ErrorIs(t, err, backend.ErrClosed)
}

// TestCallersAreBounded: more calls than may wait get an error at once.
func TestCallersAreBounded(t *testing.T) {
	s := postgres.New(pool(t, "127.0.0.1:1", ""), nil)
	rs := make([]backend.Request, postgres.MaxCallers+10)
	for i := range rs {
		rs[i] = backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Policies: daily(1), Cost: 1}}
	}
	answers := make([]backend.Answer, len(rs))
	s.DoAll(context.Background(), rs, answers)
	for i, a := range answers {
		require.ErrorIs(t, a.Err, backend.ErrUnavailable)
		if i >= postgres.MaxCallers {
			require.ErrorContains(t, a.Err, "too many calls wait")
		}
	}
}

// TestSweptWhileLocking: a row that is deleted while the transaction waits for another one is
// made again, and its charge is not lost.
func TestSweptWhileLocking(t *testing.T) {
	o := postgres.Options{Schema: schema()}
	s, p, ctx := open(t, o), pool(t, postgrestest.Shared(t).Addr(), ""), context.Background()
	ps := daily(5)
	for _, key := range []string{"a", "b"} {
		_, err := ask(s, backend.Take, key, ps)
		require.NoError(t, err)
	}
	tx, err := p.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, "select from "+o.Schema+".counts where key = 'a' for update")
	require.NoError(t, err)
	answer := make(chan error)
	go func() {
		r := backend.Request{Op: backend.Take, Group: backend.Group{Key: "a", Policies: ps, Cost: 1}, And: []backend.Group{{Key: "b", Policies: ps, Cost: 1}}}
		answer <- s.Do(ctx, &r, new(backend.Decision))
	}()
	waits := func() (n int) {
		require.NoError(t, p.QueryRow(ctx, "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%"+o.Schema+"%'").Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return waits() > 0 }, 5*time.Second, 5*time.Millisecond)
	_, err = p.Exec(ctx, "delete from "+o.Schema+".counts where key = 'b'")
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(ctx))
	require.NoError(t, <-answer)
	require.EqualValues(t, 2, used(t, s, "a", ps))
	require.EqualValues(t, 1, used(t, s, "b", ps))
}

// TestClockThatStepsBack: a row that was written a moment ahead of the clock is decided at that
// instant, and one that is far ahead by the clock.
func TestClockThatStepsBack(t *testing.T) {
	o := postgres.Options{Schema: schema()}
	s, p := open(t, o), pool(t, postgrestest.Shared(t).Addr(), "")
	for _, ahead := range []time.Duration{500 * time.Millisecond, time.Hour} {
		at := time.Now().Add(ahead).UnixMicro()
		s.SetClock(func() int64 { return at })
		key := ahead.String()
		_, err := ask(s, backend.Take, key, daily(5))
		require.NoError(t, err)
		s.SetClock(nil)
		_, err = ask(s, backend.Take, key, daily(5))
		require.NoError(t, err)
		var data []byte
		require.NoError(t, p.QueryRow(context.Background(), "select data from "+o.Schema+".counts where key = $1", []byte(key)).Scan(&data))
		r, err := record.Open(data)
		require.NoError(t, err)
		var own record.Count
		r.Count(&own)
		require.Equal(t, ahead < time.Second, own.Words[0] == at, "written at %v", own.Words[0])
	}
}

// TestTerminated: a session that an administrator ends within its second flush leaves the call
// in doubt. The server might have committed before.
func TestTerminated(t *testing.T) {
	o := postgres.Options{Schema: schema()}
	s, p, ctx := open(t, o), pool(t, postgrestest.Shared(t).Addr(), ""), context.Background()
	_, err := p.Exec(ctx, `create function `+o.Schema+`.slow() returns trigger language plpgsql as $$ begin perform pg_sleep(20); return new; end $$;
		create trigger slow before update on `+o.Schema+`.counts for each row execute function `+o.Schema+`.slow()`)
	require.NoError(t, err)
	answer := make(chan error)
	go func() {
		_, err := ask(s, backend.Take, "k", daily(1))
		answer <- err
	}()
	ended := func() (n int) {
		require.NoError(t, p.QueryRow(ctx, "select count(pg_terminate_backend(pid)) from pg_stat_activity where wait_event = 'PgSleep' and query like '%"+o.Schema+"%'").Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return ended() > 0 }, 5*time.Second, 5*time.Millisecond)
	require.ErrorIs(t, <-answer, backend.ErrPerhapsCounted)
}

// TestOneProcessSweeps: who finds that another process sweeps does nothing.
func TestOneProcessSweeps(t *testing.T) {
	o := postgres.Options{Schema: schema()}
	s, p, ctx := open(t, o), pool(t, postgrestest.Shared(t).Addr(), ""), context.Background()
	s.SetClock(func() int64 { return time.Now().UnixMicro() }) // or a call would sweep too
	_, err := ask(s, backend.Take, "k", daily(1))
	require.NoError(t, err)
	tx, err := p.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }() // or a failure would wait for the pool
	_, err = tx.Exec(ctx, "select pg_advisory_xact_lock($1)", s.SweepLock())
	require.NoError(t, err)
	later := time.Now().Add(72 * time.Hour).UnixMicro()
	left := func() (n int) {
		require.NoError(t, s.Sweep(ctx, 10, later))
		require.NoError(t, p.QueryRow(ctx, "select count(*) from "+o.Schema+".counts").Scan(&n))
		return n
	}
	require.Equal(t, 1, left())
	require.NoError(t, tx.Rollback(ctx))
	require.Equal(t, 0, left())
}

// TestCircuit: an outage opens the circuit, and ends when the server answers.
func TestCircuit(t *testing.T) {
	server := postgrestest.Start(t)
	s := postgres.New(pool(t, server.Addr(), ""), nil)
	require.NoError(t, s.Migrate(context.Background()))
	l, err := headgate.New(s, []headgate.Policy{{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(1 << 30)), OnFailure: headgate.FailClosed}}, nil)
	require.NoError(t, err)
	allow := func() bool {
		d, _ := l.Allow(context.Background(), "k")
		return d.Source == headgate.FromStore
	}
	require.Eventually(t, allow, 5*time.Second, time.Millisecond)
	server.Shutdown()
	opened := func() bool {
		d, _ := l.Allow(context.Background(), "k")
		return d.Err != nil && strings.Contains(d.Err.Error(), "circuit of ")
	}
	require.Eventually(t, opened, 5*time.Second, time.Millisecond)
	server.Restart(t)
	before := time.Now()
	require.Eventually(t, allow, 3*time.Second, time.Millisecond)
	t.Log("decided again after", time.Since(before))
}
