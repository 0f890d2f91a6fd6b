package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// options are settings of each connection, as a URL has them.
func options(list string) string { return "options=" + url.QueryEscape("-c "+list) }

// pinged is a server with a store's tables, of which Ping finds nothing to say.
func pinged(t *testing.T, server *postgrestest.Server) (s *postgres.Store, o *postgres.Options, exec func(sql string)) {
	admin, ctx := pool(t, server.Addr(), ""), context.Background()
	o = &postgres.Options{Schema: schema(), Budget: 5 * time.Second}
	s = postgres.New(admin, o)
	_, err := s.Ping(ctx)
	require.ErrorIs(t, err, postgres.ErrNoTables)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.NoError(t, s.Migrate(ctx))
	warnings, err := s.Ping(ctx)
	require.NoError(t, err)
	require.Empty(t, warnings)
	return s, o, func(sql string) {
		t.Helper()
		_, err := admin.Exec(ctx, strings.NewReplacer("$role", "role"+o.Schema, "$schema", o.Schema).Replace(sql))
		require.NoError(t, err)
	}
}

// TestPing: each thing that makes a server unfit is an error that names it. A ping leaves nothing.
func TestPing(t *testing.T) {
	server, ctx := postgrestest.Shared(t), context.Background()
	s, o, exec := pinged(t, server)
	for _, err := range s.Keys(ctx, "") {
		t.Error("a key is there", err)
	}
	exec("create schema $schema_old; create function $schema_old.current_setting(text) returns text language sql as " +
		"$$ select case $1 when 'server_version_num' then '140010' else pg_catalog.current_setting($1) end $$")
	_, err := postgres.New(pool(t, server.Addr(), options("search_path="+o.Schema+"_old,pg_catalog")), o).Ping(ctx)
	require.ErrorIs(t, err, backend.ErrServerTooOld)
	require.ErrorContains(t, err, "PostgreSQL 14, and 15 is the oldest")
	_, err = postgres.New(pool(t, server.Addr(), options("default_transaction_read_only=on")), o).Ping(ctx)
	require.ErrorContains(t, err, "read-only")
	_, err = postgres.New(pool(t, "127.0.0.1:1", ""), o).Ping(ctx)
	require.ErrorIs(t, err, backend.ErrUnavailable)

	exec("alter table $schema.leases drop constraint leases_pkey")
	_, err = s.Ping(ctx)
	require.ErrorContains(t, err, "no unique or exclusion constraint")
	exec("alter table $schema.leases add primary key (key, id); alter table $schema.counts rename column data to other")
	_, err = s.Ping(ctx)
	require.ErrorContains(t, err, `"data"`)
	require.NoError(t, s.Close())
	_, err = s.Ping(ctx)
	require.ErrorIs(t, err, backend.ErrClosed)
}

// TestPingRights: the error of missing rights has what GRANT takes, and with these the store
// decides.
func TestPingRights(t *testing.T) {
	server, ctx := postgrestest.Shared(t), context.Background()
	_, o, exec := pinged(t, server)
	exec("create role $role login")
	limited := postgres.New(pool(t, server.Addr(), "user=role"+o.Schema), o)
	lacks := func(want ...string) {
		t.Helper()
		_, err := limited.Ping(ctx)
		var right *backend.RightError
		require.ErrorAs(t, err, &right)
		require.Equal(t, want, right.Rights)
		for _, r := range right.Rights {
			exec("grant " + r + " to $role")
		}
		warnings, err := limited.Ping(ctx)
		require.NoError(t, err)
		require.Empty(t, warnings)
	}
	counts, leases := o.Schema+".counts", o.Schema+".leases"
	const all = "SELECT, INSERT, UPDATE, DELETE ON "
	lacks("USAGE ON SCHEMA "+o.Schema, all+counts, all+leases)
	_, err := ask(limited, backend.Take, "k", daily(1)) // all the rights that the store needs
	require.NoError(t, err)
	exec("revoke update, delete on $schema.leases from $role")
	lacks("UPDATE, DELETE ON " + leases)
	require.NoError(t, limited.Migrate(ctx), "the tables are there")
	own := postgres.New(pool(t, server.Addr(), "user=role"+o.Schema), &postgres.Options{Schema: o.Schema + "_own"})
	require.ErrorContains(t, own.Migrate(ctx), "permission denied")
	exec("create schema $schema_own authorization $role")
	require.NoError(t, own.Migrate(ctx))
	warnings, err := own.Ping(ctx)
	require.NoError(t, err)
	require.Empty(t, warnings)
}

// TestMigrateAtOnce: processes that start together may all create the tables.
func TestMigrateAtOnce(t *testing.T) {
	p := pool(t, postgrestest.Shared(t).Addr(), "pool_max_conns=16")
	for range 5 {
		o := &postgres.Options{Schema: schema()}
		errs := make(chan error, 16)
		for range 16 {
			go func() { errs <- postgres.New(p, o).Migrate(context.Background()) }()
		}
		for range 16 {
			require.NoError(t, <-errs)
		}
	}
}

