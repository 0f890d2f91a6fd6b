// Package postgres keeps the counts in tables of a PostgreSQL database, version 15 or newer.
//
// A decision is a transaction. It locks the rows of its keys, decides by the rules of package
// algo and the server's clock, and writes the rows that changed. It is exact per key while
// the primary lives. Calls that wait together share a transaction.
//
// The tables are UNLOGGED by default. After a crash of the server and after a failover all
// counts are zero. Options.Logged keeps them.
//
// Migrate creates the tables. SQL prints the statements for a role that may.
package postgres

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/backend"
	_ "github.com/headgate-go/headgate/backend/memory" // decides, by backend/internal/rows
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Store is a backend.Store on one PostgreSQL server. Make one with Open or New and share it:
// it is safe for concurrent use. It has no goroutine while no call is under way.
type Store struct {
	pool   *pgxpool.Pool
	owned  bool
	opts   Options
	sql    statements
	queue  *queue
	sweeps sweeps
	probes probes
	err    error // of the arguments; Check returns it
	shared layer.Shared
	clock  atomic.Pointer[func() int64] // in place of the server's, in tests; nil: the server's
}

// Open returns a store on the server of a URL, such as
// "postgres://user:password@host:5432/database". The URL has the settings of pgx and its
// pool: default_query_exec_mode=exec is for a pooler in transaction mode, which keeps no
// prepared statement. Open does no I/O.
func Open(url string, opts *Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The error of pgx has the URL, and may have its password.
		return nil, &backend.InvalidError{What: "URL of PostgreSQL", Value: "(hidden: it may hold a password)", Want: "as postgres://user@host:5432/database"}
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, hidden(err)
	}
	s := New(pool, opts)
	if s.owned = true; s.err != nil {
		pool.Close()
		return nil, s.err
	}
	return s, nil
}

// New returns the store on a pool, which stays open when the store is closed. Check and
// headgate.New return the error of wrong arguments. A decision has a connection of the pool
// for itself, and at most half of the pool's connections, at least one, decide at a time.
func New(pool *pgxpool.Pool, opts *Options) *Store {
	s := &Store{pool: pool, opts: opts.defaults()}
	if s.err = s.opts.check(); s.err == nil && pool == nil {
		s.err = &backend.InvalidError{What: "pool", Value: nil, Want: "a *pgxpool.Pool"}
	}
	if s.err != nil {
		return s
	}
	c := pool.Config()
	s.opts.Name = cmp.Or(s.opts.Name, net.JoinHostPort(c.ConnConfig.Host, strconv.Itoa(int(c.ConnConfig.Port))))
	s.sql = texts(&s.opts)
	s.queue = newQueue(s, max(1, min(maxFlights, int(c.MaxConns)/2)))
	s.shared.Budget = s.opts.Budget
	return s
}

// Shared returns what all limiters on this store share; it is for Headgate's own layers.
func (s *Store) Shared() *layer.Shared { return &s.shared }

// maxEntries is the maximum limit of an algorithm that keeps an entry per call or slot, since each
// charge rewrites all of them.
const maxEntries = 10_000

// Check reports whether the store can keep these policies, and whether the arguments of New
// were right. A SlidingLog, CompactLog or InFlight of more than 10,000 is backend.ErrUnsupported.
// Check does no I/O.
func (s *Store) Check(policies []backend.Policy) error {
	if err := s.usable(); err != nil {
		return err
	}
	if err := backend.CheckPolicies(policies); err != nil {
		return err
	}
	for i := range policies {
		p, a := &policies[i], &policies[i].Algorithm
		grows := a.Kind().Words() == 0 && a.Identity().Buckets == 0
		//mutant:postgres-large-records
		if grows && a.Max() > maxEntries {
			return fmt.Errorf("%w: policy %q counts by %v, and a row of PostgreSQL holds at most %d entries: prefer SlidingWindow or BucketedWindow", backend.ErrUnsupported, p.Name, a, maxEntries)
		}
	}
	return nil
}

// usable returns the error of New's arguments, or that of a zero Store.
func (s *Store) usable() error {
	if s == nil || s.err == nil && s.queue == nil {
		return &backend.InvalidError{What: "store", Value: "postgres.Store{}", Want: "one that postgres.Open or New returned"}
	}
	return s.err
}

// Capabilities returns what the store can do.
func (s *Store) Capabilities() backend.Capabilities { return capabilities }

var capabilities = backend.Capabilities{
	Ops: backend.OpsOf(backend.Take, backend.Peek, backend.Settle, backend.Reset,
		backend.Reserve, backend.Extend, backend.Record, backend.Return, backend.Borrow),
	Keys: backend.MaxKeys,
}

// Do decides one request; see backend.Store.
func (s *Store) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	if err := s.ready(ctx, r); err != nil {
		return err
	}
	c := newCall(ctx, r, s.opts.Budget)
	s.queue.add(c)
	return c.wait(ctx, r, d)
}

// DoAll decides several requests at once; see layer.Batcher.
func (s *Store) DoAll(ctx context.Context, rs []backend.Request, answers []backend.Answer) {
	all := make([]*call, len(rs))
	var sent []*call
	for i := range rs {
		if answers[i].Err = s.ready(ctx, &rs[i]); answers[i].Err == nil {
			all[i] = newCall(ctx, &rs[i], s.opts.Budget)
			sent = append(sent, all[i])
		}
	}
	s.queue.add(sent...)
	for i, c := range all {
		if c != nil {
			answers[i].Err = c.wait(ctx, &rs[i], &answers[i].Decision)
		}
	}
}

// ready returns the errors that need no server.
func (s *Store) ready(ctx context.Context, r *backend.Request) error {
	if err := s.usable(); err != nil {
		return err
	}
	//mutant:postgres-closed
	if s.shared.Closed.Load() {
		return backend.ErrClosed
	}
	if err := r.Check(ctx, capabilities); err != nil {
		return err
	}
	//mutant:postgres-unsound-policies
	if !r.Op.Costs() { // whose algorithms Check has not looked at
		if err := backend.CheckPolicies(r.Policies); err != nil {
			return err
		}
	}
	return nil
}

// Close makes every later request backend.ErrClosed. A pool that New was given stays open;
// one that Open made is closed, when the decisions under way have ended. Before that, Close
// gives back the units that limiters have borrowed, within two budgets.
func (s *Store) Close() error {
	if err := s.usable(); err != nil {
		return err
	}
	if !s.shared.Close() && s.owned {
		s.pool.Close()
	}
	return nil
}

// left returns the time until an instant, at least a millisecond.
func left(until time.Time) time.Duration { return max(time.Until(until), time.Millisecond) }
