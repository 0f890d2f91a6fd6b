package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/inspect"
)

// Keys returns the stored keys whose limited key begins with prefix. It is for
// tools and not for the path of a request, since it looks at every key of every
// primary (SCAN). A key may come twice, and one that is written meanwhile, or
// that moves to another node, may or may not come. A key whose name is not
// stored comes where prefix is "". An error ends the keys of one node, which it
// names; those of the others come all the same. The budget holds for each of its round
// trips, ctx for all.
func (s *Store) Keys(ctx context.Context, prefix string) iter.Seq2[backend.StoredKey, error] {
	return func(yield func(backend.StoredKey, error) bool) {
		nodes, err := s.inspect(ctx)
		if err != nil {
			yield(backend.StoredKey{}, err)
			return
		}
		for i, more := 0, true; more && i < len(nodes); i++ {
			more, err = nodes[i].inspected().Keys(ctx, prefix, func(k backend.StoredKey) bool { return yield(k, nil) })
			if err != nil {
				//mutant:keys-of-living-nodes
				more = yield(backend.StoredKey{}, err) && ctx.Err() == nil
			}
		}
	}
}

// Stored returns what is stored of a key: of the key itself, and of each
// sub-key where limiters spread it. It looks for them as Keys does: beside an error that
// names the nodes without an answer, it returns what the others have.
func (s *Store) Stored(ctx context.Context, key string) ([]backend.Stored, error) {
	parts := inspect.Parts{}
	err := s.each(ctx, func(n inspect.Node) error { return parts.Add(ctx, n, key) })
	return parts.Sorted(), err
}

// each calls look for each primary. It returns the errors of all of them.
func (s *Store) each(ctx context.Context, look func(inspect.Node) error) error {
	nodes, err := s.inspect(ctx)
	errs := []error{err}
	//mutant:living-nodes-looked-at
	for i := 0; i < len(nodes) && ctx.Err() == nil; i++ {
		errs = append(errs, look(nodes[i].inspected()))
	}
	return errors.Join(errs...)
}

// inspect returns the primaries that have slots, for an operator's tool. A reload
// that is in progress has named only some of them, so inspect waits for its end.
func (s *Store) inspect(ctx context.Context) ([]*node, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if s.shared.Closed.Load() {
		return nil, backend.ErrClosed
	}
	if err := backend.CheckContext(ctx); err != nil {
		return nil, err
	}
	//mutant:inspect-waits
	if err := s.top.await(ctx, func() bool { return false }); err != nil {
		return nil, fmt.Errorf("headgate: call not sent, not counted: %w", err)
	}
	nodes := s.top.primaries()
	if len(nodes) == 0 {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, s.top.unknown(0, nil))
	}
	return nodes, nil
}

// Leases returns the reservations of a key that are not settled, those of its
// sub-keys too, the one that ends first at the beginning. It looks for them as Stored does.
func (s *Store) Leases(ctx context.Context, key string) ([]backend.StoredLease, error) {
	all := inspect.Leases{}
	err := s.each(ctx, func(n inspect.Node) error { return all.Add(ctx, n, key) })
	return all.Sorted(), err
}
