package shard

import (
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/denial"
	"github.com/headgate-go/headgate/internal/layer"
)

var noDenials = denial.Of(new(layer.Shared))

// Choose does what a call does before it asks: finds what is remembered of its key
// and draws a sub-key, at the time that it has read.
func (s *Store) Choose(r *backend.Request, now time.Duration) (sub string, part []backend.Policy) {
	k := s.keys().find(&r.Group)
	i := k.draw(&r.Group, now)
	return k.names.Name(i), k.subs[i].policies
}

// Names are SubKeys.
var Names = SubKeys

// Cells returns how many cells the young keys on the store have, as counted and as they lie
// there, and those of all keys.
func (s *Store) Cells() (counted, young, all int) {
	m, lie := s.keys(), map[*hotKey]bool{}
	for _, ks := range m.mu.young {
		for _, k := range ks {
			young += k.cells()
			lie[k] = true
		}
	}
	for _, ks := range m.mu.old {
		for _, k := range ks {
			lie[k] = true
		}
	}
	for k := range lie {
		all += k.cells()
	}
	return m.mu.cells, young, all
}

const MaxCells = maxCells

// Left is what the last call has left for the next.
func Left() any { return *calls.Get().(*call) }
