package postgres

import (
	"context"
	"errors"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// changes collects what the calls have changed.
func (f *flight) changes() {
	u, k := &f.update, &f.keep
	u.ids, u.data, u.expires, f.remove = u.ids[:0], u.data[:0], u.expires[:0], f.remove[:0]
	k.ids, k.held, k.data, k.expires = k.ids[:0], k.held[:0], k.data[:0], k.expires[:0]
	if !f.writes {
		return
	}
	for i := range f.held {
		h := &f.held[i]
		of := f.keys[h.key]
		if of.bad != nil {
			continue
		}
		text := f.rows.Lease
		if h.lent {
			text = f.rows.Borrower
		}
		if data, until := text(of.name, h.id); data != nil && string(data) != string(h.data) {
			k.ids, k.held = append(k.ids, []byte(h.key)), append(k.held, []byte(h.rowID()))
			k.data, k.expires = append(k.data, data), append(k.expires, until)
		}
	}
	for _, id := range f.ids {
		of := f.keys[id]
		if of.bad != nil {
			continue
		}
		switch data, until := f.rows.Row(of.name); {
		case data != nil:
			u.ids, u.data, u.expires = append(u.ids, []byte(id)), append(u.data, data), append(u.expires, until)
		case of.data == nil: // it was inserted
			f.remove = append(f.remove, []byte(id))
		}
	}
}

// commit writes the changes and commits. An error says what is known: it is ErrPerhapsCounted
// where the answer to commit was lost.
func (f *flight) commit(ctx context.Context, conn *pgxpool.Conn) error {
	s, b := f.store, &pgx.Batch{}
	if u := &f.update; len(u.ids) > 0 {
		b.Queue(s.sql.update, u.ids, u.data, u.expires)
	}
	if k := &f.keep; len(k.ids) > 0 {
		b.Queue(s.sql.keep, k.ids, k.held, k.data, k.expires)
	}
	if len(f.remove) > 0 {
		b.Queue(s.sql.remove, f.remove)
	}
	b.Queue(s.sql.commit)
	results := conn.SendBatch(ctx, b)
	var tag string
	var err error
	for range b.Len() {
		t, e := results.Exec()
		if tag = t.String(); e != nil {
			err = e
			break
		}
	}
	if e := results.Close(); err == nil {
		err = e
	}
	switch {
	case err == nil && tag == "COMMIT":
		return nil
	case err == nil:
		return backend.Wrap(backend.ErrUnavailable, errors.New("the server undid the transaction"))
	case undone(err):
		return unavailable(err)
	}
	return backend.Wrap(backend.ErrPerhapsCounted, backend.Wrap(layer.ErrFailed, hidden(err)))
}
