package shard

import (
	"context"
	"math/rand/v2"

	"github.com/headgate-go/headgate/backend"
)

// settle passes on a request that names a sub-key, as those on a lease do. What a
// Settle gives back shows at once: the share is asked again, and what was concluded of
// the whole key ends.
func (s *Store) settle(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	err := s.next.Do(ctx, r, d)
	if r.Op == backend.Settle && err == nil {
		m := s.memory()
		m.find(r.Key, r.Policies).freed(r.Sub) // mutant: settled-share-asked
		m.denials.At(r.Key).Forget()
	}
	return err
}

// freed notes that a sub-key may have room again. How much is not known before it
// answers, so it counts as unused.
func (k *hotKey) freed(sub string) {
	for i := range k.subs {
		if k.sub(i) == sub {
			k.subs[i].denied.Store(nil)
			for j := range k.left {
				k.see(i, j, share(&k.policies[j], i))
			}
		}
	}
}

// record charges one share: one with room where one is known, else any. A share that
// can't be asked is passed over, a few times.
func (c *call) record(ctx context.Context) (err error) {
	for done, n := false, 0; n < asks && !done; n++ {
		i := c.k.draw(&c.r.Group, c.k.cache.Now())
		if i < 0 {
			i = rand.IntN(len(c.k.subs))
		}
		done, err = c.ask(ctx, i)
	}
	return err
}
