package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/stretchr/testify/require"
)

// TestPing: each thing that makes a server unfit is an error that names it.
func TestPing(t *testing.T) {
	server, ctx := postgrestest.Shared(t), context.Background()
	admin := pool(t, server.Addr(), "")
	o := &postgres.Options{Schema: schema(), Budget: 5 * time.Second}
	s := postgres.New(admin, o)
	_, err := s.Ping(ctx)
	require.ErrorIs(t, err, postgres.ErrNoTables)
	require.NoError(t, s.Migrate(ctx))
	warnings, err := s.Ping(ctx)
	require.NoError(t, err)
	require.Empty(t, warnings)

	role := "role" + o.Schema
	exec := func(sql string) {
		_, err := admin.Exec(ctx, strings.NewReplacer("ROLE", role, "SCHEMA", o.Schema).Replace(sql))
		require.NoError(t, err)
	}
	exec("create role ROLE login")
	limited := postgres.New(pool(t, server.Addr(), "user="+role), o)
	_, err = limited.Ping(ctx)
	require.ErrorContains(t, err, "permission denied")
	require.ErrorIs(t, err, backend.ErrUnavailable)
	exec("grant usage on schema SCHEMA to ROLE; grant select, insert on all tables in schema SCHEMA to ROLE")
	_, err = limited.Ping(ctx)
	var right *backend.RightError
	require.ErrorAs(t, err, &right)
	exec("grant update, delete on all tables in schema SCHEMA to ROLE")
	_, err = limited.Ping(ctx)
	require.NoError(t, err)
	_, err = ask(limited, backend.Take, "k", daily(1)) // all the rights that the store needs
	require.NoError(t, err)

	_, err = postgres.New(pool(t, server.Addr(), "options=-c%20default_transaction_read_only%3Don"), o).Ping(ctx)
	require.ErrorContains(t, err, "read-only")
	warnings, err = postgres.New(pool(t, server.Addr(), "pool_max_conns=1000"), o).Ping(ctx)
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(warnings), "1000 connections")
	exec("alter table SCHEMA.counts rename column data to other")
	_, err = s.Ping(ctx)
	require.ErrorContains(t, err, `"data" does not exist`)
	_, err = postgres.New(pool(t, "127.0.0.1:1", ""), o).Ping(ctx)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.NoError(t, s.Close())
	_, err = s.Ping(ctx)
	require.ErrorIs(t, err, backend.ErrClosed)
}
