package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// oldest is the oldest version of the server that is tested.
const oldest = 150000

// errReadOnly is the error of a server that takes no writes, such as a standby.
var errReadOnly = errors.New("the server is read-only, as a standby is")

// Ping checks what the server is, and runs each statement of a charge once, in a transaction that
// it undoes. It returns an error if the server is older than version 15, or a standby. It does so
// too if tables are missing or have another shape. Of missing rights a *backend.RightError has
// what GRANT takes. Warnings are unlogged tables where the server has standbys, and prepared
// statements behind a pooler. So are a pool that may open more connections than the server admits,
// and a clock that differs from this host's.
func (s *Store) Ping(ctx context.Context) (warnings []string, err error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if err := backend.CheckContext(ctx); err != nil {
		return nil, err
	}
	//mutant:postgres-ping-closed
	if s.shared.Closed.Load() {
		return nil, backend.ErrClosed
	}
	if leave, open := s.shared.Enter(s.opts.Name); open == nil { // else a ping may show why
		defer func() {
			if ctx.Err() != nil { // by the caller
				leave(layer.ErrExcused)
				return
			}
			leave(outcome(err))
		}()
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	defer conn.Release()
	for _, check := range []func(context.Context, *pgxpool.Conn) ([]string, error){s.checkServer, s.checkPooler, s.checkTables, s.checkCharge, s.checkClock} {
		w, err := check(ctx, conn)
		if err != nil {
			return nil, pingError(err)
		}
		warnings = append(warnings, w...)
	}
	return warnings, nil
}

// pingError returns an error of Ping that says what is known.
func pingError(err error) error {
	if errors.Is(err, backend.ErrServerTooOld) || errors.Is(err, backend.ErrUnavailable) || errors.As(err, new(*backend.RightError)) {
		return err
	}
	return unavailable(err)
}

// checkServer checks the version, that the server takes writes, and how many connections it
// admits.
func (s *Store) checkServer(ctx context.Context, conn *pgxpool.Conn) (warnings []string, err error) {
	var version, admitted int
	var standby bool
	err = conn.QueryRow(ctx, `select current_setting('server_version_num')::int, pg_is_in_recovery() or current_setting('transaction_read_only') = 'on',
		least(current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
			(select nullif(datconnlimit, -1) from pg_database where datname = current_database()),
			(select nullif(rolconnlimit, -1) from pg_roles where rolname = current_user))`).Scan(&version, &standby, &admitted)
	switch {
	case err != nil:
		return nil, err
	//mutant:postgres-version
	case version < oldest:
		return nil, fmt.Errorf("%w: PostgreSQL %d, and %d is the oldest", backend.ErrServerTooOld, version/10000, oldest/10000)
	//mutant:postgres-standby
	case standby:
		return nil, errReadOnly
	}
	//mutant:postgres-connections
	if n := int(s.pool.Config().MaxConns); n > admitted {
		warnings = append(warnings, fmt.Sprintf("the pool may open %d connections, and the server admits %d: lower pool_max_conns", n, admitted))
	}
	return warnings, nil
}

// checkPooler finds a pooler by the number of the session, which the pooler gives the client as
// its own. A prepared statement is one server connection's, and in transaction mode the next
// transaction may have another one.
func (s *Store) checkPooler(ctx context.Context, conn *pgxpool.Conn) (warnings []string, err error) {
	var pid uint32
	if err := conn.QueryRow(ctx, `select pg_backend_pid()`).Scan(&pid); err != nil {
		return nil, err
	}
	c := conn.Conn()
	mode := c.Config().DefaultQueryExecMode
	//mutant:postgres-pooler
	if pid != c.PgConn().PID() && (mode == pgx.QueryExecModeCacheStatement || mode == pgx.QueryExecModeDescribeExec) {
		warnings = append(warnings, "a pooler is between: if it is in transaction mode, the URL needs "+poolerMode)
	}
	return warnings, nil
}

// tablesSQL returns for each table whether it is there, whether it is unlogged, and which rights
// are missing. Names are looked up in the catalogue, which every role may read.
//
// A standby is a process that sends it the log, but for one that reads a logical slot: it gets
// what the log has of other tables.
const tablesSQL = `select w.name, c.oid is not null, coalesce(c.relpersistence = 'u', false),
	n.oid is not null and not has_schema_privilege(n.oid, 'usage'),
	array(select r from unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r where not has_table_privilege(c.oid, r)),
	exists (select from pg_replication_slots where active and slot_type = 'physical')
		or exists (select from pg_stat_replication r where not exists (select from pg_replication_slots s where s.active_pid = r.pid and s.slot_type = 'logical'))
	from unnest($2::text[]) w (name) left join pg_namespace n on n.nspname = $1 left join pg_class c on c.relnamespace = n.oid and c.relname = w.name`

// checkTables checks that the tables are there, the rights, and whether standbys would lack the
// counts.
func (s *Store) checkTables(ctx context.Context, conn *pgxpool.Conn) (warnings []string, err error) {
	rows, err := conn.Query(ctx, tablesSQL, s.opts.Schema, s.opts.tables())
	if err != nil {
		return nil, err
	}
	missing := &backend.RightError{Node: s.opts.Name}
	var name string
	var there, unlogged, noUsage, standbys bool
	var rights []string
	_, err = pgx.ForEachRow(rows, []any{&name, &there, &unlogged, &noUsage, &rights, &standbys}, func() error {
		table := s.opts.Schema + "." + name
		//mutant:postgres-usage
		if usage := "USAGE ON SCHEMA " + s.opts.Schema; noUsage && !slices.Contains(missing.Rights, usage) {
			missing.Rights = append(missing.Rights, usage)
		}
		//mutant:postgres-rights
		if len(rights) > 0 {
			missing.Rights = append(missing.Rights, strings.Join(rights, ", ")+" ON "+table)
		}
		//mutant:postgres-unlogged
		if unlogged && standbys {
			warnings = append(warnings, table+" is UNLOGGED and the server has standbys: after a failover it is empty there; see Options.Logged")
		}
		if !there {
			return ErrNoTables
		}
		return nil
	})
	switch {
	case errors.Is(err, ErrNoTables):
		return nil, backend.Wrap(backend.ErrUnavailable, err)
	case err == nil && len(missing.Rights) > 0:
		return nil, missing
	}
	return warnings, err
}

// checkCharge runs the statements of a charge, of a key that no caller has, and undoes them. They
// fail if a column or a primary key is not as Migrate has made it, or if a trigger refuses.
func (s *Store) checkCharge(ctx context.Context, conn *pgxpool.Conn) ([]string, error) {
	id, b := make([]byte, maxRowID+3), &pgx.Batch{}
	_, _ = rand.Read(id)
	keys, empty, never := [][]byte{id}, [][]byte{{}}, []int64{0}
	b.Queue(s.sql.begin)
	ms := millis(s.opts.Budget)
	b.Queue(s.sql.set, ms, ms)
	b.Queue(s.sql.insert, keys)
	b.Queue(s.sql.lock, keys)
	b.Queue(s.sql.leases, keys, keys)
	b.Queue(s.sql.update, keys, empty, never)
	b.Queue(s.sql.keep, keys, keys, empty, never)
	b.Queue(s.sql.remove, keys)
	b.Queue("rollback")
	err := conn.SendBatch(ctx, b).Close()
	if err != nil {
		_, _ = conn.Exec(ctx, "rollback")
	}
	return nil, err
}

// farClock is by how much the clocks may differ before Ping says so.
const farClock = time.Second

// checkClock compares the clocks. A count follows the server's, and a caller waits by its own.
func (s *Store) checkClock(ctx context.Context, conn *pgxpool.Conn) (warnings []string, err error) {
	var at int64
	before := time.Now()
	if err := conn.QueryRow(ctx, s.sql.clock).Scan(&at); err != nil {
		return nil, err
	}
	took := time.Since(before)
	if took > s.opts.Budget/2 {
		warnings = append(warnings, fmt.Sprintf("a round trip takes %v, and a decision two, within %v", took, s.opts.Budget))
	}
	//mutant:postgres-clock
	if off := time.UnixMicro(at).Sub(before.Add(took / 2)).Abs(); off > farClock {
		warnings = append(warnings, fmt.Sprintf("the server's clock differs from this host's by %v: a Calendar's days begin by the server's", off.Round(time.Millisecond)))
	}
	return warnings, nil
}

var _ interface {
	backend.Store
	backend.Pinger
	layer.Batcher
} = (*Store)(nil)
