package script

import (
	"encoding/binary"
	"math"

	"github.com/headgate-go/headgate/backend"
)

// Group is one key's calls in order, as a round trip carries them. The wire
// format stands in lua/decide.lua.
type Group struct {
	Op       backend.Op
	Key      string // as the caller names it, for errors
	Hash     string // where its small states lie; see Prefix.Hash
	Policies []backend.Policy
	Takes    []Take
}

// Take is one call of a group: what it asks, and after the round trip what
// it was answered.
type Take struct {
	backend.Group
	Decision backend.Decision
	Err      error
}

// packed is a trip's groups as arguments: all of the command but the script's
// name and the clock.
type packed struct {
	keys, rest []any
}

func pack(groups []*Group) (p packed) {
	for _, g := range groups {
		for _, k := range g.keys() {
			p.keys = append(p.keys, k)
		}
		p.rest = append(p.rest, g.pack())
		for i := range g.Policies {
			p.rest = append(p.rest, field(&g.Policies[i]))
		}
	}
	return p
}

// args returns the EVALSHA command for a server.
func (t *trip) args(s *Server) []any {
	args := make([]any, 0, 4+len(t.packed.keys)+len(t.packed.rest))
	args = append(args, "evalsha", t, len(t.packed.keys))
	args = append(args, t.packed.keys...)
	args = append(args, s.clock())
	return append(args, t.packed.rest...)
}

// keys returns the stored keys that the group's script touches.
func (g *Group) keys() []string {
	keys := make([]string, 0, 2)
	for i := range g.Policies {
		if !isLog(&g.Policies[i]) {
			keys = append(keys, g.Hash)
			break
		}
	}
	for i := range g.Policies {
		if isLog(&g.Policies[i]) {
			keys = append(keys, log(g.Hash, g.Policies[i].Name))
		}
	}
	return keys
}

// pack returns the group as the script reads it.
func (g *Group) pack() []byte {
	b := make([]byte, 0, 6+41*len(g.Policies)+len(g.Takes)*(4+8*len(g.Policies)))
	b = append(b, g.shape(), byte(g.Op))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(g.Policies)))
	at := len(b)
	b = binary.LittleEndian.AppendUint16(b, 0)
	for i := range g.Policies {
		b = packPolicy(b, &g.Policies[i])
		if b[0] == set {
			b = double(b, g.Takes[0].CostOf(i))
		}
	}
	if g.Op == backend.Reset || b[0] == set {
		return b
	}
	runs := 0
	for rest := g.Takes; len(rest) > 0; runs++ {
		n := run(rest)
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
		for i := range g.Policies {
			b = double(b, rest[0].CostOf(i))
		}
		rest = rest[n:]
	}
	binary.LittleEndian.PutUint16(b[at:], uint16(runs))
	return b
}

// The shapes of a group: which of the script's paths decides it. They
// decide alike, and the narrower ones cost the server less.
const (
	one   = 1 + iota // one policy
	set              // several small states, one call
	mixed            // whatever else
)

func (g *Group) shape() byte {
	switch {
	case g.Op == backend.Reset:
		return mixed
	case len(g.Policies) == 1:
		return one
	case len(g.Takes) > 1:
		return mixed
	}
	for i := range g.Policies {
		if isLog(&g.Policies[i]) {
			return mixed
		}
	}
	return set
}

func packPolicy(b []byte, p *backend.Policy) []byte {
	limit, period, x, y, fill := p.Algorithm.Numbers()
	b = append(b, byte(p.Algorithm.Kind()))
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
func run(takes []Take) int {
	n := 1
	for n < len(takes) && sameCosts(&takes[0], &takes[n]) {
		n++
	}
	return n
}

func sameCosts(a, b *Take) bool {
	if a.Costs == nil && b.Costs == nil {
		return a.Cost == b.Cost
	}
	for i := range a.Policies {
		if a.CostOf(i) != b.CostOf(i) {
			return false
		}
	}
	return true
}
