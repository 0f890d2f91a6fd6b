package sim

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
)

// The format of a script's arguments, as the comment of lua/decide.lua describes it. It is
// read here a second time, and not with the package that writes it.
const (
	shapeSet    = 2 // costs stand behind the policies, without runs
	shapeLeased = 4
	shapeWhole  = 5
	shapeJoint  = 6

	shadowKind = 64 // is added to the kind of a shadow
	apartClass = 3  // of kinds with a key of their own
)

// asked is one group of a script's arguments.
type asked struct {
	op       backend.Op
	tag      string // of the keys: the library's key, or a sub-key's
	policies []backend.Policy
	run      int64 // of the take that is decided now: its calls; 0: it is no run
	upTo     bool  // of these as many as fit
	runs     []run
	lease    *backend.Lease
	loan     *backend.Loan
	cost     int64 // of a Borrow
	lent     *backend.Lent
	with     []*asked // decided all or nothing with this one, but for other
	first    bool     // it and those with it are alternatives
	other    bool     // it begins one that is not the first
	stops    bool     // as Group.Stops
	wrong    error    // how a First was charged wrongly
	done     []done
	outside  bool // a Calendar's boundaries do not hold the node's clock
}

// run is a number of calls of equal costs.
type run struct {
	calls int64
	costs []int64
	of    int64 // of one take: calls, of one of which a shadow's costs are; 0: it is one call
}

// errScript is what a node replies to arguments that no script could have been sent.
var errScript = errors.New("sim: malformed arguments of the script")

// arguments reads the arguments of one EVALSHA.
type arguments struct {
	node   *node
	now    int64 // µs, by the node's clock
	keys   []string
	blob   string
	fields []string
	err    error
}

// take reads n bytes.
func (a *arguments) take(n int) string {
	if n < 0 || n > len(a.blob) {
		a.err, a.blob = errScript, ""
		return strings.Repeat("\x00", max(n, 0))
	}
	s := a.blob[:n]
	a.blob = a.blob[n:]
	return s
}

func (a *arguments) byte() int     { return int(a.take(1)[0]) }
func (a *arguments) short() int    { return int(binary.LittleEndian.Uint16([]byte(a.take(2)))) }
func (a *arguments) long() int     { return int(binary.LittleEndian.Uint32([]byte(a.take(4)))) }
func (a *arguments) longer() int64 { return int64(binary.LittleEndian.Uint64([]byte(a.take(8)))) }
func (a *arguments) double() int64 { return int64(floatOf(a.take(8))) }

func floatOf(s string) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64([]byte(s)))
}

// groups reads all groups, those that are decided together as one.
func (a *arguments) groups() (all []*asked, err error) {
	for len(a.blob) > 0 && a.err == nil {
		n, shape := a.short(), a.byte()
		switch shape {
		case shapeJoint:
			all = append(all, a.joint(n))
			continue
		case shapeFirst:
			all = append(all, a.firsts(n))
			continue
		}
		all = append(all, a.section(n, shape)...)
	}
	if a.err == nil && len(a.keys) > 0 {
		a.err = errScript
	}
	return all, a.err
}

func (a *arguments) joint(n int) *asked {
	a.take(9) // op, policies, runs and fields of the groups stand in their own sections
	var all []*asked
	for range n {
		groups, shape := a.short(), a.byte()
		all = append(all, a.section(groups, shape)...)
	}
	if len(all) != n || n < 2 {
		a.err = errScript
		return &asked{}
	}
	all[0].with = all[1:]
	return all[0]
}

// section reads what a number of groups ask for alike.
func (a *arguments) section(groups, shape int) (all []*asked) {
	g := asked{op: backend.Op(a.byte())}
	policies, runs, fields := a.short(), a.short(), a.long()
	switch shape {
	case shapeLeased:
		a.lease(&g)
	case shapeBorrow: // whatever op says
		g.op = backend.Borrow
		a.loan(&g)
	}
	if fields < 2 || fields-2+policies > len(a.fields) {
		a.err = errScript
		return nil
	}
	a.list(&g, shape, a.fields[fields-2:fields-2+policies])
	if a.err != nil {
		return nil
	}
	for range runs {
		r := run{calls: a.longer()}
		for range policies {
			r.costs = append(r.costs, a.double())
		}
		if r.calls > 1<<52 {
			r.of, r.calls = r.calls-1<<52, 1
		}
		g.runs = append(g.runs, r)
	}
	if g.lease != nil && g.op == backend.Settle && g.lease.Actual != nil && len(g.runs) == 1 {
		g.lease.Actual = g.runs[0].costs
	}
	own := g.own()
	hash := shape == shapeLeased || shape == shapeWhole || shape == shapeBorrow || own < policies
	for range groups {
		one := g
		a.names(&one, hash, own)
		all = append(all, &one)
	}
	return all
}

