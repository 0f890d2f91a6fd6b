package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/jackc/pgx/v5/pgxpool"
)

// oldest is the oldest version of the server that the store is for.
const oldest = 140000

// errReadOnly is the error of a server that takes no writes, such as a standby.
var errReadOnly = errors.New("the server is read-only, as a standby is")

// Ping checks what the server is, and decides a Take that no count is kept of. It returns an
// error if the server is older than version 14, or is a standby. It does so too if tables are
// missing or have another shape, and if rights are missing. Warnings are unlogged tables where the server has
// standbys, a pool that may take all connections, and a clock that differs from this host's.
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
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	defer conn.Release()
	for _, check := range []func(context.Context, *pgxpool.Conn) ([]string, error){s.checkServer, s.checkTables, s.checkClock} {
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
	if errors.Is(err, backend.ErrServerTooOld) || errors.Is(err, backend.ErrUnavailable) {
		return err
	}
	return unavailable(err)
}

// checkServer checks the version, and that the server takes writes.
func (s *Store) checkServer(ctx context.Context, conn *pgxpool.Conn) (warnings []string, err error) {
	var version, most, reserved int
	var standby bool
	err = conn.QueryRow(ctx, `select current_setting('server_version_num')::int, pg_is_in_recovery() or current_setting('transaction_read_only') = 'on',
		current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int`).Scan(&version, &standby, &most, &reserved)
	switch {
	case err != nil:
		return nil, err
	case version < oldest:
		return nil, fmt.Errorf("%w: PostgreSQL %d, and 14 is the oldest", backend.ErrServerTooOld, version/10000)
	//mutant:postgres-standby
	case standby:
		return nil, errReadOnly
	}
	//mutant:postgres-connections
	if n := int(s.pool.Config().MaxConns); n > most-reserved {
		warnings = append(warnings, fmt.Sprintf("the pool may open %d connections, and the server admits %d: lower pool_max_conns", n, most-reserved))
	}
	return warnings, nil
}

// checkTables checks the shape of both tables, the rights, and whether standbys would lack
// the counts.
func (s *Store) checkTables(ctx context.Context, conn *pgxpool.Conn) (warnings []string, err error) {
	for _, table := range []struct{ name, columns string }{{"counts", "key, expires, data"}, {"leases", "key, id, expires, data"}} {
		name := s.opts.table(table.name)
		rows, err := conn.Query(ctx, fmt.Sprintf("select %s from %s limit 0", table.columns, name))
		if err != nil {
			return nil, err
		}
		rows.Close()
		if err := rows.Err(); err != nil {
			return nil, err
		}
		var rights, unlogged, standbys bool
		err = conn.QueryRow(ctx, `select has_table_privilege($1::regclass, 'insert') and has_table_privilege($1::regclass, 'update') and has_table_privilege($1::regclass, 'delete'),
			(select relpersistence = 'u' from pg_class where oid = $1::regclass), exists (select from pg_replication_slots where active)`, name).Scan(&rights, &unlogged, &standbys)
		switch {
		case err != nil:
			return nil, err
		//mutant:postgres-rights
		case !rights:
			return nil, &backend.RightError{Node: s.opts.Name, Rights: []string{"SELECT", "INSERT", "UPDATE", "DELETE on " + name}}
		case unlogged && standbys:
			warnings = append(warnings, name+" is UNLOGGED and the server has standbys: after a failover it is empty there; see Options.Logged")
		}
	}
	return warnings, nil
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
