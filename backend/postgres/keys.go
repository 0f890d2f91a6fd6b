package postgres

import (
	"cmp"
	"context"
	"encoding/hex"
	"iter"
	"strings"

	"github.com/headgate-go/headgate/backend"
	"github.com/jackc/pgx/v5"
)

// keysAtOnce is how many keys one statement lists.
const keysAtOnce = 1000

// Keys lists the keys that something is counted of, in the order of their bytes. It is for
// operators: it reads the whole table, a page at a time. Of a key of more than 255 bytes only a
// hash is stored; it is listed without Key, and only if prefix is "". Name is the row's primary
// key in hex. An error is the last value.
func (s *Store) Keys(ctx context.Context, prefix string) iter.Seq2[backend.StoredKey, error] {
	return func(yield func(backend.StoredKey, error) bool) {
		if err := cmp.Or(s.usable(), backend.CheckContext(ctx)); err != nil {
			yield(backend.StoredKey{}, err)
			return
		}
		for from := prefix; ; {
			page, err := s.keysFrom(ctx, from)
			if err != nil {
				yield(backend.StoredKey{}, unavailable(err))
				return
			}
			for _, id := range page {
				hashed := len(id) > maxRowID
				switch {
				case !strings.HasPrefix(id, prefix):
					return
				case hashed && prefix != "":
					continue
				}
				k := backend.StoredKey{Name: hex.EncodeToString([]byte(id))}
				if !hashed {
					k.Key = id
				}
				if !yield(k, nil) {
					return
				}
			}
			if len(page) < keysAtOnce {
				return
			}
			from = page[len(page)-1] + "\x00" // the next one in the order of bytes
		}
	}
}

// keysFrom returns the primary keys from one on.
func (s *Store) keysFrom(ctx context.Context, from string) ([]string, error) {
	rows, err := s.pool.Query(ctx, s.sql.keys, []byte(from), keysAtOnce)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (string, error) {
		var id []byte
		err := r.Scan(&id)
		return string(id), err
	})
}
