package standalone_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// neighbour is a kind of request.
type neighbour struct {
	name string
	ask  asks
}

// asks returns the request of a key, and the one that is sent before it.
type asks func(key string, list []backend.Policy) (before, q backend.Request)

// single asks for op where all units are left, or none is.
func single(op backend.Op, spent bool) asks {
	return func(key string, list []backend.Policy) (before, q backend.Request) {
		if spent {
			before = take(key, list, 2)
		}
		if q = take(key, list, 1); op == backend.Reset {
			q.Cost = 0
		}
		q.Op = op
		return before, q
	}
}

// leased asks for op of a lease that is held, or of one that is not.
func leased(op backend.Op, held bool, how func(*backend.Lease)) asks {
	return func(key string, list []backend.Policy) (before, q backend.Request) {
		if held {
			before = ofLease(backend.Reserve, key, list)
		}
		if q = ofLease(op, key, list); how != nil {
			how(q.Lease)
			q.Lease.Actual = q.Lease.Actual[:min(len(list), len(q.Lease.Actual))]
		}
		return before, q
	}
}

func ofLease(op backend.Op, key string, list []backend.Policy) backend.Request {
	q := take(key, list, 1)
	q.Op, q.Lease = op, &backend.Lease{Length: time.Minute}
	copy(q.Lease.ID[:], key)
	if op == backend.Settle {
		q.Lease.Attempt = backend.LeaseID{1}
	}
	if op.Ends() || op == backend.Extend {
		q.Cost = 0
	}
	return q
}

// and asks it of another key, too: all or nothing, or as an alternative.
func (a asks) and(alternatives bool) asks {
	return func(key string, list []backend.Policy) (before, q backend.Request) {
		before, q = a(key, list)
		g := q.Group
		if g.Key, g.Else = key+"'", alternatives; g.Lease != nil {
			lease := *g.Lease
			lease.ID[15] = 1
			g.Lease = &lease
		}
		q.And = []backend.Group{g}
		return before, q
	}
}

func unresolved(l *backend.Lease) { l.Unresolved, l.Actual = true, []int64{1, 1} }

func used(l *backend.Lease) { l.Actual = []int64{0, 1} }

var neighbours = []neighbour{
	{"take", single(backend.Take, false)},
	{"take, denied", single(backend.Take, true)},
	{"peek", single(backend.Peek, false)},
	{"peek, denied", single(backend.Peek, true)},
	{"record", single(backend.Record, true)},
	{"reset", single(backend.Reset, true)},
	{"reserve", leased(backend.Reserve, false, nil)},
	{"reserve again", leased(backend.Reserve, true, nil)},
	{"settle", leased(backend.Settle, true, used)},
	{"cancel", leased(backend.Settle, true, nil)},
	{"settle, absent", leased(backend.Settle, false, used)},
	{"settle, unresolved", leased(backend.Settle, true, unresolved)},
	{"settle, unresolved and absent", leased(backend.Settle, false, unresolved)},
	{"extend", leased(backend.Extend, true, nil)},
	{"extend, absent", leased(backend.Extend, false, nil)},
	{"all", single(backend.Take, false).and(false)},
	{"all, denied", single(backend.Take, true).and(false)},
	{"all, reserve", leased(backend.Reserve, false, nil).and(false)},
	{"first", single(backend.Take, false).and(true)},
	{"first, second has room", single(backend.Take, true).and(true)},
	{"first, reserve", leased(backend.Reserve, false, nil).and(true)},
	{"first, settle", leased(backend.Settle, true, unresolved).and(true)},
	{"first, settle, absent", leased(backend.Settle, false, unresolved).and(true)},
}

// TestNeighbours sends each kind of request right behind each other one, in one script. Both are answered
// and charged as by a store that decides one request after the other: nothing that the script knows of
// a request reaches the next one.
func TestNeighbours(t *testing.T) {
	redistest.Plain(t)
	c, n, scripts := newCivil(t), 0, int64(0)
	ask := func(what string, qs ...backend.Request) {
		scripts++
		got, want := answersOf(c.redis, qs), answersOf(c.process, qs)
		for i := range got {
			require.Equal(t, errors.Is(want[i].Err, backend.ErrNotHeld), got[i].Err != nil, what)
			got[i].Err, want[i].Err = nil, nil
		}
		require.Equal(t, want, got, what)
	}
	lists := [][]backend.Policy{
		calendars(algo.FixedWindow(algo.PerDay(2))),
		calendars(algo.SlidingLog(algo.PerDay(2))),
		calendars(algo.TokenBucket(algo.PerDay(2), 2), algo.CompactLog(algo.PerDay(2))),
	}
	pair := func(first, second neighbour, list []backend.Policy) {
		n++
		what := fmt.Sprint(first.name, " | ", second.name, " of ", &list[0].Algorithm)
		var qs []backend.Request
		for i, of := range []neighbour{first, second} {
			before, q := of.ask(fmt.Sprint(n, "abc"[i:i+1]), list)
			if qs = append(qs, q); before.Key != "" {
				ask(what+": before", before)
			}
		}
		ask(what, qs...)
		for _, q := range qs {
			for i := range 1 + len(q.And) {
				p := take(q.GroupAt(i).Key, list, 1)
				p.Op = backend.Peek
				ask(what+": after", p)
			}
		}
	}
	ran := c.commands(t, func() {
		for _, list := range lists {
			for _, first := range neighbours {
				for _, second := range neighbours {
					pair(first, second, list)
				}
			}
		}
	})
	require.Equal(t, scripts, ran)
}
