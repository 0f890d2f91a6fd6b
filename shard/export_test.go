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
	k := s.keys().find(r.Key, r.Policies)
	i := k.draw(&r.Group, now)
	return k.name(i), k.sub(i).policies
}

// Names are SubKeys.
var Names = SubKeys

// Cells returns how many cells the keys on the store have, as counted and as they
// lie there.
func (s *Store) Cells() (counted, there int64) {
	m := s.keys()
	for i := range m.sets {
		for j := range m.sets[i] {
			there += m.sets[i][j].Load().cells()
		}
	}
	return m.cells.Load(), there
}

const MaxCells = maxCells

// Left is what the last call has left for the next.
func Left() any { return *calls.Get().(*call) }
