package borrow

import (
	"context"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
)

// key is one group of a take of several.
type key struct {
	group *backend.Group
	home  *home
	n     int64 // units
	taken taken // the units
}

// all answers a take of several keys from home, if this process has units of each of them,
// and reports whether it did. Then it takes from all at one instant. Else it takes from none,
// and borrows of the keys that lack units if all keys are called often. Units may count as
// used if a Borrow of their key begins when those of another key have run out.
func (s *Store) all(ctx context.Context, r *backend.Request, d *backend.Decision) bool {
	keys, often := make([]key, 1+len(r.And)), true
	for i := range keys { // all of them: each key notes that it was called
		keys[i].group = r.GroupAt(i)
		often = keys[i].find(s) && often
	}
	if !often || ctx.Err() != nil {
		return false
	}
	all, taken := true, 0
	for i := range keys {
		//mutant:all-looked-at-first
		all = all && !keys[i].lacks() // so that units are seldom put back
	}
	for all && taken < len(keys) && keys[taken].take() {
		taken++
	}
	all = taken == len(keys)
	for i := 0; all && i < len(keys); i++ { // the clock is read after all units were taken
		all = keys[i].home.admits(keys[i].taken.turn)
	}
	if all {
		answer(keys, r, d)
		return true
	}
	for i := range keys {
		k := &keys[i]
		if i < taken {
			//mutant:all-at-home-or-none
			k.home.left.putBack(k.n, k.taken.turn)
		}
		k.missed()
	}
	return false
}

// answer writes the decision of keys whose units were taken.
func answer(keys []key, r *backend.Request, d *backend.Decision) {
	all := make([]layer.Verdict, len(keys))
	for i := range keys {
		k := &keys[i]
		all[i].Made = true
		k.home.answer(k.group, &all[i].Decision, k.n, k.taken.left)
	}
	layer.Bind(r, all, d)
}

// find finds or makes the key's home, by the group's own limiter, and reports whether there
// is one.
func (k *key) find(s *Store) bool {
	own, ok := layer.Own(k.group, s)
	if !ok || len(k.group.Policies) == 0 || k.group.Borrow == 0 || own.closing() {
		return false
	}
	k.home, k.n = own.find(k.group)
	return k.home != nil
}

func (k *key) take() (ok bool) {
	k.taken, ok = k.home.left.take(k.n)
	return ok
}

// lacks reports whether the home can't answer the call.
func (k *key) lacks() bool {
	return k.home.left.Load() < k.n || int64(k.home.store.now()) >= k.home.end.Load()
}

// missed counts a call that goes to the store, and borrows if the home can't answer one.
func (k *key) missed() {
	h := k.home
	if h.missed(k.n) && k.lacks() && h.busy.tryLock() {
		go h.renew()
	}
}
