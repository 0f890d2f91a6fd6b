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

	"github.com/headgate-go/headgate/algo"
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
		b = append(b, n.decide(c.proc, g, now)...)
	}
	return bulk(string(b))
}

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
			return []byte(strings.Repeat("B", len(all)))
		}
	}
	s, p := n.keeps.of(g.tag), past{now, all}
	s.now = now
	answer := s.decide(all)
	s.log = append(s.log, p)
	n.replicate(g.tag, p)
	n.world.ledger.charge(proc, n, all)
	return answer
}

// decide decides groups: one, or several all or nothing.
func (s *state) decide(all []*asked) (answer []byte) {
	if len(all) > 1 {
		return s.decideAll(all)
	}
	g := all[0]
	met := s.met(g)
	switch g.op {
	case backend.Reset, backend.Settle, backend.Extend:
		if _, err := s.ask(g, nil, g.op, nil); err != nil {
			return letter(err)
		}
		return []byte{0}
	}
	for i := range g.runs {
		r := &g.runs[i]
		var last []backend.State
		for range r.calls {
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
	return backend.Group{Key: g.tag, Policies: g.policies, Cost: 1, Costs: costs, Each: make([]backend.State, len(g.policies)), Receipt: &backend.Receipt{}}
}

// ask decides one call of a group, and notes what it was charged.
func (s *state) ask(g *asked, costs []int64, op backend.Op, and []backend.Group) ([]backend.State, error) {
	r := backend.Request{Op: op, Group: group(g, costs), And: and}
	if op == backend.AtMost || op == backend.RecordAtMost && costs != nil {
		r.Cost = costs[0]
	}
	if op == backend.AtMost {
		r.Costs = nil
	}
	if op != backend.Peek {
		r.Lease = g.lease
	}
	var d backend.Decision
	err := s.store.Do(context.Background(), &r, &d)
	end := done{costs: costs, passed: err == nil && d.Allowed && op == g.op}
	switch {
	case op == backend.AtMost:
		end.costs = slices.Repeat([]int64{d.Granted}, len(g.policies))
	case op == backend.RecordAtMost && r.Receipt.Costs != nil:
		end.costs = slices.Clone(r.Receipt.Costs)
	}
	g.done = append(g.done, end)
	return r.Each, err
}

// letter stands in the answer for a group of which nothing was decided.
func letter(err error) []byte {
	switch {
	case errors.Is(err, backend.ErrNotHeld):
		return []byte("N")
	case errors.Is(err, backend.ErrLeaseEnded):
		return []byte("L")
	}
	return []byte("R")
}

// met is what the policies of a group meet.
func (s *state) met(g *asked) (b []byte) {
	switch g.op {
	case backend.Reset, backend.Settle, backend.Extend:
		return nil
	}
	words := s.store.Shared().Words
	at := group(g, nil)
	for i := range g.policies {
		a, w := &g.policies[i].Algorithm, words(&at, i)
		if w == nil {
			w = make([]int64, a.Words())
		}
		switch v := a.View(w, s.now); {
		case a.Kind().Storage() != algo.StoredWords:
			b = double(double(append(b, 1), v.Used), v.Newest())
		case v.Used == 0: // whether the memory store still has what counts no more is chance
			b = append(b, 0)
		default:
			b = append(b, 1, 0, 0, 0, 0, 0, 0, 0, 0) // a version, and the script's horizon
			for _, n := range w[:a.Kind().Words()] {
				b = double(b, n)
			}
		}
	}
	return b
}

// retries is when the policies that keep too much to send have room for the costs.
func (s *state) retries(g *asked, costs []int64, each []backend.State) (b []byte) {
	for i := range each {
		a := &g.policies[i].Algorithm
		if a.Kind().Storage() != algo.StoredWords && each[i].RetryAfter > 0 && costs[i] <= a.Max() {
			b = double(b, s.now+each[i].RetryAfter.Microseconds())
		}
	}
	return b
}

func double(b []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(n)))
}
