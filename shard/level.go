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
// done, since it is denied if one is. Nearly always this is known already.
func (c *call) leveled(ctx context.Context) (done bool, err error) {
	if c.k.level.Load() {
		return false, nil
	}
	sum, err := c.k.readSum(ctx, c.s, c.r, c.k.all()) // one that shows no such share marks the key as level
	if err != nil {
		return true, err
	}
	c.sum, c.misses, c.lost = sum, 0, nil
	//mutant:above-its-part-denied
	if sum.above {
		d := denial.NewDenial(&c.r.Group, sum.states, sum.sent, c.k.denials.Now())
		return true, c.deny(&view{Denial: *d, alike: true})
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
