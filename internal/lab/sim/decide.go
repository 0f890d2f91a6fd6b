package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/lua"
)

// evalsha decides what a script's arguments ask for.
func (n *node) evalsha(c *conn, args []string, asking bool) []byte {
	if args[0] != lua.SHA || !n.scripts {
		return failure("NOSCRIPT No matching script. Please use EVAL.")
	}
	count, err := strconv.Atoi(args[1])
	if err != nil || count < 1 || len(args) < count+4 {
		return n.malformed(args)
	}
	if n.refuses != "" {
		return failure(n.refuses)
	}
	now := n.clock()
	b := fmt.Appendf(nil, "%d %d", now/1e6, now%1e6)
	if given := args[count+2]; given != "" { // a virtual clock's, in the library's own tests
		now, _ = strconv.ParseInt(given, 10, 64)
		b = append([]byte("0 "), given...)
	}
	a := &arguments{node: n, now: now, keys: args[2 : 2+count], blob: args[count+3], fields: args[count+4:]}
	groups, err := a.groups()
	if err != nil {
		return n.malformed(args)
	}
	if elsewhere := n.world.elsewhere(n, groups[0].tag, asking); elsewhere != "" {
		return failure(elsewhere)
	}
	for _, g := range groups {
		if n.revoked && g.writesApart() {
			b = append(b, strings.Repeat("EZADD NOPERM User default has no permissions to run the 'zadd' command\n", 1+len(g.with))...)
			continue
		}
		b = append(b, n.decide(c.proc, g, now)...)
	}
	if n.ran++; n.raises && n.world.hashOf("raise", n.addr, n.ran)%4 == 0 {
		return failure("NOPERM User default has no permissions to run the 'pexpire' command script: " + lua.SHA + ", on @user_script:314.")
	}
	return bulk(string(b))
}

// writesApart reports whether a group, or one that is decided with it, writes a key that
// one policy has.
func (g *asked) writesApart() bool {
	for _, h := range append([]*asked{g}, g.with...) {
		if h.op != backend.Peek && slices.ContainsFunc(h.policies, apart) {
			return true
		}
	}
	return false
}

// apart reports whether a policy has a key of its own.
func apart(p backend.Policy) bool { return p.Algorithm.Kind().Wire()>>4 == apartClass }

func (n *node) malformed(args []string) []byte {
	n.world.fail("the wire", errors.New("arguments that the script could not read: "+strings.Join(args, " ")))
	return failure("ERR malformed")
}

// clock is the node's, in µs.
func (n *node) clock() int64 { return time.Now().Add(n.ahead).UnixMicro() }

// decide decides a group, and those that are decided with it, and returns the answer.
func (n *node) decide(proc int, g *asked, now int64) []byte {
	all := append([]*asked{g}, g.with...)
	for _, h := range all {
		if h.outside {
			if g.first && !g.op.Ends() { // no later alternative is decided
				all = alternatives(all)[0]
			}
			return []byte(strings.Repeat("B", len(all)))
		}
	}
	s, p := n.keeps.of(g.tag), past{now, all}
	s.catchUp()
	s.now = now
	answer := s.decide(all)
	s.log = append(s.log, p)
	s.decided++
	n.replicate(g.tag, p)
	n.world.ledger.charge(proc, n, all)
	if g.wrong != nil {
		n.world.fail("First charges the first part that has room, and no other.", g.wrong)
	}
	return answer
}

// decide decides groups: one, or several all or nothing.
func (s *state) decide(all []*asked) (answer []byte) {
	switch {
	case all[0].first:
		return s.decideFirst(all)
	case len(all) > 1:
		return s.decideAll(all)
	}
	g := all[0]
	met := s.met(g)
	switch g.op {
	case backend.Borrow, backend.Return:
		return s.afterwards(g)
	case backend.Reset, backend.Settle, backend.Extend:
		if _, err := s.ask(g, nil, g.op, nil); err != nil {
			return letter(err)
		}
		return []byte{0}
	}
	for i := range g.runs {
		r := &g.runs[i]
		var last []backend.State
		times := r.calls
		if g.op == backend.Take {
			g.run, g.upTo = r.of, times > 1
		}
		if g.upTo {
			g.run, times = times, 1
		}
		for range times {
			each, err := s.ask(g, r.costs, g.op, nil)
			if err != nil {
				return letter(err)
			}
			last = each
		}
		met = append(met, s.retries(g, r.costs, last)...)
	}
	return met
}

// afterwards decides an operation that is answered by what stands after it.
func (s *state) afterwards(g *asked) []byte {
	if g.op == backend.Borrow {
		return s.borrow(g)
	}
	before := s.usedBy(g)
	if _, err := s.ask(g, g.runs[0].costs, g.op, nil); err != nil {
		return letter(err)
	}
	end := &g.done[len(g.done)-1]
	for i, n := range s.usedBy(g) {
		before[i] -= n
	}
	end.costs = before
	return s.met(g)
}

// usedBy returns the units that each policy of a group counts now.
func (s *state) usedBy(g *asked) (all []int64) {
	for _, p := range g.policies {
		all = append(all, s.view(g.tag, p).Used)
	}
	return all
}

