package shard

import (
	"math/rand/v2"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// draw returns a sub-key to ask: of two at random the one that was seen with
// more room, which keeps shares spent alike though nobody counts them; of one
// at random, a share in a hundred would be spent at 90 % of the limit. -1
// where something is known against it, and all have to be looked at.
func (e *entry) draw(g *backend.Group) int {
	n, k := rand.Uint64(), uint64(len(e.subs))
	i, j := int((n>>32)*k>>32), int((n&(1<<32-1))*k>>32)
	most := e.spare(i, g)
	if other := e.spare(j, g); other > most {
		i, most = j, other
	}
	if s := &e.subs[i]; most < 0 || s.shut.Load() != nil || s.dead.Load() != nil {
		return -1
	}
	return i
}

// sight is what a look at all sub-keys shows.
type sight struct {
	best  int  // drawn among those that may be asked, by the room that was seen in them; -1: none
	some  bool // best was seen with room
	stale bool // one is spent, but that was heard too long ago, or of larger costs
}

func (e *entry) look(g *backend.Group, now time.Duration) sight {
	s, sum := sight{best: -1}, int64(0)
	from := rand.IntN(len(e.subs))
	for n := range e.subs {
		i := (from + n) % len(e.subs)
		switch e.class(i, g, now) {
		case stale:
			s.stale = true
		case open:
			spare := e.spare(i, g)
			if s.best < 0 {
				s.best = i
			}
			if spare < 0 {
				continue
			}
			s.some = true
			if sum += spare + 1; rand.Int64N(sum) <= spare {
				s.best = i
			}
		}
	}
	return s
}

// best draws among shares by the room that was seen in them, and returns it
// and the others that have some; -1 where none has.
func (e *entry) best(shares []int, g *backend.Group) (int, []int) {
	at, sum, some := -1, int64(0), shares[:0]
	for _, i := range shares {
		spare := e.spare(i, g)
		if spare < 0 {
			continue
		}
		some = append(some, i)
		if sum += spare + 1; rand.Int64N(sum) <= spare {
			at = len(some) - 1
		}
	}
	if at < 0 {
		return -1, nil
	}
	i, last := some[at], len(some)-1
	some[at] = some[last]
	return i, some[:last]
}

// claim takes what g is about to ask for from what is known of a share, so
// that the callers of this process who share a sum don't race each other for
// it. The answer sets it right.
func (e *entry) claim(i int, g *backend.Group) {
	for j := range e.left {
		n := g.CostOf(j)
		e.rooms[i*len(e.left)+j].Add(-n)
		e.left[j].Add(-n)
	}
}

type class uint8

const (
	open   class = iota // may be asked
	stale               // spent when it was last heard of
	spent               // denies what costs as much as a call that it denied
	absent              // nobody answered for it
)

func (e *entry) class(i int, g *backend.Group, now time.Duration) class {
	s := &e.subs[i]
	if d := s.dead.Load(); d != nil {
		if now >= d.at && now < d.at+deadFor {
			return absent
		}
		s.dead.CompareAndSwap(d, nil)
	}
	h := s.shut.Load()
	switch {
	case h == nil:
		return open
	case h.lapsed(now):
		if s.shut.CompareAndSwap(h, nil) {
			e.revive(i, h, now)
		}
		return open
	case e.spare(i, g) >= 0: // less than what was denied
		return open
	}
	if until, _ := h.stands(g); now < until {
		return spent
	}
	return stale
}
