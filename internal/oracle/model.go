package oracle

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
)

// Model decides as the specification says, from the history of every count. It takes
// each request with the answer that a limiter gave, and returns the first field that
// is wrong. Where the specification leaves room, what was answered stands.
//
// It knows no stored format: a settle changes the charge in the history. It is for one
// caller at a time, and a clock that does not step back.
type Model struct {
	Now    int64              // µs
	lists  [][]backend.Policy // of all limiters
	shards []int              // over which each spreads its keys; nil: none does
	counts map[place]*count
	leases map[string][]*Lease // by key
	ledger map[*count]*ledger
}

// place is what a count belongs to.
type place struct {
	key, name string
	id        rule.Identity
	shards    int
	shadow    bool
}

// NewModel returns a model in which nothing is counted, for limiters with these lists, and with
// so many shards each. With nil none of them has any.
func NewModel(now int64, lists [][]backend.Policy, shards []int) *Model {
	return &Model{Now: now, lists: lists, shards: shards, counts: map[place]*count{}, leases: map[string][]*Lease{}, ledger: map[*count]*ledger{}}
}

// Part is what is asked of one key, with the states that were answered.
type Part struct {
	Key      string
	Policies []backend.Policy
	Shards   int
	Costs    []int64
	Each     []backend.State
}

// view is one policy of a request, and what its count holds.
type view struct {
	p     *backend.Policy
	c     *count
	cost  int64
	key   string
	state *backend.State
	alone bool // the only enforced policy of its list

	used   Span   // before the request, as decisions count it
	d      *debit // what the request charges
	denied bool   // it had no room
	partly bool   // fewer units were granted than an AtMost asked for
}

func (m *Model) count(key string, p *backend.Policy, shards int) *count {
	at := place{key, p.Name, p.Algorithm.Identity(), max(1, shards), p.Shadow}
	c := m.counts[at]
	if c == nil {
		c = &count{id: at.id, shards: at.shards}
		if at.id.Kind == rule.KindTokenBucket || at.id.Kind == rule.KindLeakyQueue {
			c.bucket = &bucket{period: p.Algorithm.Limit().Period.Microseconds(), queue: at.id.Kind == rule.KindLeakyQueue}
		}
		m.counts[at], m.ledger[c] = c, &ledger{shadow: p.Shadow}
		m.ask(c, at)
	}
	c.forget(m.Now)
	smooth := c.bucket != nil || c.id.Kind == rule.KindSlidingWindow
	c.uneven = c.uneven || c.limits > 1 || c.over && smooth
	return c
}

// ask notes the numbers of all policies that share a count.
func (m *Model) ask(c *count, at place) {
	limits := map[int64]bool{}
	for n, list := range m.lists {
		shards := 1
		if m.shards != nil {
			shards = max(1, m.shards[n])
		}
		for i := range list {
			p := &list[i]
			if (place{at.key, p.Name, p.Algorithm.Identity(), shards, p.Shadow}) != at {
				continue
			}
			limits[p.Algorithm.Max()] = true
			m.ledger[c].asked(p.Algorithm)
			if rate := p.Algorithm.Limit().Events; c.bucket != nil {
				c.bucket.fast = max(c.bucket.fast, rate)
				if c.bucket.slow == 0 || rate < c.bucket.slow {
					c.bucket.slow = rate
				}
			}
		}
	}
	c.limits = len(limits)
}

func (m *Model) views(parts []Part) (all []view) {
	for i := range parts {
		part, enforced := &parts[i], 0
		for j := range part.Policies {
			if !part.Policies[j].Shadow {
				enforced++
			}
		}
		for j := range part.Policies {
			p := &part.Policies[j]
			c := m.count(part.Key, p, part.Shards)
			v := view{p: p, c: c, cost: part.Costs[j], key: part.Key, used: c.counts(m.Now, &p.Algorithm), alone: enforced == 1}
			if part.Each != nil {
				v.state = &part.Each[j]
			}
			all = append(all, v)
		}
	}
	return all
}

// fits reports whether n units surely pass, and whether they surely don't.
func (v *view) fits(n int64) (yes, no bool) {
	most := v.p.Algorithm.Max()
	yes, no = v.used.Hi+n <= most && n <= most, v.used.Lo+n > most || n > most
	if v.c.shards > 1 { // one sub-key must have room for all of it
		exact := v.c.bucket == nil && v.c.id.Kind != rule.KindSlidingWindow
		room := most - v.used.Hi // of which the sub-key with the most has an equal part at least
		yes = yes && exact && n > 0 && (n-1)*int64(v.c.shards) < room && v.alone && !v.p.Shadow && !v.c.uneven
		no = no && !v.c.uneven && n > 0 // a sub-key that holds its share passes nothing
	}
	return yes, no
}

// decide returns whether the enforced policies let the call pass.
func decide(vs []view, op backend.Op) (yes, no bool) {
	yes = true
	for i := range vs {
		if v := &vs[i]; !v.p.Shadow {
			y, n := v.fits(units(op, v.cost))
			yes, no = yes && y, no || n
		}
	}
	return yes, no
}

// always reports whether a request passes whatever is used.
func always(op backend.Op) bool { return op == backend.Record || op == backend.Return }

// units returns what has to fit for a call to pass.
func units(op backend.Op, cost int64) int64 {
	switch op {
	case backend.Record, backend.Return:
		return 0
	case backend.AtMost:
		return min(cost, 1)
	}
	return cost
}

