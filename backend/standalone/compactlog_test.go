package standalone_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/trace"
	"github.com/stretchr/testify/require"
)

// TestCompactLogIsASlidingLog gives a CompactLog on Redis and a SlidingLog in memory the
// same random calls. The logs are so long that blocks are made, passed and dropped, one
// or thousands at once. Every field of every answer is the same.
func TestCompactLogIsASlidingLog(t *testing.T) {
	redistest.Plain(t)
	l := newLogs(t)
	each := redistest.Steps(4_000, 12_000)
	for steps := redistest.Steps(8_000, 1_000_000); steps > 0; steps -= each {
		l.begin(fmt.Sprint("k", steps))
		for range each {
			l.tick()
			l.step()
		}
	}
}

// TestLongLogsReturn gives a SlidingLog on Redis and one in memory the same calls, none at the
// instant of another: a Return leaves, and a settle gives back, the same.
func TestLongLogsReturn(t *testing.T) {
	redistest.Plain(t)
	l := newLogs(t)
	l.log, l.onward = algo.SlidingLog, true
	each := redistest.Steps(2_000, 12_000)
	for steps := redistest.Steps(4_000, 300_000); steps > 0; steps -= each {
		l.begin(fmt.Sprint("k", steps))
		l.settles, l.apart = true, 1
		for range each {
			l.tick()
			l.step()
		}
	}
}

func newLogs(t *testing.T) *logs {
	server := redistest.Start(t)
	l := &logs{T: t, r: rand.New(rand.NewPCG(redistest.Seed(t), 1)), log: algo.CompactLog}
	client := clock.Client{Processor: server.Client(t), Now: l.time}
	l.redis = standalone.New(client, &standalone.Options{Budget: 10 * time.Second})
	t.Cleanup(func() { server.NoImmortals(t) })
	return l
}

// logs are a log on Redis and one in memory that see the same.
type logs struct {
	*testing.T
	r             *rand.Rand
	redis, memory backend.Store
	log           func(algo.Limit) algo.Algorithm // on Redis
	onward        bool                            // the clock does not go back

	now         int64
	key         string
	period      time.Duration
	limit, most int64 // units, and of a cost
	live        int64 // calls per period, about
	settles     bool
	apart       int64 // µs between any two calls, so that none merge
	leases      []backend.Lease
	reserved    map[backend.LeaseID]reserved
}

type reserved struct{ cost, at int64 }

func (l *logs) time() time.Time { return time.UnixMicro(l.now) }

func (l *logs) begin(key string) {
	l.now, l.key, l.apart = trace.Start, key, l.r.Int64N(2)
	l.memory = memory.New(&memory.Options{Now: l.time}) // at that instant: its clock does not go back
	l.period = []time.Duration{10 * time.Millisecond, time.Minute, 24 * time.Hour, 30 * 24 * time.Hour, algo.MaxPeriod}[l.r.IntN(5)]
	l.limit, l.most = 1+l.r.Int64N([]int64{50, 3000, 20_000, algo.MaxLogLimit}[l.r.IntN(4)]), []int64{1, 2, 300, algo.MaxLogLimit}[l.r.IntN(4)]
	l.live, l.settles = 1+l.r.Int64N([]int64{2000, 50_000}[l.r.IntN(2)]), l.r.IntN(2) == 0
	l.leases, l.reserved = nil, map[backend.LeaseID]reserved{}
}

func (l *logs) tick() {
	if l.now > 4e15 {
		return // the clocks of both end at 2^52
	}
	switch us := l.period.Microseconds(); l.r.IntN(1500) {
	case 0:
		l.now += us - l.r.Int64N(us/10)
	case 1:
		l.now += us + l.r.Int64N(3) - 1
	case 2:
		if !l.onward {
			l.now -= l.r.Int64N(min(us/20, time.Hour.Microseconds()/2) + 1)
		}
		l.now++
	case 3:
		l.limit = min(1+l.r.Int64N(2*l.limit), algo.MaxLogLimit)
	case 4:
		l.now += us/2 + l.r.Int64N(us)
	default:
		l.now += l.apart + l.r.Int64N(3)*l.r.Int64N(2+us/l.live)
	}
}

