package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var errSwept = errors.New("a row was swept meanwhile")

// lock locks the rows of the keys and reads all that the calls need. It returns the instant
// of the decision. Of calls that only look it locks nothing.
func (f *flight) lock(ctx context.Context, conn *pgxpool.Conn) (now int64, err error) {
	s, ids := f.store, bytesOf(f.ids)
	b := &pgx.Batch{}
	if f.writes {
		b.Queue(s.sql.begin)
		ms := millis(left(f.until))
		b.Queue(s.sql.set, ms, millis(max(s.opts.Budget/2, time.Millisecond)))
		b.Queue(s.sql.insert, ids)
	}
	rows := 0
	read := func(sql string) {
		b.Queue(sql, ids).Query(func(r pgx.Rows) error {
			rows, err = f.read(r)
			return err
		})
	}
	if f.writes {
		read(s.sql.lock)
	} else {
		read(s.sql.read)
	}
	if len(f.held) > 0 {
		keys, held := make([][]byte, len(f.held)), make([][]byte, len(f.held))
		for i := range f.held {
			keys[i], held[i] = []byte(f.held[i].key), []byte(f.held[i].rowID())
		}
		b.Queue(s.sql.leases, keys, held).Query(f.readHeld)
	}
	// A statement of its own: it runs when the rows are locked.
	b.Queue(s.sql.clock).QueryRow(func(r pgx.Row) error { return r.Scan(&now) })
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return 0, err
	}
	//mutant:swept-row-again
	if f.writes && rows < len(f.ids) {
		return 0, errSwept
	}
	return now, nil
}

// read reads the rows of keys and returns how many there are.
func (f *flight) read(r pgx.Rows) (n int, err error) {
	for _, k := range f.keys {
		k.data = nil
	}
	for ; r.Next(); n++ {
		var id, data []byte
		if err := r.Scan(&id, &data); err != nil {
			return n, err
		}
		if k := f.keys[string(id)]; k != nil && len(data) > 0 {
			k.data = data
		}
	}
	return n, r.Err()
}

// readHeld reads the rows of leases and borrowers.
func (f *flight) readHeld(r pgx.Rows) error {
	for i := range f.held {
		f.held[i].data = nil
	}
	for r.Next() {
		var key, id, data []byte
		if err := r.Scan(&key, &id, &data); err != nil {
			return err
		}
		for i := range f.held {
			if h := &f.held[i]; h.key == string(key) && h.rowID() == string(id) {
				h.data = data
			}
		}
	}
	return r.Err()
}

// stepBack is how far the clock may step back without effect. A row that was written up to
// stepBack after the clock's instant is decided at the instant of its last decision.
const stepBack = int64(time.Second / time.Microsecond)

// instant returns the instant of the decision: the server's, and not before any row's latest.
func (f *flight) instant(now int64) int64 {
	if clock := f.store.clock.Load(); clock != nil {
		return (*clock)()
	}
	from := now
	for _, k := range f.keys {
		//mutant:postgres-newest-instant
		if at := f.rows.Latest(k.data); at > now && at <= from+stepBack {
			now = at
		}
	}
	return now
}

// put puts the rows that were read.
func (f *flight) put() {
	for _, k := range f.keys {
		k.bad = f.rows.Put(k.name, k.data)
	}
	for i := range f.held {
		h := &f.held[i]
		k := f.keys[h.key]
		if h.data == nil || k.bad != nil {
			continue
		}
		if h.lent {
			k.bad = f.rows.PutBorrower(k.name, h.id, h.data)
		} else {
			k.bad = f.rows.PutLease(k.name, h.id, h.data)
		}
	}
}

// corrupt returns the error of a call on a key whose row is not ours.
func (f *flight) corrupt(c *call) error {
	for _, id := range c.ids {
		if k := f.keys[id]; k.bad != nil {
			return &backend.CorruptError{Key: k.name.Key, Stored: f.store.opts.table("counts")}
		}
	}
	return nil
}
