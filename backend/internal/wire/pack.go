package wire

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/names"
)

// Sort brings those together that likely make one section: the groups of one list
// of policies, and of those the ones that ask for one thing as many times. Calls of
// different keys come in no order. A section costs the server a third of what a
// group does: 170 calls of Zipf's keys made 28 of their 108 groups, and make 8.
func Sort(groups []*Group) {
	slices.SortFunc(groups, func(g, h *Group) int { // mutant: equal-takes-together
		return cmp.Or(cmp.Compare(g.Policies[0].Name, h.Policies[0].Name), cmp.Compare(g.Op, h.Op), cmp.Compare(len(g.Calls), len(h.Calls)))
	})
}

// pack appends the groups as the script reads them: those that follow each
// other and ask alike as one section. now is the caller's clock.
func pack(b []byte, now int64, groups []*Group) []byte {
	section, alike := 0, 0
	for _, g := range groups {
		if g.And != nil {
			b = append(binary.LittleEndian.AppendUint16(b, uint16(1+len(g.And))), joint, byte(g.Op), 0, 0, 0, 0, 0, 0, 0, 0)
		}
		next := len(b)
		b = g.ask(binary.LittleEndian.AppendUint16(b, 1), cmp.Or(g.Now, now))
		if alike > 0 && !g.Joint && bytes.Equal(b[section+2:next], b[next+2:]) { // mutant: one-section-if-alike
			b = b[:next]
		} else {
			section, alike = next, 0
		}
		alike++
		binary.LittleEndian.PutUint16(b[section:], uint16(alike))
		if g.Joint {
			alike = 0
		}
	}
	return b
}

// ask appends what the group asks.
func (g *Group) ask(b []byte, now int64) []byte {
	op := g.asks()
	shape := g.shape(op)
	b = append(b, shape, byte(op))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(g.Policies)))
	at := len(b)
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(g.fields))
	if shape == leased {
		b = packLease(b, &g.Calls[0].lease)
	}
	for i := range g.Policies {
		b = packPolicy(b, &g.Policies[i], now)
		if shape == set {
			b = double(b, g.Calls[0].costs[i])
		}
	}
	if shape != set && op != backend.Reset {
		runs := uint16(0)
		for calls := g.Calls; len(calls) > 0; runs++ {
			n := run(calls)
			b = binary.LittleEndian.AppendUint32(b, uint32(n))
			for _, cost := range calls[0].costs {
				b = double(b, cost)
			}
			calls = calls[n:]
		}
		binary.LittleEndian.PutUint16(b[at:], runs)
	}
	return b
}

// The shapes of a group: which of the script's paths decides it. They
// decide alike, and the narrower ones cost the server less.
const (
	one    = 1 + iota // one policy, one run
	set               // several small states, one call that costs something in each
	mixed             // whatever else
	leased            // what has a lease
	whole             // mixed, with the hash of the key also where the list has logs alone
	joint             // no group: the next ones are decided all or nothing, each mixed or leased
)

func (g *Group) shape(op backend.Op) byte {
	switch {
	case g.leased():
		return leased
	case g.Op == backend.Reset:
		return whole
	case g.Op == backend.Record, g.Op == backend.AtMost, g.Joint, run(g.Calls) < len(g.Calls):
		return mixed
	case len(g.Policies) == 1:
		return one
	case len(g.Calls) > 1:
		return mixed
	}
	for i := range g.Policies {
		if names.Apart(&g.Policies[i]) || op == backend.Take && g.Calls[0].costs[i] == 0 {
			return mixed
		}
	}
	return set
}

// packLease appends ID, length in ms, attempt, 1 where the lease is unresolved plus 2
// where it names actual costs, and as text how long the script keeps it, in ms.
func packLease(b []byte, l *backend.Lease) []byte {
	b = append(b, l.ID[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(l.Length.Milliseconds()))
	b = append(b, l.Attempt[:]...)
	how := byte(0)
	if l.Unresolved {
		how = 1
	}
	if l.Actual != nil {
		how += 2
	}
	b = append(b, how, 0)
	at := len(b)
	b = strconv.AppendInt(b, 2*l.Length.Milliseconds()+slack, 10)
	b[at-1] = byte(len(b) - at)
	return b
}

// slack is for how much longer than needed a lease is kept, in ms: the script reckons
// with its clock, and what has left counts as absent before.
const slack = 10_000

func packPolicy(b []byte, p *backend.Policy, now int64) []byte {
	limit, period, x, y, fill := p.Algorithm.Numbers(now)
	b = append(b, p.Algorithm.Kind().Wire())
	for _, v := range [...]int64{limit, period, x, y, fill} {
		b = double(b, v)
	}
	return b
}

func double(b []byte, v int64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
}
