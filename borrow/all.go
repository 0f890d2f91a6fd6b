package borrow

import (
	"context"

	"github.com/headgate-go/headgate/backend"
)

// Part is one key of a call that counts for several keys.
type Part struct {
	Store    *Store
	Request  *backend.Request
	Decision *backend.Decision // the answer

	home  *home
	n     int64 // units
	taken taken // the units
}

// Borrows reports whether All may answer the key: it is taken, and its policies borrow.
func (p *Part) Borrows() bool {
	r := p.Request
	return r.Op == backend.Take && p.Store != nil && len(r.Policies) > 0 && r.Policies[0].Borrow > 0
}

// All answers a call of several keys from home, if this process has units of each of them,
// and reports whether it did. Then it takes from all at one instant. Else it takes from none,
// and borrows of the keys that lack units if all keys are called often. Units may count as
// used if a Borrow of their key begins when those of another key have run out.
func All(ctx context.Context, parts []Part) bool {
	often := true
	for i := range parts { // all of them: each key notes that it was called
		often = parts[i].find() && often
	}
	if !often || ctx == nil || ctx.Err() != nil {
		return false
	}
	all, taken := true, 0
	for i := range parts {
		//mutant:all-looked-at-first
		all = all && !parts[i].lacks() // so that units are seldom put back
	}
	for all && taken < len(parts) && parts[taken].take() {
		taken++
	}
	all = taken == len(parts)
	for i := 0; all && i < len(parts); i++ { // the clock is read after all units were taken
		all = parts[i].home.admits(parts[i].taken.turn)
	}
	for i := range parts {
		switch p := &parts[i]; {
		case all:
			p.home.answer(p.Request, p.Decision, p.n, p.taken.left)
			continue
		case i < taken:
			//mutant:all-at-home-or-none
			p.home.left.putBack(p.n, p.taken.turn)
		}
		parts[i].missed()
	}
	return all
}

// find finds or makes the key's home, and reports whether there is one.
func (p *Part) find() bool {
	r, s := p.Request, p.Store
	if !p.Borrows() || s.shared.Closing.Load() {
		return false
	}
	var ok bool
	if p.n, ok = costOf(r); !ok {
		return false
	}
	if p.home = s.homes.find(r); p.home == nil {
		p.home = s.homes.seen(s, r, p.n, s.now())
	}
	return p.home != nil
}

func (p *Part) take() (ok bool) {
	p.taken, ok = p.home.left.take(p.n)
	return ok
}

// lacks reports whether the home can't answer the call.
func (p *Part) lacks() bool {
	return p.home.left.Load() < p.n || int64(p.home.store.now()) >= p.home.end.Load()
}

// missed counts a call that goes to the store, and borrows if the home can't answer one.
func (p *Part) missed() {
	h := p.home
	if h.missed(p.n) && p.lacks() && h.busy.CompareAndSwap(false, true) {
		go h.renew()
	}
}
