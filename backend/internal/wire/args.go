package wire

import (
	"slices"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/names"
)

// Args are the arguments of one EVALSHA after the other. The zero Args are ready.
type Args struct {
	Groups []*Group // those that stand in the command

	all    []any
	keys   int
	blobs  []blob // the room of those below; never grown, since all points to them
	names  []byte // of keys and fields
	asked  blob   // what the groups ask
	flat   []*Group
	now    int64 // the caller's clock
	prefix names.Prefix
}

// blob is an argument in a buffer of its own. By pointer, go-redis takes it
// without an allocation.
type blob []byte

// MarshalBinary is how go-redis reads it.
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
func (a *Args) Pack() { a.asked = pack(a.asked[:0], a.now, a.flat) }

// add adds the name that follows those in a.names, which are longer by it now.
func (a *Args) add(longer []byte) {
	a.blobs = append(a.blobs, longer[len(a.names):])
	a.names = longer
	a.all = append(a.all, &a.blobs[len(a.blobs)-1])
}

// addKeys adds the stored keys that the group's script touches: the hash of the
// small states and of the leases, the lease, then each log.
func (a *Args) addKeys(g *Group) {
	whole := g.leased() || g.Op == backend.Reset
	for i := range g.Policies {
		if whole || !names.Apart(&g.Policies[i]) {
			a.add(a.prefix.AppendHash(a.names, g.Tag))
			break
		}
	}
	if g.leased() {
		a.add(names.AppendLease(a.prefix.AppendHash(a.names, g.Tag), g.Calls[0].lease.ID))
	}
	for i := range g.Policies {
		if names.Apart(&g.Policies[i]) {
			a.add(names.AppendLog(a.prefix.AppendHash(a.names, g.Tag), &g.Policies[i]))
		}
	}
}

// addFields adds the names of the fields that the group's policies have, unless
// those that stand last are the same.
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
