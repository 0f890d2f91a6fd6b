package shard

import (
	"context"
	"math/rand/v2"

	"github.com/headgate-go/headgate/backend"
)

// settle passes on a request that names a sub-key, as those on a lease do. What a
// Settle gives back shows at once: the share is asked again. How much room that has is
// not known before it answers, so it counts as unused.
func (s *Store) settle(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	err := s.next.Do(ctx, r, d)
	if r.Op == backend.Settle && err == nil {
		k := s.memory().find(r.Key, r.Policies)
		for i := range k.subs {
			if k.sub(i) != r.Sub {
				continue
			}
			k.subs[i].denied.Store(nil) // mutant: settled-share-asked
			for j := range k.policies {
				k.refill(i, j)
			}
		}
	}
	return err
}

// record charges one share: one with room where one is known, else any.
func (c *call) record(ctx context.Context) error {
	if done, err := c.try(ctx); done {
		return err
	}
	_, err := c.ask(ctx, rand.IntN(len(c.k.subs)))
	return err
}
