package shard

import (
	"context"
	"fmt"

	"github.com/headgate-go/headgate/backend"
)

// Check asks next. It refuses a number of shards that can't be kept, and a policy that only a
// Reserve charges if next has none.
//
// A share must pass at least one unit, so there are at most as many shares as units. All
// policies of a list are decided at one sub-key, so they have the same number of shares.
// Slots of an InFlight are not spread: a caller that finds its share full would be denied
// while others are free.
func (s *Store) Check(policies []backend.Policy) error {
	if err := s.next.Check(policies); err != nil {
		return err
	}
	for i := range policies {
		p, first, want := &policies[i], &policies[0], ""
		if p.Algorithm.Kind().Leased() && !s.Capabilities().Ops.Has(backend.Reserve) {
			return fmt.Errorf("%w: policy %q counts by %v", backend.ErrUnsupported, p.Name, &p.Algorithm)
		}
		k, most := int64(p.Shards), max(1, min(MaxShards, p.Algorithm.Max(), p.Algorithm.Limit().Events))
		switch {
		case k < 0 || k > most:
			want = fmt.Sprintf("0 to %d: at most %d, the limit and the burst", most, MaxShards)
		//mutant:one-number-of-shares
		case max(p.Shards, 1) != max(first.Shards, 1):
			want = fmt.Sprintf("%d, as policy %s has: all policies of a list lie together", first.Shards, first.Name)
		case k >= 2 && p.Algorithm.Kind().Leased():
			want = fmt.Sprintf("0: slots of %v are not spread", &p.Algorithm)
		case k >= 2:
			// The first part is the smallest: if it can be kept, so can all.
			if part := p.Algorithm.Part(0, k); part.Check() != nil {
				return backend.Wrap(fmt.Errorf("headgate: policy %q in %d shards", p.Name, k), part.Check())
			}
		}
		if want != "" {
			return &backend.InvalidError{What: "shards of policy " + p.Name, Value: p.Shards, Want: want}
		}
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
	for j := range r.Policies {
		p := &r.Policies[j]
		//mutant:shadow-above-share
		if p.Shadow {
			continue
		}
		//mutant:cost-above-share
		if n, least := r.CostOf(j), p.Algorithm.Max()/int64(p.Shards); n > least {
			want := fmt.Sprintf("at most %d, the smallest of the %d shares of policy %q", least, p.Shards, p.Name)
			return backend.Wrap(backend.ErrNeverAdmissible, &backend.InvalidError{What: "cost", Value: n, Want: want})
		}
	}
	return nil
}
