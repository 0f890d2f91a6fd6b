package shard

import (
	"context"
	"errors"
	"math/bits"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/denial"
	"github.com/headgate-go/headgate/internal/layer"
)

// The calls of one process use one sub-key for a turn, and so merge into batches as the
// calls of a plain key do. A turn is so many calls per other call in flight: a lone call
// has none to merge with, and is a turn. It ends after a time, since a share of a
// TokenBucket that gets no request for longer may fill up. What it then would gain is
// lost.
const (
	turnCalls = 16
	turnFor   = 8 * time.Millisecond
)

// draw returns the sub-key that a call of g asks; -1 where no sub-key is known to have
// room. Concurrent calls may start several turns at once: the last one stays.
func (k *hotKey) draw(g *backend.Group, now time.Duration) int {
	i := int(k.turn.Load())
	//mutant:turns-merge
	if k.joins.Add(-1) < 0 || now >= time.Duration(k.ends.Load()) || k.rank(i, g, now) < roomy {
		if i = k.deal(g, now); i >= 0 {
			k.turn.Store(int32(i))
			k.joins.Store(turnCalls * int64(k.calls.Load()-1))
			k.ends.Store(int64(now + turnFor))
		}
	}
	return i
}

// golden is the golden ratio's fraction of 2^64: its multiples, modulo 2^64, divide
// the range evenly from the first to any number of them. So the sub-keys of
// successive turns lie far from each other, on different nodes, and all come equally often.
// Each process starts anywhere: those that have read the same sum must not race for one share.
const golden = 0x9E3779B97F4A7C15

// deal returns the next sub-key that has room for g, and not much less of it than
// the others, if there is one. It returns -1 where none is known to have room.
func (k *hotKey) deal(g *backend.Group, now time.Duration) int {
	some, shares := -1, uint64(len(k.subs))
	for range 2 * shares { // which reach every sub-key
		at, _ := bits.Mul64(k.dealt.Add(1)*golden, shares)
		switch i := int(at); k.rank(i, g, now) {
		case roomy:
			return i
		case fits:
			some = i
		}
	}
	return some
}

// claim takes g's costs from what was seen in a share, before it is asked. So concurrent
// calls of this process do not race for the same units. The answer corrects it.
func (k *hotKey) claim(i int, g *backend.Group) {
	for j := range k.left {
		k.subs[i].rooms[j].units.Add(-g.CostOf(j))
		k.left[j].Add(-g.CostOf(j))
	}
}

// unanswered notes that a sub-key did not answer a request in ctx: it is avoided for a
// while, if others have room. What stands for its denial has no states. A caller that left
// shows nothing of the share, and neither does a request that was not sent since its time was
// too short.
func (k *hotKey) unanswered(ctx context.Context, i int, err error) {
	//mutant:silence-alone-is-avoided
	if ctx.Err() == nil && !errors.Is(err, layer.ErrExcused) {
		now := k.denials.Now()
		k.subs[i].denied.Store(&denial.Denial{Sent: now, Ends: now + 100*time.Millisecond})
	}
}

// The ranks of a sub-key for a call.
const (
	full  = iota // the call does not fit, or the share is not to be asked now
	fits         // other shares have far more room
	roomy        // the share has at least half of the mean room
)

// rank says which sub-keys come first. Those with half of the mean room do, so that
// shares are spent alike, and none is spent before the limit nearly is. It compares
// without a division.
func (k *hotKey) rank(i int, g *backend.Group, now time.Duration) int {
	s, shares, rank := &k.subs[i], int64(len(k.subs)), roomy
	if k.denied(i, g, now) != nil {
		return full
	}
	for j := range backend.Enforced(k.policies) {
		// Once the last answer has aged, the share counts as unused, or it would not be asked
		// again. Another process may have taken from it already, which costs a request.
		if at := s.rooms[j].fresh.Load(); at != 0 && now >= time.Duration(at) {
			s.rooms[j].fresh.Store(0)
			k.see(i, j, s.policies[j].Algorithm.Max())
		}
		spare := s.rooms[j].units.Load() - g.CostOf(j)
		if spare < 0 {
			return full
		}
		//mutant:shares-spent-alike
		if 2*shares*spare < k.left[j].Load()-shares*g.CostOf(j) {
			rank = fits
		}
	}
	return rank
}

// denied returns what speaks against asking a share for g; nil if nothing does. A share
// whose denial has ended has room for what it denied at least, if no other process was
// faster.
func (k *hotKey) denied(i int, g *backend.Group, now time.Duration) *denial.Denial {
	s := &k.subs[i]
	d := s.denied.Load()
	switch {
	case d == nil:
	case now < d.Until() && d.Denies(g):
		return d
	case now >= d.Ends && s.denied.CompareAndSwap(d, nil):
		for j := range d.States {
			k.see(i, j, max(d.States[j].Remaining, d.Costs[j]))
		}
	}
	return nil
}
