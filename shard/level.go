package shard

import (
	"context"
	"math"
	"time"

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
// the old limit. So a sum that shows none stays true. Of a share that did not answer it shows
// nothing: the living ones decide, and the shares are summed again when that one is asked again.

// leveled makes sure that no share is above its part of the limit. It reports whether the call is
// done, since it is denied if one is. Nearly always this is known already.
func (c *call) leveled(ctx context.Context) (done bool, err error) {
	if c.k.isLevel(c.k.denials.Now()) {
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

// always is the level of a key of which each share has answered a sum.
const always = math.MaxInt64

// isLevel reports whether no share is above its part of the limit, as far as a sum has shown.
func (k *hotKey) isLevel(now time.Duration) bool { return now < time.Duration(k.level.Load()) }

// sumsUp notes a sum of all shares in which none is above its part.
func (k *hotKey) sumsUp(whole bool) {
	//mutant:silent-share-summed-again
	if whole {
		k.level.Store(always)
	} else if until := k.level.Load(); until < always {
		k.level.CompareAndSwap(until, int64(k.denials.Now()+avoided))
	}
}

// all returns the indexes of all shares.
func (k *hotKey) all() []int {
	all := make([]int, len(k.subs))
	for i := range all {
		all[i] = i
	}
	return all
}
