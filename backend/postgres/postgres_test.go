package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/stretchr/testify/require"
)

// TestOptions: what is out of range is an error that names it, of Check and of a request.
func TestOptions(t *testing.T) {
	p := pool(t, "127.0.0.1:1", "")
	for _, o := range []postgres.Options{
		{Budget: time.Microsecond}, {Budget: time.Hour}, {Schema: "Upper"}, {Schema: "a;drop"}, {Prefix: "1st"}, {Prefix: strings.Repeat("x", 40)},
	} {
		s := postgres.New(p, &o)
		var invalid *backend.InvalidError
		require.ErrorAs(t, s.Check(daily(1)), &invalid, "%+v", o)
		require.ErrorAs(t, s.Migrate(context.Background()), &invalid)
		_, err := ask(s, backend.Take, "k", daily(1))
		require.ErrorAs(t, err, &invalid)
		_, err = postgres.SQL(&o)
		require.ErrorAs(t, err, &invalid)
	}
	for _, s := range []*postgres.Store{nil, {}, postgres.New(nil, nil)} {
		var invalid *backend.InvalidError
		require.ErrorAs(t, s.Check(daily(1)), &invalid)
		require.ErrorAs(t, s.Close(), &invalid)
		_, err := ask(s, backend.Take, "k", daily(1))
		require.ErrorAs(t, err, &invalid)
	}
}

// TestPasswordIsHidden: no error has the password of a URL.
func TestPasswordIsHidden(t *testing.T) {
	_, err := postgres.Open("postgres://user:secret@host:port/db", nil)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
	s, err := postgres.Open("postgres://user:secret@127.0.0.1:1/db", nil)
	require.NoError(t, err)
	defer s.Close()
	_, err = ask(s, backend.Take, "k", daily(1))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.NotContains(t, err.Error(), "secret")
}

// TestTables: nothing makes the tables but Migrate, or the statements of SQL, which may run
// again. The prefix keeps stores apart.
func TestTables(t *testing.T) {
	p, ctx := pool(t, postgrestest.Shared(t).Addr(), ""), context.Background()
	o := &postgres.Options{Schema: schema(), Budget: 5 * time.Second}
	s := postgres.New(p, o)
	for range 2 {
		_, err := ask(s, backend.Take, "k", daily(5))
		require.ErrorIs(t, err, postgres.ErrNoTables)
		require.ErrorIs(t, err, backend.ErrUnavailable)
	}
	sql, err := postgres.SQL(o)
	require.NoError(t, err)
	for range 2 {
		_, err = p.Exec(ctx, sql)
		require.NoError(t, err)
	}
	require.NoError(t, s.Migrate(ctx))
	_, err = ask(s, backend.Take, "k", daily(5))
	require.NoError(t, err)
	other := *o
	other.Prefix, other.Logged = "other_", true
	s2 := postgres.New(p, &other)
	require.NoError(t, s2.Migrate(ctx))
	d, err := ask(s2, backend.Take, "k", daily(5))
	require.NoError(t, err)
	require.EqualValues(t, 1, d.Used)
	for table, want := range map[string]string{"counts": "u", "other_counts": "p", "other_leases": "p"} {
		var kept string
		require.NoError(t, p.QueryRow(ctx, "select relpersistence::text from pg_class where oid = $1::text::regclass", o.Schema+"."+table).Scan(&kept))
		require.Equal(t, want, kept, table)
	}
}

// TestWithoutPreparedStatements: the modes that a pooler needs decide alike, and leave no
// state behind in a session.
func TestWithoutPreparedStatements(t *testing.T) {
	o := &postgres.Options{Schema: schema(), Budget: 5 * time.Second}
	for i, mode := range []string{"exec", "describe_exec", "cache_describe", "cache_statement"} {
		p := pool(t, postgrestest.Shared(t).Addr(), "pool_max_conns=2&default_query_exec_mode="+mode)
		s := postgres.New(p, o)
		require.NoError(t, s.Migrate(context.Background()))
		d, err := ask(s, backend.Take, "k", daily(5))
		require.NoError(t, err, mode)
		require.EqualValues(t, i+1, d.Used)
		for _, setting := range []string{"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"} {
			var value string
			require.NoError(t, p.QueryRow(context.Background(), "show "+setting).Scan(&value))
			require.Equal(t, "0", value, setting)
		}
		if mode == "exec" {
			var n int
			require.NoError(t, p.QueryRow(context.Background(), "select count(*) from pg_prepared_statements").Scan(&n))
			require.Zero(t, n)
		}
	}
}

