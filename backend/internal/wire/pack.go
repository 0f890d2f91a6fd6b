package wire

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/names"
)

// Args are the arguments of one EVALSHA after the other. The zero Args are ready.
type Args struct {
	Groups []*Group // those that stand in the command

	all    []any
	keys   int
	blobs  []blob   // the room of those below; never grown, since all points to them
	names  []byte   // of keys and fields
	asked  blob     // what the groups ask
	flat   []*Group // and each with those that are decided with it
	now    int64    // the caller's clock
	prefix names.Prefix
}

// blob is an argument in a buffer of its own. By pointer, go-redis takes it
// without an allocation.
type blob []byte

// MarshalBinary is how go-redis reads it.
// The client copies the bytes into its write buffer, and keeps none of them.
func (b *blob) MarshalBinary() ([]byte, error) { return *b, nil }

// String keeps keys and numbers out of what a hook prints.
func (b *blob) String() string { return "…" }

// Set returns the arguments that carry a.Groups, of a script whose name is sha, as
// go-redis takes them. clock is the time of a virtual clock, empty for the
// server's own; now is the caller's. What the groups ask is added by Pack. The
// client must have returned from the last ones, whose buffers these use.
func (a *Args) Set(sha any, clock string, now int64, p names.Prefix) []any {
	Sort(a.Groups)
	n := 0
	a.flat, a.now, a.prefix = flat(a.Groups), now, p
	for _, g := range a.flat {
		n += 2*len(g.Policies) + 2
	}
	a.blobs, a.names = slices.Grow(a.blobs[:0], n), a.names[:0]
	a.all = append(a.all[:0], "evalsha", sha, &a.keys)
	for _, g := range a.flat {
		a.addKeys(g)
	}
	a.keys = len(a.all) - 3
	a.all = append(a.all, clock, &a.asked)
	for i, g := range a.flat {
		a.addFields(g, a.flat[max(i-1, 0)])
	}
	return a.all
}

// Pack is called at the instant when the command is written: until then calls
// may leave.
func (a *Args) Pack() { a.asked = pack(a.asked[:0], a.now, a.Groups) }

// add adds the name that follows those in a.names, which are longer by it now.
// A name is a slice of a.names. That may move when it grows. Earlier blobs then keep the
// array that they were cut from, so they stay valid.
func (a *Args) add(longer []byte) {
	a.blobs = append(a.blobs, longer[len(a.names):])
	a.names = longer
	a.all = append(a.all, &a.blobs[len(a.blobs)-1])
}

// addKeys adds the stored keys that the group's script touches: the hash of the
// small states and of the leases, the lease, then each log.
//
// Redis Cluster checks these keys: all lie in one slot, by the tag. The script derives no
// other key. A key is listed also if a call only reads it. The script finds its keys by
// their order, so this function and lua/decide.lua change together.
func (a *Args) addKeys(g *Group) {
	before := len(a.all)
	defer func() { g.keys = len(a.all) - before }()
	whole := g.Op.Leases() || g.Op == backend.Reset || g.Op == backend.Borrow
	for i := range g.Policies {
		if whole || !names.Apart(&g.Policies[i]) {
			a.add(a.prefix.AppendHash(a.names, g.Tag))
			break
		}
	}
	if g.Op.Leases() {
		a.add(names.AppendLease(a.prefix.AppendHash(a.names, g.Tag), g.Calls[0].lease.ID))
	}
	if g.Op == backend.Borrow {
		a.add(names.AppendBorrower(a.prefix.AppendHash(a.names, g.Tag), g.Calls[0].loan.ID))
	}
	for i := range g.Policies {
		if names.Apart(&g.Policies[i]) {
			a.add(names.AppendLog(a.prefix.AppendHash(a.names, g.Tag), &g.Policies[i]))
		}
	}
}

// addFields adds the names of the fields that the group's policies have, unless
// those that stand last are the same.
//
// A list of policies that many groups share is sent once, since Lua hashes each string that
// it receives.
func (a *Args) addFields(g, last *Group) {
	if g != last && g.Same(last.Policies) {
		g.fields = last.fields
		return
	}
	g.fields = len(a.all) - 3 - a.keys
	for i := range g.Policies {
		a.add(names.AppendField(a.names, &g.Policies[i]))
	}
}

// pack appends the groups as the script reads them: those that follow each
// other and ask alike as one section. now is the caller's clock.
//
// A section begins with the number of its groups, which is raised for each group that asks
// for the same bytes. Groups of one request are never merged: the script decides them in
// two passes over their sections, or one after the other. A Borrow has an ID and units of its own.
func pack(b []byte, now int64, groups []*Group) []byte {
	section, alike := 0, 0
	for _, g := range groups {
		if g.And != nil {
			b, alike = g.packKeys(b, now), 0
		} else {
			next := len(b)
			b = g.ask(binary.LittleEndian.AppendUint16(b, 1), cmp.Or(g.Now, now))
			//mutant:one-section-if-alike
			if alike > 0 && g.Op != backend.Borrow && bytes.Equal(b[section+2:next], b[next+2:]) {
				b = b[:next]
			} else {
				section, alike = next, 0
			}
			alike++
			binary.LittleEndian.PutUint16(b[section:], uint16(alike))
		}
		if g.Then != nil {
			b, alike = g.Then.ask(binary.LittleEndian.AppendUint16(b, 1), cmp.Or(g.Then.Now, now)), 0
		}
	}
	return b
}