func (l *logs) step() {
	r := backend.Request{Op: backend.Take, Group: backend.Group{Key: l.key, Cost: 1 + l.r.Int64N(min(l.most, l.limit))}}
	n := 1 + l.r.IntN(2)
	switch op := l.r.IntN(40); {
	case op < 2:
		r.Op, r.Cost = backend.Peek, 1+l.r.Int64N(l.limit)
	case op < 4:
		r.Op = backend.Record
	case op < 5:
		r.Op, r.Cost = backend.Return, 1+l.r.Int64N([]int64{3, min(l.most, l.limit), l.limit}[l.r.IntN(3)])
	case l.settles && op < 18:
		r.Op, r.Lease = backend.Reserve, l.reserve(r.Cost)
	case l.settles && op < 28 && len(l.leases) > 0:
		r.Op, r.Lease = backend.Settle, l.settle()
		r.Cost, n = 0, 1
	}
	if r.Op == backend.Reserve {
		n = 1
	}
	l.ask(r, n)
}

// ask asks both logs, in a list of one policy or of two.
func (l *logs) ask(r backend.Request, n int) {
	l.Helper()
	limit := algo.Per(l.limit, l.period)
	list := []backend.Policy{
		{Name: "log", Algorithm: algo.SlidingLog(limit), OnFailure: backend.FailClosed},
		{Name: "w", Algorithm: algo.SlidingWindow(algo.PerDay(algo.MaxLimit)), OnFailure: backend.FailClosed},
	}
	r.Policies = list[:n]
	want := trace.Ask(l.Context(), l.memory, r)
	r.Policies = slices.Clone(list)[:n]
	r.Policies[0].Algorithm = l.log(limit)
	require.NoError(l, trace.Same(want, trace.Ask(l.Context(), l.redis, r)), "%s at %d: %v of %d by %v, lease %+v", l.key, l.now, r.Op, r.Cost, limit, r.Lease)
}

func (l *logs) reserve(cost int64) *backend.Lease {
	lease := backend.Lease{Length: 24 * time.Hour}
	for i := range lease.ID {
		lease.ID[i] = byte(l.r.Uint32())
	}
	l.leases, l.reserved[lease.ID] = append(l.leases, lease), reserved{cost, l.now}
	return &lease
}

// settle settles one of the last leases, and a quarter to nothing.
func (l *logs) settle() *backend.Lease {
	i := len(l.leases) - 1 - l.r.IntN(min(len(l.leases), []int{3, 2000}[l.r.IntN(2)]))
	lease := l.leases[i]
	l.leases = slices.Delete(l.leases, i, i+1)
	lease.Attempt = backend.LeaseID{1}
	cost, ends := l.reserved[lease.ID].cost, time.UnixMicro(l.reserved[lease.ID].at).Add(2*lease.Length)
	if l.time().Sub(ends).Abs() <= time.Hour {
		lease.ID = backend.LeaseID{} // memory's clock takes no step back, so the record may have left only there
	}
	switch l.r.IntN(4) {
	case 0:
		lease.Actual = []int64{0}
	case 1:
		lease.Actual = []int64{cost + l.r.Int64N(2)*l.r.Int64N(cost)}
	default:
		lease.Actual = []int64{l.r.Int64N(cost + 1)}
	}
	return &lease
}

