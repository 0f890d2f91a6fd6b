package shard

import (
	"context"
	"fmt"
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// Check asks next. It refuses a policy that only a Reserve charges if next has none.
func (s *Store) Check(policies []backend.Policy) error {
	if err := s.next.Check(policies); err != nil {
		return err
	}
	for i := range policies {
		if p := &policies[i]; p.Algorithm.Kind().Leased() && !s.Capabilities().Ops.Has(backend.Reserve) {
			return fmt.Errorf("%w: policy %q counts by %v", backend.ErrUnsupported, p.Name, &p.Algorithm)
		}
	}
	return nil
}

// CheckShards is Check for keys that are spread over so many sub-keys. It refuses a number that
// can't be kept; 0 and 1 are not spread.
//
// A share must pass at least one unit, so there are at most as many shares as units.
// Slots of an InFlight are not spread: a caller that finds its share full would be denied
// while others are free. Nor is a LeakyQueue, whose shares would each have delays of their own.
func (s *Store) CheckShards(policies []backend.Policy, shards int) error {
	if err := s.Check(policies); err != nil {
		return err
	}
	k, parts := int64(shards), slices.Clone(policies)
	for i := range policies {
		a, want := &policies[i].Algorithm, ""
		most := max(1, min(MaxShards, a.Max(), a.Limit().Events))
		switch {
		case k < 0 || k > most:
			want = fmt.Sprintf("0 to %d for policy %s: at most %d, the limit and the burst", most, policies[i].Name, MaxShards)
		case k >= 2 && (a.Kind().Leased() || a.Kind().Queues()):
			want = fmt.Sprintf("0 for policy %s: %v is not spread", policies[i].Name, a)
		case k >= 2:
			// The first part is the smallest: if it can be kept, so can all.
			if part := a.Part(0, k); part.Check() != nil {
				return backend.Wrap(fmt.Errorf("headgate: policy %q in %d shards", policies[i].Name, k), part.Check())
			}
			parts[i].Algorithm = a.Part(k-1, k)
		}
		if want != "" {
			return &backend.InvalidError{What: "shards", Value: shards, Want: want}
		}
	}
	if k < 2 {
		return nil
	}
	// A key falls back by sub-key, so next checks the greatest one too.
	//mutant:local-share-of-sub-key
	if err := s.next.Check(parts); err != nil {
		return backend.Wrap(fmt.Errorf("headgate: each of %d shards", k), err)
	}
	return nil
}

// CheckRequest refuses what Do refuses before it asks next. A call takes from one share, so
// its cost must fit in the first, which is the smallest.
//
// A run UpTo may charge several shares, each of its calls one. A shadow denies nothing, and is charged as far as its share has room.
func (s *Store) CheckRequest(ctx context.Context, r *backend.Request) error {
	//mutant:cost-of-whole-limit
	err := r.Check(ctx, s.next.Capabilities())
	if err != nil || !spread(r) {
		return err
	}
	//mutant:share-denies-alone
	if r.Op == backend.Borrow && r.Cost != 0 { // a share may deny what another one has room for
		return &backend.InvalidError{What: "cost", Value: r.Cost, Want: "0, for a Borrow of a spread key"}
	}
	if !r.Op.Costs() || r.Sub != "" {
		return nil
	}
	for j, p := range backend.Enforced(r.Policies) {
		//mutant:cost-above-share
		if n, least := r.CostOf(j), p.Algorithm.Max()/int64(r.Shards); n > least {
			want := fmt.Sprintf("at most %d, the smallest of the %d shares of policy %q", least, r.Shards, p.Name)
			return backend.Wrap(backend.ErrNeverAdmissible, &backend.InvalidError{What: "cost", Value: n, Want: want})
		}
	}
	return nil
}
