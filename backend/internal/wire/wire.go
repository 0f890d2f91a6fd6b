package wire

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/headgate-go/headgate/backend"
)

// Group is one key's calls in order, as a round trip carries them. The wire
// format stands in lua/decide.lua.
type Group struct {
	Op       backend.Op
	Key      string // as the caller names it, for errors
	Tag      string // what stands between the braces of its stored keys
	Slot     int    // the tag's, where the store is a cluster
	Policies []backend.Policy
	Takes    []*Take

	fields int     // the script's argument behind which the fields' names stand
	sent   []*Take // those that stood in the command when it was written
	reply  string  // where the group travels in a command of its own
	err    error
	cmd    command
}

// gather brings those together that likely make one section: the groups of one
// list of policies, and of those the ones that ask for one thing as many times.
// Groups of one flight are of calls that nobody ordered. A section costs the
// server a third of what a group does: 170 calls of Zipf's keys made 28 of their
// 108 groups, and make 8.
func gather(groups []*Group) {
	for len(groups) > 0 {
		n := 1
		for i := 1; i < len(groups); i++ {
			if groups[i].listsAs(groups[0]) { // mutant: one-list-per-section
				groups[n], groups[i] = groups[i], groups[n]
				n++
			}
		}
		slices.SortFunc(groups[:n], byTakes) // mutant: equal-takes-together
		groups = groups[n:]
	}
}

func byTakes(g, h *Group) int {
	return cmp.Or(cmp.Compare(g.Op, h.Op), cmp.Compare(len(g.Takes), len(h.Takes)))
}

// listsAs reports whether two groups have the same list of policies, not only
// an equal one.
func (g *Group) listsAs(h *Group) bool {
	return len(g.Policies) == len(h.Policies) && &g.Policies[0] == &h.Policies[0]
}

// pack appends the groups as the script reads them: those that follow each
// other and ask alike as one section.
func pack(b []byte, groups []*Group) []byte {
	section, alike := 0, 0
	for _, g := range groups {
		next := len(b)
		b = g.pack(binary.LittleEndian.AppendUint16(b, 1))
		if alike > 0 && bytes.Equal(b[section+2:next], b[next+2:]) { // mutant: one-section-if-alike
			b = b[:next]
		} else {
			section, alike = next, 0
		}
		alike++
		binary.LittleEndian.PutUint16(b[section:], uint16(alike))
	}
	return b
}

// pack appends what the takes of g.sent ask. Where there are none, all of them
// were withdrawn: what stands for them only looks.
func (g *Group) pack(b []byte) []byte {
	op, takes := g.Op, g.sent
	if len(takes) == 0 { // mutant: withdrawn-reset
		op, takes = backend.Peek, nobody
	}
	shape := g.shape(op, takes)
	b = append(b, shape, byte(op))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(g.Policies)))
	at := len(b)
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(g.fields))
	for i := range g.Policies {
		b = packPolicy(b, &g.Policies[i])
		if shape == set {
			b = double(b, takes[0].costOf(i))
		}
	}
	if shape != set && op != backend.Reset {
		runs := 0
		b, runs = g.packRuns(b, takes)
		binary.LittleEndian.PutUint16(b[at:], uint16(runs))
	}
	return b
}

// nobody asks for nothing.
var nobody = []*Take{{}}

func (g *Group) packRuns(b []byte, takes []*Take) (packed []byte, runs int) {
	for ; len(takes) > 0; runs++ {
		n := run(takes)
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
		for i := range g.Policies {
			b = double(b, takes[0].costOf(i))
		}
		takes = takes[n:]
	}
	return b, runs
}

// The shapes of a group: which of the script's paths decides it. They
// decide alike, and the narrower ones cost the server less.
const (
	one   = 1 + iota // one policy, one run
	set              // several small states, one call that costs something in each
	mixed            // whatever else
)

func (g *Group) shape(op backend.Op, takes []*Take) byte {
	switch {
	case op == backend.Reset, run(takes) < len(takes):
		return mixed
	case len(g.Policies) == 1:
		return one
	case len(takes) > 1:
		return mixed
	}
	for i := range g.Policies {
		if isApart(&g.Policies[i]) || op == backend.Take && takes[0].costOf(i) == 0 {
			return mixed
		}
	}
	return set
}

func packPolicy(b []byte, p *backend.Policy) []byte {
	limit, period, x, y, fill := p.Algorithm.Numbers()
	b = append(b, p.Algorithm.Kind().Wire())
	for _, v := range [...]int64{limit, period, x, y, fill} {
		b = double(b, v)
	}
	return b
}

func double(b []byte, v int64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
}

// run returns how many takes from the first on ask the same costs: the
// script decides them at the price of one.
func run(takes []*Take) int {
	n := 1
	for n < len(takes) && takes[0].sameCosts(takes[n]) {
		n++
	}
	return n
}