// TestCompactLogBlocksThatGaveBack: an entry that gave all back is not among those of a
// block whose calls all cost 1. A block that is the tail again is not in its row's sum.
func TestCompactLogBlocksThatGaveBack(t *testing.T) {
	redistest.Plain(t)
	l := newLogs(t)
	do := func(op backend.Op, cost int64, lease *backend.Lease) {
		t.Helper()
		l.ask(backend.Request{Op: op, Group: backend.Group{Lease: lease, Key: l.key, Cost: cost}}, 1)
	}
	takes := func(n int) {
		t.Helper()
		for range n {
			l.now += 1000
			do(backend.Take, 1, nil)
		}
	}
	reserve := func() backend.Lease {
		l.now += 1000
		lease := l.reserve(1)
		do(backend.Reserve, 1, lease)
		return *lease
	}
	cancel := func(lease backend.Lease) {
		lease.Attempt, lease.Actual = backend.LeaseID{1}, []int64{0}
		do(backend.Settle, 0, &lease)
	}

	l.begin("zero")
	l.period, l.limit = time.Minute, 100
	first := reserve()
	takes(1)
	cancel(first)
	takes(64)
	l.now += time.Minute.Microseconds() - 63_500
	do(backend.Peek, 100, nil)

	l.begin("row")
	l.period, l.limit = time.Minute, 20_000
	takes(64*128 - 1) // and then two entries: the last of a row, and one behind it
	last := reserve()
	cancel(reserve())
	cancel(last)
	l.now += time.Minute.Microseconds() - 64*64*1000 - 1500
	do(backend.Record, 10_000, nil)
	do(backend.Peek, 20_000, nil)

	l.begin("empty") // a row and more of blocks, and then they are filled again
	l.period, l.limit = time.Minute, 20_000
	takes(30)
	var held []backend.Lease
	for range 64*65 + 40 {
		held = append(held, reserve())
	}
	for _, lease := range held {
		cancel(lease)
	}
	takes(64 * 3)
	l.now += time.Minute.Microseconds() - 64*64*1000
	do(backend.Record, 19_000, nil)
	do(backend.Peek, 20_000, nil)
}

// TestCompactLogGarbage: an impossible field h is a corrupt value, and stays as it is.
// So are a block or sums that a call needs and that are missing or cut.
func TestCompactLogGarbage(t *testing.T) {
	redistest.Plain(t)
	s := newTimed(t)
	a := algo.CompactLog(algo.PerMinute(10_000))
	s.fill("k", a, 5000)
	ctx, name := t.Context(), "headgate:{k}:pack:1m/p"
	good := s.client.HGetAll(ctx, name).Val()
	h := good["h"]
	nan := "\x00\x00\x00\x00\x00\x00\xf8\x7f"
	s.now += (40 * time.Second).Microseconds()
	for what, change := range map[string]map[string]string{
		"empty": {"h": ""}, "short": {"h": h[:len(h)-1]}, "long": {"h": h + strings.Repeat(h[:9], 64)}, "text": {"h": strings.Repeat("x", len(h))},
		"version": {"h": "\x02" + h[1:]}, "newest": {"h": h[:5] + nan + h[13:]}, "head": {"h": h[:17] + nan + h[25:]},
		"far head": {"h": h[:17] + "\x00\x00\x00\x00\x00\x00\x20\x41" + h[25:]}, "first": {"h": h[:25] + nan + h[33:]},
		"base":     {"h": h[:43] + nan + h[51:]},
		"no block": {"0": ""}, "cut block": {"0": good["0"][:100]}, "wide block": {"0": "\x09" + good["0"][1:]},
		"no sums": {"-1": ""}, "cut sums": {"-1": good["-1"][:17]},
	} {
		require.NoError(t, s.client.HSet(ctx, name, change).Err())
		before := s.client.HGetAll(ctx, name).Val()
		for _, op := range []backend.Op{backend.Take, backend.Peek} {
			for _, cost := range []int64{1, 9900} {
				q := backend.Request{Op: op, Group: backend.Group{Key: "k", Cost: cost, Policies: []backend.Policy{{Name: "p", Algorithm: a, OnFailure: backend.FailClosed}}}}
				var corrupt *backend.CorruptError
				answer := trace.Ask(ctx, s.store, q)
				require.ErrorAs(t, answer.Err, &corrupt, "%s: %v of %d gave %v", what, op, cost, answer)
			}
		}
		require.Equal(t, before, s.client.HGetAll(ctx, name).Val(), what)
		require.NoError(t, s.client.HSet(ctx, name, good).Err())
	}
	require.True(t, s.take("k", a, 1))
}

