package postgres

import (
	"bytes"
	"context"
	"hash/fnv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// Unused rows are deleted while calls come. From time to time a process reads some rows in the
// order of their keys, and deletes those that have expired and are not locked. One process does
// so at a time. A store without calls runs nothing.

const (
	sweepEvery = time.Second // between two sweeps of a process
	sweepRows  = 1000        // that a sweep looks at, at least
)

// sweeps is how far the sweeps of a store are.
type sweeps struct {
	next  atomic.Int64 // when the next one may begin, as UnixNano
	keys  atomic.Int64 // of transactions since the last one
	under atomic.Bool
	// The cursors belong to the sweep that is under way.
	key             []byte
	leaseKey, lease []byte
}

// swept counts the keys of a transaction, and begins a sweep if one is due.
func (s *Store) swept(keys int) {
	w := &s.sweeps
	if s.clock.Load() != nil { // a test sweeps by itself
		return
	}
	w.keys.Add(int64(keys))
	now := time.Now().UnixNano()
	if next := w.next.Load(); now < next || !w.next.CompareAndSwap(next, now+int64(sweepEvery)) || !w.under.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer w.under.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), 10*s.opts.Budget)
		defer cancel()
		_ = s.sweep(ctx, max(sweepRows, int(w.keys.Swap(0))), nil) // after an error the next one goes on
	}()
}

// sweep reads n rows of each table, and deletes those that have expired at the instant before.
// If before is nil, the instant is some time before the server's present one.
func (s *Store) sweep(ctx context.Context, n int, before *int64) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var alone bool
		err := tx.QueryRow(ctx, `select pg_try_advisory_xact_lock($1)`, s.sweepLock()).Scan(&alone)
		//mutant:one-process-sweeps
		if err != nil || !alone {
			return err
		}
		w := &s.sweeps
		if err := s.sweepCounts(ctx, tx, w, n, before); err != nil {
			return err
		}
		return s.sweepLeases(ctx, tx, w, n, before)
	})
}

// sweepLock returns the number by which the processes of a store agree on who sweeps.
func (s *Store) sweepLock() int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("headgate sweeps " + s.opts.table("")))
	return int64(h.Sum64())
}

func (s *Store) sweepCounts(ctx context.Context, tx pgx.Tx, w *sweeps, n int, before *int64) error {
	rows, err := tx.Query(ctx, s.sql.look, from(w.key), n, before)
	if err != nil {
		return err
	}
	var key []byte
	var expired [][]byte
	var ends bool
	_, err = pgx.ForEachRow(rows, []any{&key, &ends}, func() error {
		if ends {
			expired = append(expired, append([]byte{}, key...))
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.key = bytes.Clone(key) // nil behind the last one: the next sweep begins anew
	if len(expired) > 0 {
		_, err = tx.Exec(ctx, s.sql.sweep, expired, before)
	}
	return err
}

func (s *Store) sweepLeases(ctx context.Context, tx pgx.Tx, w *sweeps, n int, before *int64) error {
	rows, err := tx.Query(ctx, s.sql.lookLeases, from(w.leaseKey), from(w.lease), n, before)
	if err != nil {
		return err
	}
	var key, id []byte
	var keys, ids [][]byte
	var ends bool
	_, err = pgx.ForEachRow(rows, []any{&key, &id, &ends}, func() error {
		if ends {
			keys, ids = append(keys, append([]byte{}, key...)), append(ids, append([]byte{}, id...))
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.leaseKey, w.lease = bytes.Clone(key), bytes.Clone(id)
	if len(keys) > 0 {
		_, err = tx.Exec(ctx, s.sql.sweepLeases, keys, ids, before)
	}
	return err
}

// from returns where a sweep begins, which is no NULL.
func from(cursor []byte) []byte {
	if cursor == nil {
		return []byte{}
	}
	return cursor
}