// packKeys appends the groups of one request. Before those that are decided all or nothing stands
// their number, and before alternatives what the script needs to skip them.
func (g *Group) packKeys(b []byte, now int64) []byte {
	all, keys, recorded := g.alternatives(), 0, 0
	for _, together := range all {
		for _, h := range together {
			keys += h.keys
		}
	}
	if g.Op.Ends() {
		recorded = 1 + slices.IndexFunc(g.And, func(h *Group) bool { return h.Else })
	}
	if len(all) > 1 {
		b = header(b, len(all), first, g.Op, keys, recorded)
		for _, together := range all {
			b = append(b, 0)
			if together[0].Stops {
				b[len(b)-1] = 1
			}
		}
	}
	from := len(b)
	for _, together := range all {
		if len(together) > 1 {
			b = header(b, len(together), joint, g.Op, 0, 0)
		}
		for _, h := range together {
			b = h.ask(binary.LittleEndian.AppendUint16(b, 1), cmp.Or(h.Now, now))
		}
	}
	if len(all) > 1 {
		binary.LittleEndian.PutUint32(b[from-len(all)-4:], uint32(len(b)-from))
	}
	return b
}

// header appends that of a section which is about the next ones.
func header(b []byte, groups int, shape byte, op backend.Op, keys, recorded int) []byte {
	b = append(binary.LittleEndian.AppendUint16(b, uint16(groups)), shape, byte(op))
	b = binary.LittleEndian.AppendUint16(b, uint16(keys))
	return append(binary.LittleEndian.AppendUint16(b, uint16(recorded)), 0, 0, 0, 0)
}

// ask appends what the group asks.
//
// The number of runs stands before the policies and is known after them, so it is written
// twice. Sixteen bits are enough for it: a batch has at most 1,024 calls.
func (g *Group) ask(b []byte, now int64) []byte {
	op := g.asks()
	shape := g.shape(op)
	b = append(b, shape, byte(op))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(g.Policies)))
	at := len(b)
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(g.fields))
	switch shape {
	case leased:
		b = packLease(b, g.Op, &g.Calls[0].lease)
	case borrow:
		b = packLoan(b, g)
	}
	for i := range g.Policies {
		b = packPolicy(b, &g.Policies[i], now)
		if shape == set {
			b = double(b, g.Calls[0].costs[i])
		}
	}
	if shape != set && shape != borrow && op != backend.Reset {
		runs := uint16(0)
		for calls := g.Calls; len(calls) > 0; runs++ {
			n := run(calls)
			count := max(int64(n), calls[0].takes)
			if calls[0].by {
				count = manyCalls + calls[0].calls
			}
			b = binary.LittleEndian.AppendUint64(b, uint64(count))
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
	whole             // mixed, with the hash of the key also where the list has only logs
	joint             // no group: the next ones are decided all or nothing, each mixed or leased
	borrow            // a Borrow
	first             // no group: the next ones are alternatives
)

// shape returns the narrowest shape that can decide the group. It goes by the operation of
// the callers, not only by op: a withdrawn Reserve still has its lease.
func (g *Group) shape(op backend.Op) byte {
	switch {
	case g.Op.Leases():
		return leased
	case g.Op == backend.Borrow:
		return borrow
	case g.Op == backend.Reset:
		return whole
	case !g.Op.Runs(), g.Joint, run(g.Calls) < len(g.Calls), shadowed(g.Policies):
		return mixed
	case len(g.Policies) == 1:
		return one
	case len(g.Calls) > 1 || g.Calls[0].takes > 1:
		return mixed
	}
	for i := range g.Policies {
		if names.Apart(&g.Policies[i]) || op.Charges() && g.Calls[0].costs[i] == 0 {
			return mixed
		}
	}
	return set
}

// shadowed reports whether a policy is a shadow.
func shadowed(policies []backend.Policy) bool {
	for i := range policies {
		if policies[i].Shadow {
			return true
		}
	}
	return false
}

// manyCalls is added to the number of calls that one take is, by which a shadow is charged.
const manyCalls = 1 << 52

// shadow is added to the kind of a shadow policy.
const shadow = 64

// packPolicy appends the kind and what Algorithm.Numbers returns. That is the limit, the
// period in µs, two numbers of the kind's own, and the time to fill. now matters to a
// Calendar only, whose boundaries lie around it.
func packPolicy(b []byte, p *backend.Policy, now int64) []byte {
	limit, period, x, y, fill := p.Algorithm.Numbers(now)
	kind := p.Algorithm.Kind().Wire()
	if p.Shadow {
		kind += shadow
	}
	b = append(b, kind)
	for _, v := range [...]int64{limit, period, x, y, fill} {
		b = double(b, v)
	}
	return b
}

// double appends a number as the script's numbers are. v lies within 2^53: Check refuses
// larger limits and costs, and instants of this century lie below 2^52.
func double(b []byte, v int64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
}