// decideAll looks at all groups before any is charged, as the script does.
func (s *state) decideAll(all []*asked) (answer []byte) {
	first := all[0]
	var and []backend.Group
	for _, g := range all[1:] {
		and = append(and, group(g, g.runs[0].costs))
	}
	var looks [][]byte
	for _, g := range all {
		met := s.met(g)
		each, err := s.ask(g, g.runs[0].costs, backend.Peek, nil)
		if err != nil {
			return letter(err)
		}
		looks = append(looks, append(met, s.retries(g, g.runs[0].costs, each)...))
	}
	if _, err := s.ask(first, first.runs[0].costs, first.op, and); err != nil {
		return []byte(strings.Repeat(string(letter(err)), len(all)))
	}
	for _, l := range looks {
		answer = append(answer, l...)
	}
	return answer
}

// group is what a run of a group asks of the store.
func group(g *asked, costs []int64) backend.Group {
	return backend.Group{Key: g.tag, Policies: g.policies, Cost: 1, Costs: costs, Each: make([]backend.State, len(g.policies)), Lease: g.lease}
}

// ask decides one call of a group, and notes what it was charged.
func (s *state) ask(g *asked, costs []int64, op backend.Op, and []backend.Group) ([]backend.State, error) {
	r := backend.Request{Op: op, Group: group(g, g.of(costs)), And: and}
	r.Run, r.UpTo = g.run, g.upTo
	if op == backend.Peek {
		r.Lease = nil
	}
	var d backend.Decision
	err := s.store.Do(background, &r, &d)
	end := done{costs: costs, passed: err == nil && d.Allowed && op == g.op, err: err, each: r.Each}
	if g.run > 0 {
		end.costs = slices.Clone(costs)
		for i := range costs {
			if g.upTo || g.policies[i].Shadow {
				end.costs[i] = costs[i] * int64(r.Each[i].Passed)
			}
		}
	}
	g.done = append(g.done, end)
	return r.Each, err
}

// of returns the costs of all calls of a take, of which a shadow's are those of one.
func (g *asked) of(costs []int64) []int64 {
	if g.run == 0 || g.upTo {
		return costs
	}
	all := slices.Clone(costs)
	for i := range all {
		if g.policies[i].Shadow {
			all[i] *= g.run
		}
	}
	return all
}

// letter stands in the answer for a group of which nothing was decided.
func letter(err error) []byte {
	switch {
	case errors.Is(err, backend.ErrNotHeld):
		return []byte("N")
	case errors.Is(err, backend.ErrLeaseEnded):
		return []byte("L")
	case errors.Is(err, backend.ErrHeld):
		return []byte("H")
	}
	return []byte("R")
}

// met is what the policies of a group meet.
func (s *state) met(g *asked) (b []byte) {
	switch g.op {
	case backend.Reset, backend.Settle, backend.Extend, backend.Borrow:
		return nil
	}
	for i := range g.policies {
		b = s.metBy(b, g, i)
	}
	return b
}

// worded is a memory store of a build with -tags invariants, or with the race detector: no
// other one shows what it keeps.
type worded interface {
	Words(g *backend.Group, i int) (words []int64, lent [][3]int64)
}

// metBy appends what the i-th policy of a group meets, and before that what is lent of its
// count.
func (s *state) metBy(b []byte, g *asked, i int) []byte {
	at := group(g, nil)
	a := &g.policies[i].Algorithm
	w, lent := any(s.store).(worded).Words(&at, i)
	if w == nil {
		w = make([]int64, a.Words())
	}
	if len(lent) > 0 {
		b = append(b, 31, byte(len(lent)))
		for _, l := range lent {
			b = double(double(double(b, l[0]), l[1]), l[2])
		}
	}
	switch v := a.View(w, s.now); {
	case a.Kind().Storage() != rule.StoredWords:
		b = double(double(append(b, 1), v.Used), v.Newest())
	case a.Shown(&v) == 0: // whether the memory store still has what counts no more is chance
		b = append(b, 0)
	default:
		b = append(b, 1, 0, 0, 0, 0, 0, 0, 0, 0) // a version, and the script's horizon
		for _, n := range w[:a.Kind().Words()] {
			b = double(b, n)
		}
	}
	return b
}

// retries is when the policies that keep too much to send have room for the costs.
func (s *state) retries(g *asked, costs []int64, each []backend.State) (b []byte) {
	for i := range each {
		b = s.retry(b, g, i, costs[i], &each[i])
	}
	return b
}

// retry appends when the i-th policy has room for a cost, if it keeps too much to send.
func (s *state) retry(b []byte, g *asked, i int, cost int64, at *backend.State) []byte {
	a := &g.policies[i].Algorithm
	if a.Kind().Storage() != rule.StoredWords && at.RetryAfter > 0 && cost <= a.Max() {
		b = double(b, s.now+at.RetryAfter.Microseconds())
	}
	return b
}

// background is the context of a node's decisions.
var background = context.Background()

func double(b []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(n)))
}