// TestPingWarnings: what weakens the promise is a warning.
func TestPingWarnings(t *testing.T) {
	server, ctx := postgrestest.Start(t, "wal_level=logical"), context.Background()
	s, o, exec := pinged(t, server)
	warns := func(settings string, want ...string) {
		t.Helper()
		warnings, err := postgres.New(pool(t, server.Addr(), settings), o).Ping(ctx)
		require.NoError(t, err)
		require.Len(t, warnings, len(want), "%q", warnings)
		for i := range want {
			require.Contains(t, warnings[i], want[i])
		}
	}
	warns("pool_max_conns=1000", "may open 1000 connections, and the server admits 197")
	exec("create role $role login superuser connection limit 3")
	warns("user=role"+o.Schema+"&pool_max_conns=4", "admits 3")
	exec("create schema $schema_late; create function $schema_late.clock_timestamp() returns timestamptz language sql as $$ select pg_catalog.clock_timestamp() + '1h' $$")
	warns(options("search_path="+o.Schema+"_late,pg_catalog"), "clock differs from this host's by 1h0m0")

	exec("select pg_create_logical_replication_slot('changes', 'pgoutput'); create publication changes for all tables")
	logical := replicates(t, server, "database", `START_REPLICATION SLOT changes LOGICAL 0/0 (proto_version '1', publication_names 'changes')`)
	warns("") // it reads other tables
	require.NoError(t, logical.Close(ctx))
	standby := replicates(t, server, "true", "START_REPLICATION PHYSICAL 0/1000000")
	warns("", o.Schema+".counts is UNLOGGED and the server has standbys", o.Schema+".leases is UNLOGGED")
	exec("alter table $schema.counts set logged; alter table $schema.leases set logged")
	warns("")
	require.NoError(t, standby.Close(ctx))
	_, err := ask(s, backend.Take, "k", daily(1))
	require.NoError(t, err)
}

// replicates is a connection that gets the server's log, as a standby's does.
func replicates(t *testing.T, server *postgrestest.Server, kind, command string) *pgconn.PgConn {
	c, err := pgconn.Connect(context.Background(), server.URL()+"replication="+kind)
	require.NoError(t, err)
	c.Frontend().SendQuery(&pgproto3.Query{String: command})
	require.NoError(t, c.Frontend().Flush())
	m, err := c.ReceiveMessage(context.Background())
	require.NoError(t, err)
	require.IsType(t, &pgproto3.CopyBothResponse{}, m)
	return c
}

// TestPooler: behind a pooler in transaction mode, a store whose URL prepares no statements
// decides exactly. Any other is warned by Ping, and by the error of the call that fails.
func TestPooler(t *testing.T) {
	server, ctx := postgrestest.Shared(t), context.Background()
	_, o, _ := pinged(t, server)
	pooler, ps := server.Pooler(t), daily(100)
	flood := func(s *postgres.Store, key string, call func(error)) (passed int64) {
		var n atomic.Int64
		var all sync.WaitGroup
		for i := range 32 {
			all.Add(1)
			go func() {
				defer all.Done()
				for range 20 {
					if i%2 > 0 {
						_, _ = ask(s, backend.Take, fmt.Sprint(key, i), ps)
						continue
					}
					d, err := ask(s, backend.Take, key, ps)
					if call(err); err == nil && d.Allowed {
						n.Add(1)
					}
				}
			}()
		}
		all.Wait()
		return n.Load()
	}
	plain := postgres.New(pool(t, pooler, "default_query_exec_mode=exec&pool_max_conns=16"), o)
	warnings, err := plain.Ping(ctx)
	require.NoError(t, err)
	require.Empty(t, warnings)
	var refused atomic.Int64 // calls of a flight whose new connection the pooler closed
	require.EqualValues(t, 100, flood(plain, "plain", func(err error) {
		var broken *pgconn.ConnectError
		if errors.As(err, &broken) {
			refused.Add(1)
			assert.ErrorContains(t, err, "call not counted")
			return
		}
		assert.NoError(t, err)
	}))
	require.Less(t, refused.Load(), int64(32), "of 320 calls")

	prepares := postgres.New(pool(t, pooler, "pool_max_conns=16"), o)
	warnings, err = prepares.Ping(ctx)
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(warnings), "default_query_exec_mode=exec")
	var named, others atomic.Int64
	flood(prepares, "prepares", func(err error) {
		switch {
		case err != nil && strings.Contains(err.Error(), "default_query_exec_mode=exec"):
			named.Add(1)
		case err != nil:
			others.Add(1)
		}
	})
	t.Log("errors that name the setting:", named.Load(), "others:", others.Load())
	require.Positive(t, named.Load())
}
