package shard

import (
	"math/bits"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// The calls of one process use one sub-key for a turn, and so merge into batches as
// the calls of a plain key do. A turn is so many calls per other call in flight, and
// lasts so long at most: a share of a TokenBucket that nobody asks for longer may
// fill up, and what it then would gain is lost. A lone call has none to merge with,
// and is a turn.
const (
	turnCalls = 16
	turnFor   = 8 * time.Millisecond
)

// draw returns the sub-key that a call of g asks, and claims the costs there; -1
// where no sub-key is known to have room.
func (k *hotKey) draw(g *backend.Group, now time.Duration) int {
	for {
		turn := k.turn.Load()
		i, left := int(turn>>32), uint32(turn)
		if left > 0 && now < time.Duration(k.ends.Load()) && k.open(i, g, now) && k.roomy(i, g) { // mutant: turns-merge
			k.turn.CompareAndSwap(turn, turn-1) // a call that another one overtakes is not counted
			k.claim(i, g)
			return i
		}
		if i = k.deal(g, now); i < 0 {
			return -1
		}
		left = turnCalls * uint32(max(0, k.calls.Load()-1))
		k.ends.Store(int64(now + turnFor)) // before a call can join
		if k.turn.CompareAndSwap(turn, uint64(i)<<32|uint64(left)) {
			k.claim(i, g)
			return i
		} // another call has started a turn
	}
}

// golden is the golden ratio's fraction of 2^64: its multiples, modulo 2^64, divide
// the range evenly from the first to any number of them. So the sub-keys of
// successive turns lie far apart, on different nodes, and all come equally often.
const golden = 0x9E3779B97F4A7C15

// deal returns the next sub-key that has room for g, and not much less of it than
// the others, if there is one; -1 where none is known to have room.
func (k *hotKey) deal(g *backend.Group, now time.Duration) int {
	k.renew(now)
	some, shares := -1, uint64(len(k.subs))
	for range 2 * shares { // which reach every sub-key
		at, _ := bits.Mul64(k.dealt.Add(1)*golden, shares)
		i := int(at)
		if !k.open(i, g, now) || k.spare(i, g) < 0 {
			continue
		}
		if k.roomy(i, g) { // mutant: shares-spent-alike
			return i
		}
		if some < 0 {
			some = i
		}
	}
	return some
}

// roomy reports whether g fits in a share that has at least half of the mean room. So
// shares are spent alike, and no share is spent before the limit nearly is. It
// compares without a division.
func (k *hotKey) roomy(i int, g *backend.Group) bool {
	n, shares := len(k.left), int64(len(k.subs))
	for j := range n {
		spare := k.rooms[i*n+j].Load() - g.CostOf(j)
		if spare < 0 || 2*shares*spare < k.left[j].Load()-shares*g.CostOf(j) {
			return false
		}
	}
	return true
}

// renew notes that a policy's shares are as new, where all answers have aged: a window
// has ended. Shares that were left without room would else not be asked again until
// the others are spent. Another process may have taken from them already, which costs
// a request.
func (k *hotKey) renew(now time.Duration) {
	for j := range k.fresh {
		if at := k.fresh[j].Load(); at != 0 && now >= time.Duration(at) && k.fresh[j].CompareAndSwap(at, 0) {
			k.refill(j)
		}
	}
}

// open reports whether nothing speaks against asking a sub-key.
func (k *hotKey) open(i int, g *backend.Group, now time.Duration) bool {
	d := k.subs[i].denied.Load()
	switch {
	case k.avoids(i, now):
		return false
	case d == nil:
		return true
	case now >= d.ends():
		if k.subs[i].denied.CompareAndSwap(d, nil) {
			for j := range k.policies {
				k.see(i, j, d.room(j, share(&k.policies[j], i), now))
			}
		}
		return true
	}
	return now >= d.until(g)
}
