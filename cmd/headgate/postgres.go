package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	neturl "net/url"
	"os"
	"strings"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/postgres"
)

// postgresFlags are the flags of every command that a PostgreSQL can answer.
var postgresFlags = []string{"postgres", "schema", "prefix", "timeout"}

// postgresURL returns the URL of -postgres, or of the variable unless a flag names another
// server; "" is another server.
func (s *session) postgresURL() (string, error) {
	redis, named := s.redis+s.cluster+s.sentinel, cmp.Or(s.postgres, os.Getenv("HEADGATE_POSTGRES"))
	switch {
	//mutant:postgres-or-redis
	case s.postgres != "" && redis != "":
		return "", misuse{errors.New("-postgres and -redis, -cluster or -sentinel: want one of them")}
	case s.postgres != "":
		return s.postgres, nil
	case redis != "":
		return "", nil
	case named != "" && os.Getenv("HEADGATE_REDIS") != "":
		return "", misuse{errors.New("HEADGATE_POSTGRES and HEADGATE_REDIS are set: want -postgres or -redis")}
	}
	return named, nil
}

func (s *session) postgresOptions() *postgres.Options {
	return &postgres.Options{Budget: s.timeout, Schema: s.schema, Prefix: s.prefix, Logged: s.durable}
}

// openPostgres makes the store on a PostgreSQL. It does no I/O.
func (s *session) openPostgres(url string) error {
	if s.cert+s.key+s.ca != "" {
		return misuse{errors.New("-cert, -key and -ca: with -postgres want sslcert, sslkey and sslrootcert in the URL")}
	}
	st, err := postgres.Open(url, s.postgresOptions())
	if err != nil {
		return misuse{fmt.Errorf("-postgres: %w", err)}
	}
	if u, err := neturl.Parse(url); err == nil {
		s.user = u.User.Username()
	}
	s.store = st
	return nil
}

// inspected connects, and returns the store if it tells what its counts are of. A PostgreSQL has
// the names neither of policies nor of what a reservation was charged by.
func (s *session) inspected(ctx context.Context) (inspector, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	i, ok := s.store.(inspector)
	if !ok && s.command == "leases" {
		return nil, misuse{errors.New("leases: a PostgreSQL does not list them; want -redis or -cluster")}
	}
	if !ok {
		return nil, misuse{errors.New(s.command + ": a PostgreSQL does not keep which policies count: want -policies FILE")}
	}
	return i, nil
}

// migrate creates the tables of a PostgreSQL, or prints the statements.
func migrate(ctx context.Context, s *session, _ []string) error {
	sql, err := postgres.SQL(s.postgresOptions())
	if err != nil {
		return misuse{err}
	}
	if s.printSQL {
		_, err := fmt.Fprint(s.out, sql)
		return err
	}
	url, err := s.postgresURL()
	if err == nil && url == "" {
		err = misuse{errors.New("migrate: want -postgres URL, or -sql")}
	}
	if err == nil {
		err = s.openPostgres(url)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.store.(*postgres.Store).Migrate(ctx); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "the tables are there: %s.%scounts, %[1]s.%[2]sleases\n", cmp.Or(s.schema, postgres.DefaultSchema), s.prefix)
	return nil
}

// grantSQL returns the statements that grant the rights of an error of a PostgreSQL.
func (s *session) grantSQL(missing *backend.RightError) string {
	var all []string
	for _, right := range missing.Rights {
		all = append(all, fmt.Sprintf("GRANT %s TO %s;", right, cmp.Or(s.user, "ROLE")))
	}
	return strings.Join(all, " ")
}
