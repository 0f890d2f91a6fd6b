package rule

import (
	"strings"
	"time"
)

// Parts are the numbers that an Algorithm was made with, for a store that writes it down.
// Parts are comparable.
type Parts struct {
	Kind   Kind
	Limit  Limit
	Max    int64
	Own    int64  // the number beside both, where the kind has one
	Label  string // of a Calendar: its Identity's
	Offset int    // of a Calendar: seconds east of UTC, if no time zone data has its zone
}

// Parts returns the numbers from which Parts.Algorithm makes an equal Algorithm.
func (a *Algorithm) Parts() Parts {
	p := Parts{Kind: a.Kind(), Limit: a.limit, Max: a.max, Own: a.own, Label: a.identity.Label}
	if a.zone != nil {
		_, p.Offset = time.Unix(0, 0).In(a.zone).Zone()
	}
	return p
}

// Zone returns the name of a Calendar's time zone, "" of other kinds.
func (p Parts) Zone() string {
	_, zone, _ := strings.Cut(p.Label, "/")
	return zone
}

// Algorithm returns the Algorithm of the numbers. Its Check refuses what no Algorithm was made
// of. zone is that of the name which Zone returns; nil is a zone of the Offset.
func (p Parts) Algorithm(zone *time.Location) Algorithm {
	r := p.Kind.rule()
	if !r.wall {
		return r.make(p.Limit, p.Max, p.Own)
	}
	if zone == nil {
		zone = time.FixedZone(p.Zone(), p.Offset)
	}
	return r.civil(p.Limit.Events, calendarEvery(p.Label), zone)
}
