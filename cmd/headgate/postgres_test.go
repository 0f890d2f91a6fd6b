package main

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// TestPostgres: what the command shows and resets of a PostgreSQL, from the tables on.
func TestPostgres(t *testing.T) {
	server, limits := postgrestest.Start(t), write(t)
	at := func(more ...string) []string {
		return append(more, "-postgres", server.URL(), "-schema", "limits", "-prefix", "a_")
	}
	require.Contains(t, exec(t, 1, at("ping")...), "no tables in PostgreSQL: run headgate migrate")
	for range 2 {
		require.Equal(t, "the tables are there: limits.a_counts, limits.a_leases\n", exec(t, 0, at("migrate")...))
	}
	require.Contains(t, exec(t, 0, at("ping")...), "ok: primaries checked: 1 (127.0.0.1:")

	st, err := postgres.Open(server.URL(), &postgres.Options{Schema: "limits", Prefix: "a_"})
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close()) }()
	l := place{store: st}.limiter(t, "plain")
	for range 3 {
		_, err := l.Allow(t.Context(), "user:42")
		require.NoError(t, err)
	}
	require.Equal(t, "user:42\t757365723a3432\n", exec(t, 0, at("keys", "user:")...))
	require.Regexp(t, `fixed +FixedWindow\(1000 per 24h0m0s\) +1000 +3 +997`, exec(t, 0, at("peek", "user:42", "-policies", limits)...))
	require.Contains(t, exec(t, 0, at("peek", "nobody", "-policies", limits)...), "would pass")
	require.Contains(t, exec(t, 0, at("top", "-every", "0", "-policies", limits)...), "user:42")
	require.Contains(t, exec(t, 0, at("reset", "user:42", "-policies", limits)...), "fixed: 3 units had been used")
	require.Empty(t, exec(t, 0, at("keys")...))

	for _, command := range []string{"peek", "reset"} {
		require.Contains(t, exec(t, 2, at(command, "user:42")...), "want -policies FILE")
	}
	require.Contains(t, exec(t, 2, at("leases", "user:42")...), "a PostgreSQL does not list them")
}

// TestPostgresFlags: the tables' statements need no server, and command lines that can't run open
// none. No error has the password.
func TestPostgresFlags(t *testing.T) {
	sql, err := postgres.SQL(&postgres.Options{Schema: "limits", Logged: true})
	require.NoError(t, err)
	require.Equal(t, sql, exec(t, 0, "migrate", "-sql", "-schema", "limits", "-logged"))
	const there = "postgres://user:s3cret@127.0.0.1:1/db"
	for want, args := range map[string][]string{
		"want -postgres URL":                   {"migrate"},
		"want one of them":                     {"ping", "-postgres", there, "-redis", "localhost"},
		"want sslcert":                         {"ping", "-postgres", there, "-ca", "file"},
		"-postgres: ":                          {"ping", "-postgres", "postgres://user:s3cret@host:x/"},
		"a-z, 0-9 and _":                       {"migrate", "-sql", "-schema", "A"},
		"migrate has no flag -redis":           {"migrate", "-redis", "localhost"},
		"ping has no flag -sql":                {"ping", "-sql"},
		"HEADGATE_POSTGRES and HEADGATE_REDIS": {"ping", "-timeout", "1s"},
	} {
		t.Setenv("HEADGATE_POSTGRES", "")
		if args[0] == "ping" && len(args) == 3 && args[1] == "-timeout" {
			t.Setenv("HEADGATE_POSTGRES", there)
			t.Setenv("HEADGATE_REDIS", "localhost:1")
		}
		said := exec(t, 2, args...)
		require.Contains(t, said, want)
		require.NotContains(t, said, "s3cret")
	}
	t.Setenv("HEADGATE_REDIS", "")
	t.Setenv("HEADGATE_POSTGRES", there)
	said := exec(t, 1, "ping", "-timeout", "2s")
	require.Contains(t, said, "127.0.0.1")
	require.NotContains(t, said, "s3cret")
	require.NotContains(t, exec(t, 1, "migrate"), "s3cret")
}

// TestPostgresGrants: what ping prints can be pasted, and then the role can serve.
func TestPostgresGrants(t *testing.T) {
	server := postgrestest.Start(t)
	admin := server.URL()
	exec(t, 0, "migrate", "-postgres", admin)
	u, err := url.Parse(admin)
	require.NoError(t, err)
	u.User = url.User("app")
	as := func(sql string) {
		conn, err := pgx.Connect(t.Context(), admin)
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close(t.Context())) }()
		_, err = conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	as("create role app login")
	said := exec(t, 1, "ping", "-postgres", u.String())
	grants := "GRANT USAGE ON SCHEMA headgate TO app; GRANT SELECT, INSERT, UPDATE, DELETE ON headgate.counts TO app; GRANT SELECT, INSERT, UPDATE, DELETE ON headgate.leases TO app;"
	require.Contains(t, said, fmt.Sprint("to grant it, on ", server.Addr(), ":\n", grants))
	as(grants)
	require.Contains(t, exec(t, 0, "ping", "-postgres", u.String()), "ok:")
	require.Contains(t, exec(t, 1, "migrate", "-postgres", u.String(), "-schema", "own"), "permission denied")
}