// TestSweep: rows that have expired leave, all that are needed stay, and one that is locked too.
func TestSweep(t *testing.T) {
	now := time.Now().UnixMicro()
	o := postgres.Options{Schema: schema()}
	s, ctx := open(t, o), context.Background()
	s.SetClock(func() int64 { return now })
	p := pool(t, postgrestest.Shared(t).Addr(), "")
	minute := []backend.Policy{{Name: "m", Algorithm: algo.FixedWindow(algo.PerMinute(5)), OnFailure: backend.FailClosed}}
	for i := range 50 {
		_, err := ask(s, backend.Take, fmt.Sprint("short ", i), minute)
		require.NoError(t, err)
		_, err = ask(s, backend.Take, fmt.Sprint("long ", i), daily(5))
		require.NoError(t, err)
		r := backend.Request{Op: backend.Reserve, Group: backend.Group{Key: fmt.Sprint("leased ", i), Policies: minute, Cost: 1,
			Lease: &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute}}}
		require.NoError(t, s.Do(ctx, &r, new(backend.Decision)))
	}
	count := func(table string) (n int) {
		require.NoError(t, p.QueryRow(ctx, "select count(*) from "+o.Schema+"."+table).Scan(&n))
		return n
	}
	sweeps := func(at time.Duration) {
		for range 30 {
			require.NoError(t, s.Sweep(ctx, 10, now+at.Microseconds()))
		}
	}
	sweeps(0)
	require.Equal(t, []int{150, 50}, []int{count("counts"), count("leases")})
	tx, err := p.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, "select from "+o.Schema+".counts where key = 'short 7' for update")
	require.NoError(t, err)
	sweeps(90 * time.Second) // after the window, and within the leases' second length
	require.Equal(t, []int{101, 50}, []int{count("counts"), count("leases")})
	require.NoError(t, tx.Rollback(ctx))
	sweeps(10 * time.Minute)
	require.Equal(t, []int{50, 0}, []int{count("counts"), count("leases")})
}

// TestUnchangedIsNotWritten: a denial and a look leave the row as it is, and none of a new key.
func TestUnchangedIsNotWritten(t *testing.T) {
	o := postgres.Options{Schema: schema()}
	s, ctx := open(t, o), context.Background()
	p := pool(t, postgrestest.Shared(t).Addr(), "")
	where := func() (at string, n int) {
		require.NoError(t, p.QueryRow(ctx, "select coalesce(max(ctid::text), ''), count(*) from "+o.Schema+".counts").Scan(&at, &n))
		return at, n
	}
	_, err := ask(s, backend.Peek, "new", daily(1))
	require.NoError(t, err)
	_, n := where()
	require.Zero(t, n)
	_, err = ask(s, backend.Take, "k", daily(1))
	require.NoError(t, err)
	at, _ := where()
	for range 3 {
		d, err := ask(s, backend.Take, "k", daily(1))
		require.NoError(t, err)
		require.False(t, d.Allowed)
	}
	// Two keys, of which one has no room: the other one's row goes with the rollback.
	r := backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Policies: daily(1), Cost: 1}, And: []backend.Group{{Key: "new", Policies: daily(1), Cost: 1}}}
	rs, answers := []backend.Request{r, {Op: backend.Take, Group: backend.Group{Key: "k2", Policies: daily(1), Cost: 1}}}, make([]backend.Answer, 2)
	s.DoAll(ctx, rs[:1], answers[:1])
	require.NoError(t, answers[0].Err)
	require.False(t, answers[0].Decision.Allowed)
	same, n := where()
	require.Equal(t, at, same)
	require.Equal(t, 1, n)
	answers = make([]backend.Answer, 2)
	s.DoAll(ctx, rs, answers) // beside one that is charged, in the same transaction
	require.True(t, answers[1].Decision.Allowed)
	_, n = where()
	require.Equal(t, 2, n)
}
