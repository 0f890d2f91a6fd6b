package shard

import (
	"context"

	"github.com/headgate-go/headgate/internal/denial"
)

// A share never passes more than its part of the limit. So a key never passes more than its
// limit, as long as each share counts at most its part. One counts more after the limit was
// lowered, by what the old limit has passed. Then the room of the other shares is not the
// key's.
//
// A process finds that by a sum of all shares. It sums them before its first take by a list, and
// again once an answer of a share is above its part. While the sum shows such a share, the key
// passes nothing. No share that is within its part rises above it, except by a process that has
// the old limit. So a sum that shows none stays true.

// leveled makes sure that no share is above its part of the limit. It reports whether the call is
// done, since it is denied if one is. Nearly always this is known already. A sum that lacks some
// shares is read again, since one lost connection is no dead node. Then the shares that answer
// serve, until the first answer of another one shows that it is above.
func (c *call) leveled(ctx context.Context) (done bool, err error) {
	for again := false; !c.k.level.Load(); again = true {
		c.misses, c.lost = 0, nil
		c.sum, err = c.k.readSum(ctx, c.s, c.r, c.k.all()) // a whole one that shows no such share marks the key as level
		switch {
		case err != nil:
			return true, err
		//mutant:above-its-part-denied
		case c.sum.above:
			d := denial.NewDenial(&c.r.Group, c.sum.states, c.sum.sent, c.k.denials.Now())
			return true, c.deny(&view{Denial: *d, alike: true})
		//mutant:lost-share-is-summed-again
		case again:
			c.k.level.Store(true)
		}
	}
	return false, nil
}

// all returns the indexes of all shares.
func (k *hotKey) all() []int {
	all := make([]int, len(k.subs))
	for i := range all {
		all[i] = i
	}
	return all
}
