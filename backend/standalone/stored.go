package standalone

import (
	"context"
	"iter"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/inspect"
)

// Keys returns the stored keys whose limited key begins with prefix. It is for
// tools and not for the path of a request, since it looks at every key of the
// server (SCAN). A key may come twice, and one that is written meanwhile may or
// may not come. A key whose name is not stored comes where prefix is "". An
// error ends it. The budget holds for each of its round trips, ctx for all.
func (s *Store) Keys(ctx context.Context, prefix string) iter.Seq2[backend.StoredKey, error] {
	return func(yield func(backend.StoredKey, error) bool) {
		err := s.inspect(ctx)
		if err == nil {
			_, err = s.inspected().Keys(ctx, prefix, func(k backend.StoredKey) bool { return yield(k, nil) })
		}
		if err != nil {
			yield(backend.StoredKey{}, err)
		}
	}
}

// Stored returns what is stored of a key: of the key itself, and of each
// sub-key where limiters spread it. It looks for them as Keys does.
func (s *Store) Stored(ctx context.Context, key string) ([]backend.Stored, error) {
	if err := s.inspect(ctx); err != nil {
		return nil, err
	}
	parts := inspect.Parts{}
	if err := parts.Add(ctx, s.inspected(), key); err != nil {
		return nil, err
	}
	return parts.Sorted(), nil
}

// inspect refuses what can't be looked at. Keys and Stored bypass the batches
// and the circuit: a tool should see the server as it is.
func (s *Store) inspect(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	if s.shared.Closed.Load() {
		return backend.ErrClosed
	}
	return backend.CheckContext(ctx)
}

// Leases returns the reservations of a key that are not settled, those of its
// sub-keys too, the one that ends first at the beginning. It looks for them as Keys does.
func (s *Store) Leases(ctx context.Context, key string) ([]backend.StoredLease, error) {
	if err := s.inspect(ctx); err != nil {
		return nil, err
	}
	all := inspect.Leases{}
	if err := all.Add(ctx, s.inspected(), key); err != nil {
		return nil, err
	}
	return all.Sorted(), nil
}