// own returns how many policies have a key of their own.
func (g *asked) own() (n int) {
	for _, p := range g.policies {
		if apart(p) {
			n++
		}
	}
	return n
}

// list reads the policies of a section, each of a field, and their costs if they stand behind
// them.
func (a *arguments) list(g *asked, shape int, fields []string) {
	set := run{calls: 1}
	for _, field := range fields {
		g.policies = append(g.policies, a.policy(a.byte(), field, g))
		if shape == shapeSet {
			set.costs = append(set.costs, a.double())
		}
	}
	if shape == shapeSet {
		g.runs = append(g.runs, set)
	}
}

// names takes the keys of one group, whose tag stands between their braces.
func (a *arguments) names(g *asked, hash bool, apart int) {
	n := apart
	if hash {
		n++
	}
	if g.lease != nil || g.loan != nil {
		n++
	}
	if n > len(a.keys) || n == 0 {
		a.err = errScript
		return
	}
	_, tag, _ := strings.Cut(a.keys[0], "{")
	g.tag, _, _ = strings.Cut(tag, "}")
	for _, k := range a.keys[:n] {
		if !strings.Contains(k, "{"+g.tag+"}") {
			a.err = errScript
		}
	}
	if g.loan != nil {
		a.borrower(g, a.keys[min(1, n-1)]) // behind that of the hash
	}
	a.keys = a.keys[n:]
}

func (a *arguments) lease(g *asked) {
	l := &backend.Lease{Free: true}
	copy(l.ID[:], a.take(16))
	l.Length = time.Duration(a.long()) * time.Millisecond
	copy(l.Attempt[:], a.take(16))
	how := a.byte()
	l.Unresolved, l.Late, l.Named = how&1 != 0, how&4 != 0, how&8 != 0
	if how&2 != 0 {
		l.Actual = []int64{}
	}
	a.take(a.byte()) // for how long Redis keeps it
	g.lease = l
}

// numbers is how a policy of the wire is found among those of the fleet.
type numbers struct {
	name, label string
	kind        int
	five        [5]int64
}

// counted returns the name of a policy, and of a Calendar its label, from what names its
// count.
func counted(field string, kind int) (name, label string) {
	end := strings.LastIndexByte(field, '/')
	name = strings.TrimPrefix(field[end+1:], "~")
	if k := rule.Kind(kind & 15); k == rule.KindCalendar {
		label = strings.TrimPrefix(field[:max(end, 0)], k.Mark())
	}
	return name, label
}

// policy returns the policy that has the numbers that follow.
func (a *arguments) policy(kind int, field string, g *asked) backend.Policy {
	n := numbers{kind: kind}
	n.name, n.label = counted(field, kind)
	for i := range n.five {
		n.five[i] = a.double()
	}
	if rule.Kind(kind&15) == rule.KindCalendar {
		before, start, length, after := n.five[1], n.five[2], n.five[3], n.five[4]
		g.outside = g.outside || a.now < start-before || a.now >= start+length+after
		n.five = [5]int64{n.five[0]}
	}
	p, ok := a.node.world.policies[n]
	if !ok && a.err == nil {
		a.err = errScript
	}
	return p
}

// learn makes the nodes know a policy of the fleet.
func (w *World) learn(p backend.Policy) {
	a := &p.Algorithm
	n := numbers{name: p.Name, label: a.Identity().Label, kind: int(a.Kind().Wire())}
	n.five[0], n.five[1], n.five[2], n.five[3], n.five[4] = a.Numbers(time.Now().UnixMicro())
	if a.Kind() == rule.KindCalendar {
		n.five = [5]int64{n.five[0]}
	}
	if p.Shadow {
		n.kind += shadowKind
	}
	w.policies[n] = p
}