// Sure reports whether the specification leaves no room in the request's answer, and
// what it is.
func (m *Model) Sure(op backend.Op, parts []Part) (sure, passes bool) {
	vs := m.views(parts)
	sure = true
	for i := range vs {
		v := &vs[i]
		yes, no := v.fits(v.cost)
		if op == backend.Return {
			yes, no = true, false
		}
		if op == backend.AtMost { // what is granted, and what a shadow is charged of it
			yes, no = v.used.Lo == v.used.Hi && (v.c.shards == 1 || !v.p.Shadow), false
		}
		sure = sure && yes != no
	}
	yes, _ := decide(vs, op)
	return sure, yes || always(op)
}

// RetryAfter returns until when a call that is denied surely waits, and when it
// surely passes.
func (m *Model) RetryAfter(parts []Part) Span {
	var s Span
	for _, v := range m.views(parts) {
		if _, no := v.fits(v.cost); no && !v.p.Shadow {
			r := v.c.retry(&v.p.Algorithm, m.Now, v.cost)
			s.Lo, s.Hi = max(s.Lo, r.Lo), max(s.Hi, r.Hi)
		}
	}
	return s
}

// Do takes a request that a store decided, and its answer; nil is an answer that was
// lost, of a request whose answer is Sure. A Reserve that passes returns a lease for
// each part.
func (m *Model) Do(op backend.Op, parts []Part, lease time.Duration, d *backend.Decision) ([]*Lease, error) {
	vs := m.views(parts)
	yes, no := decide(vs, op)
	passes := yes
	if always(op) {
		passes = true
	} else if d != nil {
		if d.Allowed && no {
			return nil, fmt.Errorf("allowed, but %s", without(vs, op))
		}
		if !d.Allowed && yes {
			return nil, fmt.Errorf("denied, but there is room: %v", spans(vs))
		}
		passes = d.Allowed
	}
	for i := range vs {
		_, no := vs[i].fits(units(op, vs[i].cost))
		vs[i].denied = no
	}
	if err := m.charge(op, vs, passes, lease, d); err != nil {
		return nil, err
	}
	var leases []*Lease
	if op == backend.Reserve && passes {
		leases = m.reserved(parts, vs, lease)
	}
	if d == nil {
		return leases, nil
	}
	return leases, m.compare(op, vs, passes, d)
}

// charge charges what a request takes: of the enforced policies if it passes, of a
// shadow if it passes and the shadow has room.
func (m *Model) charge(op backend.Op, vs []view, passes bool, lease time.Duration, d *backend.Decision) error {
	granted := int64(0)
	if op == backend.AtMost {
		g := grant(vs)
		granted = g.Hi
		if d != nil {
			granted = d.Passed
			if !g.Has(granted) {
				return fmt.Errorf("granted %d, want %v of %v", granted, g, spans(vs))
			}
		}
	}
	if !passes || op == backend.Peek {
		return nil
	}
	for i := range vs {
		v := &vs[i]
		if op == backend.Return {
			v.c.returned(m.Now, v.cost)
			continue
		}
		v.partly = op == backend.AtMost && granted < v.cost
		n := v.takes(op, granted)
		if n == 0 {
			continue
		}
		ends := int64(0)
		if v.c.id.Kind == rule.KindInFlight {
			ends = m.Now + lease.Microseconds()
		}
		v.d = v.c.charge(m.Now, n, ends)
		if op == backend.Record {
			v.c.exceeds(m.Now, &v.p.Algorithm)
		} else {
			m.ledger[v.c].admit(v.d)
		}
	}
	return nil
}

// takes returns the units that a request which passes charges.
func (v *view) takes(op backend.Op, granted int64) int64 {
	room := Span{max(0, v.p.Algorithm.Max()-v.used.Hi), max(0, v.p.Algorithm.Max()-v.used.Lo)}
	switch {
	case op == backend.Record:
		return min(v.cost, max(0, v.p.Algorithm.MaxUsed()-v.used.Hi))
	case op == backend.AtMost && v.p.Shadow:
		if n := min(granted, room.Lo); v.state == nil || n == min(granted, room.Hi) {
			return n
		}
		return min(granted, max(0, v.state.Used-v.used.Lo)) // as answered
	case op == backend.AtMost:
		return granted
	case v.p.Shadow:
		if yes, no := v.fits(v.cost); no || !yes && v.state != nil && v.state.RetryAfter > 0 {
			v.denied = true
			return 0
		}
	}
	return v.cost
}

// grant returns what an AtMost may grant.
func grant(vs []view) Span {
	g := Span{vs[0].cost, vs[0].cost}
	for i := range vs {
		if v := &vs[i]; !v.p.Shadow {
			g.Lo, g.Hi = min(g.Lo, max(0, v.p.Algorithm.Max()-v.used.Hi)), min(g.Hi, max(0, v.p.Algorithm.Max()-v.used.Lo))
			if v.c.shards > 1 && (!v.alone || v.c.uneven || v.c.bucket != nil || v.c.id.Kind == rule.KindSlidingWindow) {
				g.Lo = 0
				if v.c.uneven {
					g.Hi = v.cost
				}
			}
		}
	}
	return g
}

// Undone takes a request that was denied, after some of its keys may have been charged
// and given back. Other leases of a TokenBucket give back less by as much.
func (m *Model) Undone(parts []Part) {
	for _, v := range m.views(parts) {
		if v.c.bucket != nil && v.cost > 0 {
			v.c.bucket.undone += v.cost
			v.c.bucket.events = append(v.c.bucket.events, event{at: m.Now, gives: v.cost})
		}
	}
}