// TestCompactLogNumbersGoOn: a log that is always in use numbers its blocks beyond 32 bits.
func TestCompactLogNumbersGoOn(t *testing.T) {
	redistest.Plain(t)
	s := newTimed(t)
	a, ctx, name := algo.CompactLog(algo.PerMinute(10_000)), t.Context(), "headgate:{k}:pack:1m/p"
	s.fill("k", a, 1)
	h := []byte(s.client.HGet(ctx, name, "h").Val())
	const last = 1<<32 - 2
	binary.LittleEndian.PutUint64(h[17:], math.Float64bits(64*last))
	for _, at := range []int{33, 38} { // the tail's number, and the lowest that may be stored
		binary.LittleEndian.PutUint32(h[at:], last)
	}
	require.NoError(t, s.client.HSet(ctx, name, "h", h).Err())
	s.fill("k", a, 64*70)
	peek := backend.Request{Op: backend.Peek, Group: backend.Group{Key: "k", Cost: 1, Policies: []backend.Policy{{Name: "p", Algorithm: a, OnFailure: backend.FailClosed}}}}
	require.EqualValues(t, 64*70+1, trace.Ask(ctx, s.store, peek).Decision.Used)
	s.now += (30 * time.Second).Microseconds()
	require.InDelta(t, 64*70*30/54, trace.Ask(ctx, s.store, peek).Decision.Used, 3)
	s.now += time.Minute.Microseconds()
	s.fill("k", a, 10)
	require.LessOrEqual(t, s.client.HLen(ctx, name).Val(), int64(2), "the tail, and the sums of its row")
}

// TestCompactLogEmptyBlocks: where all but the oldest calls gave all back, the settlement
// of the newest one drops what they left, however much that is.
func TestCompactLogEmptyBlocks(t *testing.T) {
	s := newTimed(t)
	const blocks = 12_000
	a, ctx, name := algo.CompactLog(algo.PerMinute(1_000_000)), t.Context(), "headgate:{k}:pack:1m/p"
	q := backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Cost: 5, Policies: []backend.Policy{{Name: "p", Algorithm: a, OnFailure: backend.FailClosed}}}}
	require.True(t, trace.Ask(ctx, s.store, q).Decision.Allowed)
	first := s.client.HGet(ctx, name, "h").Val()
	s.now += time.Second.Microseconds()
	q.Op, q.Cost, q.Lease = backend.Reserve, 1, &backend.Lease{ID: backend.LeaseID{1}, Length: time.Minute, Attempt: backend.LeaseID{1}}
	require.True(t, trace.Ask(ctx, s.store, q).Decision.Allowed)

	// Between the two calls come blocks of 64 that are empty but for the first one's first.
	h, base := []byte(s.client.HGet(ctx, name, "h").Val()), []byte(first[43:51])
	h = append(h[:51:51], 0, 0, 0, 0, 0, 0, 1, 0, 0)
	binary.LittleEndian.PutUint32(h[33:], blocks)
	binary.LittleEndian.PutUint64(h[43:], math.Float64bits(float64(s.now)))
	p := s.client.Pipeline()
	block, row := slices.Concat([]byte{1, 1}, base, make([]byte, 128)), make([]byte, 262)
	for i := range blocks {
		p.HSet(ctx, name, i, block)
	}
	for i := range (blocks + 63) / 64 {
		p.HSet(ctx, name, -1-i, row)
	}
	_, err := p.Exec(ctx)
	require.NoError(t, err)
	block[11], row[0], row[256] = 5, 5, 5
	require.NoError(t, s.client.HSet(ctx, name, "h", h, 0, block, -1, row).Err())

	q.Op, q.Cost = backend.Settle, 0
	took := s.micros(func() { require.NoError(t, trace.Ask(ctx, s.store, q).Err) })
	t.Logf("%.0f µs", took)
	q.Op, q.Lease = backend.Peek, nil
	got := trace.Ask(ctx, s.store, q).Decision
	require.EqualValues(t, 5, got.Used)
	require.Equal(t, 59*time.Second, got.ResetAfter)
	require.LessOrEqual(t, s.client.HLen(ctx, name).Val(), int64(2+(blocks+63)/64))
}
