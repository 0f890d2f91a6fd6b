package wire

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/names"
	"github.com/headgate-go/headgate/internal/lab/golden"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/lua"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// recorder sends groups to a server whose clock the test sets, and records both ways.
type recorder struct {
	*testing.T
	client *redis.Client
	now    time.Time
	text   strings.Builder
}

// TestGolden: the bytes that go to the script, and those that come back.
func TestGolden(t *testing.T) {
	r := &recorder{T: t, client: redistest.Start(t).Client(t), now: time.Date(2026, 1, 31, 12, 0, 5, 123456000, time.UTC)}
	require.NoError(t, r.client.ScriptLoad(context.Background(), lua.Script).Err())
	r.text.WriteString("# What a command sends to the script, and what that answers. There is no version: the script's\n" +
		"# SHA-1 stands for it. lua/decide.lua has the layout. Keys and fields are text, the rest is hex.\n")
	r.takes()
	r.leases()
	r.loans()
	r.refused()
	golden.Equal(t, "wire.golden", r.text.String())
}

// group returns the group of a request: one call per cost, each of every policy.
func group(op backend.Op, key string, list []backend.Policy, costs ...int64) *Group {
	g := &Group{Op: op, Key: key, Tag: key, Policies: list}
	for _, n := range costs {
		g.call(backend.Request{Group: backend.Group{Cost: n}})
	}
	return g
}

// call adds a call of the request.
func (g *Group) call(q backend.Request) *Group {
	c := &Call{}
	q.Op, q.Policies = g.Op, g.Policies
	c.Ask(&q, 0)
	g.Calls = append(g.Calls, c)
	g.Follow(c)
	return g
}

// send records the exchange. decided is whether the script decides the groups.
func (r *recorder) send(what string, decided bool, groups ...*Group) {
	r.Helper()
	a := Args{Groups: groups}
	clock := fmt.Sprint(r.now.UnixMicro())
	all := a.Set(lua.SHA, clock, r.now.UnixMicro(), names.DefaultPrefix)
	a.Pack()
	fmt.Fprintf(&r.text, "\n# %s\n", what)
	keys := 3 + a.keys
	for _, k := range all[3:keys] {
		fmt.Fprintf(&r.text, "key    %q\n", *k.(*blob))
	}
	fmt.Fprintf(&r.text, "clock  %s\nasked  %s\n", clock, hex.EncodeToString(a.asked))
	for _, f := range all[keys+2:] {
		fmt.Fprintf(&r.text, "field  %q\n", *f.(*blob))
	}
	reply, err := r.client.Do(context.Background(), all...).Text()
	require.NoError(r, err)
	fmt.Fprintf(&r.text, "reply  %s\n", hex.EncodeToString([]byte(reply)))
	require.NoError(r, a.Read(reply), what)
	for _, g := range groups {
		for _, c := range g.Calls {
			require.Equal(r, decided, c.Err == nil && !g.Again, "%s: %v", what, c.Err)
		}
	}
}

func listOf(a algo.Algorithm) []backend.Policy { return []backend.Policy{{Name: "p", Algorithm: a}} }

func (r *recorder) takes() {
	l := algo.PerMinute(10)
	all := []algo.Algorithm{
		algo.FixedWindow(l), algo.SlidingWindow(l), algo.BucketedWindow(l, 6), algo.TokenBucket(l, 20),
		algo.Calendar(10, algo.Month(15), time.UTC), algo.SlidingLog(l), algo.CompactLog(l),
		algo.LeakyQueue(l, 12, 7*time.Second),
	}
	for _, a := range all {
		r.send("a take of 3 by "+a.String(), true, group(backend.Take, "k", listOf(a), 3))
	}
	for _, a := range all {
		r.send("takes of 10, which are denied, by "+a.String(), true, group(backend.Take, "k", listOf(a), 10, 10))
	}
	var list []backend.Policy
	for _, a := range all[:4] {
		list = append(list, backend.Policy{Name: "set", Algorithm: a})
	}
	r.send("a set, for two keys", true, group(backend.Take, "k", list, 2), group(backend.Take, "j", list, 2))
	list = append(list, listOf(all[6])...)
	list = append(list, backend.Policy{Name: "shadow", Algorithm: all[0], Shadow: true})
	r.send("two runs, with a log and a shadow", true, group(backend.Take, "k", list, 1, 1, 2))
	r.send("a run of 30 calls, as many as fit", true,
		group(backend.Take, "k", listOf(all[0])).call(backend.Request{Group: backend.Group{Cost: 1, Run: 30, UpTo: true}}))
	r.send("a run of 3 calls, all or none", true,
		group(backend.Take, "k", list).call(backend.Request{Group: backend.Group{Cost: 3, Run: 3}}))
	r.send("a peek", true, group(backend.Peek, "k", list, 1))
	r.send("a record", true, group(backend.Record, "k", list, 12))
	r.send("a reset", true, group(backend.Reset, "k", list, 0))
	first := group(backend.Take, "k", listOf(all[0]), 1)
	second := group(backend.Take, "j", listOf(all[5]), 1)
	first.Joint, second.Joint, first.And = true, true, []*Group{second}
	r.send("two keys, all or nothing", true, first)
}

