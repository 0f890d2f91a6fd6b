package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/stretchr/testify/require"
)

// TestRestoredBackup: rows that are put back as they were count what they counted, for as long as
// their period runs, and nothing after it.
func TestRestoredBackup(t *testing.T) {
	o := postgres.Options{Schema: schema()}
	s, p, ctx := open(t, o), pool(t, postgrestest.Shared(t).Addr(), ""), context.Background()
	exec := func(sql string) {
		t.Helper()
		_, err := p.Exec(ctx, sql)
		require.NoError(t, err)
	}
	at := time.Now().Truncate(24 * time.Hour).Add(time.Hour).UnixMicro()
	s.SetClock(func() int64 { return at })
	ps := []backend.Policy{
		{Name: "day", Algorithm: algo.FixedWindow(algo.PerDay(5)), OnFailure: backend.FailClosed},
		{Name: "log", Algorithm: algo.SlidingLog(algo.PerHour(5)), OnFailure: backend.FailClosed},
	}
	take := func(n int) {
		for range n {
			_, err := ask(s, backend.Take, "k", ps)
			require.NoError(t, err)
		}
	}
	take(2)
	exec("create table " + o.Schema + ".saved as table " + o.Schema + ".counts")
	take(3)
	require.EqualValues(t, 5, used(t, s, "k", ps))
	exec("truncate " + o.Schema + ".counts; insert into " + o.Schema + ".counts table " + o.Schema + ".saved")
	require.EqualValues(t, 2, used(t, s, "k", ps), "the calls since then are forgotten")
	at += (2 * time.Hour).Microseconds()
	require.Zero(t, used(t, s, "k", ps[1:]))
	require.EqualValues(t, 2, used(t, s, "k", ps[:1]))
	at += (24 * time.Hour).Microseconds()
	require.Zero(t, used(t, s, "k", ps[:1]))
	take(1)
	require.EqualValues(t, 1, used(t, s, "k", ps))
}
