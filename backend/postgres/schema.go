package postgres

import (
	"context"
	"fmt"

	"github.com/headgate-go/headgate/backend"
)

// The tables have a row per key, and one per lease and borrower of a key. The rows of a lease
// are apart, since a key may have thousands of them, and a take rewrites the row of its key.
//
// A row of a key stays as long as its leases. Its numbers show which of them a Reset has ended.
//
// No index is on a column that an update changes. So updates are HOT: they write no
// index, and the page's next visitor removes what they leave.

// SQL returns the statements by which Migrate creates the tables, for a role that may create
// them where the store's own may not. They may run again. The store's role then needs USAGE on
// the schema, and SELECT, INSERT, UPDATE and DELETE on both tables.
func SQL(opts *Options) (string, error) {
	o := opts.defaults()
	if err := o.check(); err != nil {
		return "", err
	}
	unlogged := "UNLOGGED "
	if o.Logged {
		unlogged = ""
	}
	return fmt.Sprintf(createSQL, o.Schema, unlogged, o.table("counts"), o.table("leases")), nil
}

// A schema that is there needs no right to create one, which IF NOT EXISTS would ask for.
const createSQL = `DO $$ BEGIN
	IF to_regnamespace('%[1]s') IS NULL THEN CREATE SCHEMA %[1]s; END IF;
END $$;
CREATE %[2]sTABLE IF NOT EXISTS %[3]s (
	key bytea PRIMARY KEY,
	expires bigint NOT NULL, -- microseconds since 1970, from when the row counts no more
	data bytea NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, toast_tuple_target = 4080);
ALTER TABLE %[3]s ALTER data SET STORAGE MAIN;
CREATE %[2]sTABLE IF NOT EXISTS %[4]s (
	key bytea,
	id bytea,
	expires bigint NOT NULL,
	data bytea NOT NULL,
	PRIMARY KEY (key, id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
`

// table returns the name of a table.
func (o *Options) table(name string) string { return o.Schema + "." + o.Prefix + name }

// Migrate creates the tables, if they are not there. No other method does. If they are, it needs
// no right to create them. Several processes may call it at once.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	sql, err := SQL(&s.opts)
	if err != nil {
		return err
	}
	var there int
	err = s.pool.QueryRow(ctx, `select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = any($2)`,
		s.opts.Schema, s.opts.tables()).Scan(&there)
	//mutant:migrated-already
	if err == nil && there < len(s.opts.tables()) {
		// In one transaction with the lock: two that create a table at once would fail.
		_, err = s.pool.Exec(ctx, fmt.Sprintf("select pg_advisory_xact_lock(%d);\n", s.sweepLock()+1)+sql)
	}
	if err != nil {
		return backend.Wrap(backend.ErrUnavailable, fmt.Errorf("migrate: %w", hidden(err)))
	}
	return nil
}

// tables returns the names of the tables within the schema.
func (o *Options) tables() []string { return []string{o.Prefix + "counts", o.Prefix + "leases"} }

// statements are the texts of a store's statements, each with the names of its tables.
type statements struct {
	begin, set, insert, lock, read, clock, leases string
	update, keep, remove, commit                  string
	look, sweep, lookLeases, sweepLeases, keys    string
}

// past returns the instant before which a row has expired: a parameter, or ten seconds ago by
// the server's clock, which may step.
func past(parameter string) string {
	return `coalesce(` + parameter + `::bigint, (extract(epoch from clock_timestamp()) * 1000000)::bigint - 10000000)`
}

// texts returns the statements on two tables.
//
// The rows are locked in the order of their bytes, and so are inserted ones. So no two
// transactions wait for each other, whatever keys they have.
func texts(o *Options) statements {
	counts, leases := o.table("counts"), o.table("leases")
	in := func(sql, table string) string { return fmt.Sprintf(sql, table) }
	return statements{
		begin: `begin isolation level read committed read write`,
		set: `select set_config('lock_timeout', $1, true), set_config('statement_timeout', $1, true),
			set_config('idle_in_transaction_session_timeout', $2, true), set_config('plan_cache_mode', 'force_generic_plan', true),
			set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`,
		insert: in(`insert into %s (key, expires, data) select k, 0, '' from unnest($1::bytea[]) k on conflict do nothing`, counts),
		lock:   in(`select key, data from %s where key = any($1::bytea[]) order by key for no key update`, counts),
		read:   in(`select key, data from %s where key = any($1::bytea[])`, counts),
		clock:  `select (extract(epoch from clock_timestamp()) * 1000000)::bigint`,
		leases: in(`select l.key, l.id, l.data from unnest($1::bytea[], $2::bytea[]) w (key, id) join %s l on l.key = w.key and l.id = w.id`, leases),
		update: in(`update %s c set data = w.data, expires = w.expires from unnest($1::bytea[], $2::bytea[], $3::bigint[]) w (key, data, expires) where c.key = w.key`, counts),
		keep: in(`insert into %s as l (key, id, data, expires) select * from unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[])
			on conflict (key, id) do update set data = excluded.data, expires = excluded.expires`, leases),
		remove: in(`delete from %s where key = any($1::bytea[])`, counts),
		commit: `commit`,
		keys:   in(`select key from %s where key >= $1 and expires > `+past("null")+` order by key limit $2`, counts),
		look:   in(`select key, expires < `+past("$3")+` from %s where key > $1 order by key limit $2`, counts),
		sweep: fmt.Sprintf(`delete from %[1]s where key in
			(select key from %[1]s where key = any($1::bytea[]) and expires < %[2]s order by key for update skip locked)`, counts, past("$2")),
		lookLeases: in(`select key, id, expires < `+past("$4")+` from %s where (key, id) > ($1, $2) order by key, id limit $3`, leases),
		sweepLeases: fmt.Sprintf(`delete from %[1]s where (key, id) in (select l.key, l.id from unnest($1::bytea[], $2::bytea[]) w (key, id)
			join %[1]s l on l.key = w.key and l.id = w.id where l.expires < %[2]s order by l.key, l.id for update of l skip locked)`, leases, past("$3")),
	}
}