// leasedCall returns a call of a lease: of n units and a slot.
func leasedCall(l backend.Lease, n int64, each []backend.State) backend.Request {
	l.Length = time.Minute
	return backend.Request{Group: backend.Group{Key: "k", Costs: []int64{n, 1}, Lease: &l, Each: each}}
}

func (r *recorder) leases() {
	list := []backend.Policy{{Name: "p", Algorithm: algo.TokenBucket(algo.PerMinute(100), 100)}, {Name: "slots", Algorithm: algo.InFlight(5)}}
	id := backend.LeaseID([]byte("lease 0000000001"))
	attempt := backend.LeaseID([]byte("settle 000000001"))
	r.send("a late reservation of 7", true, group(backend.Reserve, "k", list).call(leasedCall(backend.Lease{ID: id, Late: true}, 7, nil)))
	r.send("its ID in use", false, group(backend.Reserve, "k", list).call(leasedCall(backend.Lease{ID: id}, 7, nil)))
	r.send("an extension", true, group(backend.Extend, "k", list).call(leasedCall(backend.Lease{ID: id}, 1, nil)))
	r.send("settled at 3, and the states wanted", true, group(backend.Settle, "k", list).call(
		leasedCall(backend.Lease{ID: id, Attempt: attempt, Actual: []int64{3, 1}}, 1, make([]backend.State, 2))))
	r.send("cancelled, unresolved", true, group(backend.Settle, "k", list).call(
		leasedCall(backend.Lease{ID: backend.LeaseID([]byte("lease 0000000002")), Attempt: attempt, Unresolved: true}, 1, nil)))
	id = backend.LeaseID([]byte("lease 0000000003"))
	r.send("a reservation", true, group(backend.Reserve, "k", list).call(leasedCall(backend.Lease{ID: id}, 1, nil)))
	r.now = r.now.Add(time.Minute)
	r.send("extended at its end", false, group(backend.Extend, "k", list).call(leasedCall(backend.Lease{ID: id}, 1, nil)))
}

func (r *recorder) loans() {
	l := backend.Loan{ID: backend.LeaseID([]byte("borrower 0000001")), Epoch: [8]byte([]byte("epoch 01")), Term: 100 * time.Millisecond, Want: 20}
	list := []backend.Policy{
		{Name: "lent", Algorithm: algo.FixedWindow(algo.PerMinute(100))}, {Name: "lent", Algorithm: algo.SlidingLog(algo.PerMinute(100))},
		{Name: "shadow", Algorithm: algo.TokenBucket(algo.PerMinute(5), 5), Shadow: true},
	}
	borrow := func(cost int64) *Group {
		l.Seq++
		return group(backend.Borrow, "k", list).call(backend.Request{Group: backend.Group{Cost: cost}, Loan: &l})
	}
	r.send("a Borrow of 20 with a cost of 1", true, borrow(1))
	l.Keep, l.Held[0] = 2, backend.Held{Seq: 1, Used: 4}
	r.now = r.now.Add(50 * time.Millisecond)
	r.send("a Borrow that settles 4 and keeps 2", true, borrow(0))
	r.send("a take that is denied because of the loan", true, group(backend.Take, "k", list, 85))
	r.now = r.now.Add(10 * time.Millisecond)
	l.Held[0].Seq = 2
	r.send("a Borrow, recalled", true, borrow(0))
	l.Seq = 0
	r.send("a Borrow with a number of before", false, borrow(0))
}

// refused records the answers to groups that are not decided.
func (r *recorder) refused() {
	ctx, fixed := context.Background(), listOf(algo.FixedWindow(algo.PerMinute(10)))
	require.NoError(r, r.client.HSet(ctx, names.DefaultPrefix.Hash("bad"), "f1m/p", "not ours").Err())
	r.send("a value that is not ours", false, group(backend.Take, "bad", fixed, 1), group(backend.Take, "bad", fixed, 1))
	r.send("a cost above the limit", false, group(backend.Take, "k", fixed, 11))
	g := group(backend.Take, "k", listOf(algo.Calendar(10, algo.Day(), time.UTC)), 1)
	g.Now = r.now.AddDate(0, 1, 0).UnixMicro()
	r.send("a calendar of a month ago", false, g)
	require.NoError(r, r.client.Do(ctx, "acl", "setuser", "default", "-pexpire").Err())
	r.send("a right is missing", false, group(backend.Take, "new", fixed, 1))
}
