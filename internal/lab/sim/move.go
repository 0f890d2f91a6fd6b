package sim

import (
	"maps"
	"slices"
	"time"
)

// index returns the place of a node among all.
func (w *World) index(n *node) int { return slices.Index(w.nodes, n) }

// moveKeys moves the keys of a bucket one after the other, and then its slots.
func (w *World) moveKeys(b, from, to int) {
	m, moves := w.moving[b]
	if !moves || m.to != to || w.owner[b] != from {
		return // a failover has ended it
	}
	here, there := &w.nodes[from].keeps, &w.nodes[to].keeps
	for _, tag := range slices.Sorted(maps.Keys(here.byTag)) {
		if bucketOf(tag) != b || m.moved[tag] {
			continue
		}
		if m.torn != tag {
			m.torn = tag
			w.moving[b] = m
			w.at(time.Millisecond, func() { w.moveKeys(b, from, to) })
			return
		}
		if w.nodes[from].ahead != w.nodes[to].ahead {
			w.ledger.disturb()
		}
		w.moveKey(tag, here, there)
		m.moved[tag], m.torn = true, ""
		w.moving[b] = m
	}
	delete(w.moving, b)
	w.owner[b] = to
}

// moveKey moves what is kept of a key, and the replicas' copies too.
func (w *World) moveKey(tag string, here, there *states) {
	if there.byTag == nil {
		there.byTag = map[string]*state{}
	}
	there.byTag[tag] = here.byTag[tag]
	delete(here.byTag, tag)
	copies, of := &w.partner(here.node).keeps, &w.partner(there.node).keeps
	delete(copies.byTag, tag)
	if of.byTag == nil {
		of.byTag = map[string]*state{}
	}
	of.byTag[tag] = there.byTag[tag].again()
}
