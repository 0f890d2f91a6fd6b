package redistest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// view is what one node says of all in CLUSTER NODES, sorted by id.
type view []member

type member struct {
	id, primary string // of a primary, "-"
	flags       []string
	linked      bool
	serves      []span
	moving      []int // open slots on their way in, which a node says of itself only
}

type span struct{ from, to int }

// parseView leaves out lines that it can't read: a node that knows too few
// members is amiss.
func parseView(said string) view {
	var v view
	for line := range strings.Lines(said) {
		// id addr flags primary ping pong epoch link slot…
		if f := strings.Fields(line); len(f) >= 8 {
			m := member{
				id: f[0], flags: strings.Split(f[2], ","), primary: f[3],
				linked: f[7] == "connected",
			}
			for _, s := range f[8:] {
				m.slots(s)
			}
			v = append(v, m)
		}
	}
	slices.SortFunc(v, func(a, b member) int { return strings.Compare(a.id, b.id) })
	return v
}

// slots reads 7, 7-9 or [7-<-id], on its way in; [7->-id], on its way out, says
// nothing that the other side doesn't.
func (m *member) slots(s string) {
	if open, ok := strings.CutPrefix(s, "["); ok {
		if slot, _, ok := strings.Cut(open, "-<-"); ok {
			m.moving = append(m.moving, number(slot))
		}
		return
	}
	from, to, ok := strings.Cut(s, "-")
	if !ok {
		to = from
	}
	m.serves = append(m.serves, span{number(from), number(to)})
}

// number is -1, no slot, for what is none.
func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return -1
	}
	return n
}

func (m member) has(flag string) bool { return slices.Contains(m.flags, flag) }

func (m member) owns(slot int) bool {
	return slices.ContainsFunc(m.serves, func(s span) bool { return s.from <= slot && slot <= s.to })
}

func (m member) count() int {
	n := 0
	for _, s := range m.serves {
		n += s.to - s.from + 1
	}
	return n
}

// self is what the node says of itself.
func (v view) self() member {
	return v.find(func(m member) bool { return m.has("myself") })
}

// owner is empty when nobody serves the slot.
func (v view) owner(slot int) string {
	return v.find(func(m member) bool { return m.owns(slot) }).id
}

// replica is empty when nobody copies the primary.
func (v view) replica(primary string) string {
	return v.find(func(m member) bool { return m.primary == primary }).id
}

func (v view) find(is func(member) bool) member {
	i := slices.IndexFunc(v, is)
	if i < 0 {
		return member{}
	}
	return v[i]
}

// amiss tells what keeps a cluster of n nodes from being well, in this view.
func (v view) amiss(n int, living []*node) error {
	if len(v) != n {
		return fmt.Errorf("knows %d of %d nodes", len(v), n)
	}
	served := 0
	for _, node := range living {
		m := v.find(func(m member) bool { return m.id == node.id })
		if !m.linked || m.has("fail") || m.has("fail?") || m.has("handshake") {
			return fmt.Errorf("sees %s as %v, linked %v", node.Addr(), m.flags, m.linked)
		}
		served += m.count()
	}
	if served != slots {
		return fmt.Errorf("sees living nodes serve %d of %d slots", served, slots)
	}
	return nil
}

// String tells who is who, and nothing that two nodes may rightly differ in.
func (v view) String() string {
	var b strings.Builder
	for _, m := range v {
		fmt.Fprintln(&b, m.id, m.primary, m.serves)
	}
	return b.String()
}

// field is a value of INFO or CLUSTER INFO, empty if it is not there.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
