package lua_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/clock"
	"github.com/headgate-go/headgate/internal/lab/golden"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// recorder makes requests on a server whose clock the test sets, and records what is stored.
type recorder struct {
	*testing.T
	client *redis.Client
	store  *standalone.Store
	now    time.Time
	list   []backend.Policy
	text   strings.Builder
}

const second, minute = time.Second, time.Minute

// TestGolden: the bytes of each value that the script stores, which other processes and
// releases read.
func TestGolden(t *testing.T) {
	r := &recorder{T: t, client: redistest.Start(t).Client(t)}
	r.store = standalone.New(clock.Client{Processor: r.client, Now: func() time.Time { return r.now }}, &standalone.Options{Budget: 10 * second})
	r.text.WriteString("# What Redis holds after each step, version 1: of each key its type, and the bytes of\n" +
		"# its fields or members in hex. The files of this folder have the layouts.\n")
	l := algo.PerMinute(1000)
	for _, a := range []algo.Algorithm{
		algo.FixedWindow(l), algo.SlidingWindow(l), algo.BucketedWindow(l, 6), algo.TokenBucket(l, 1000),
		algo.Calendar(1000, algo.Month(15), time.UTC), algo.SlidingLog(l), algo.CompactLog(l),
		algo.LeakyQueue(l, 1000, minute),
	} {
		r.counts(a)
	}
	r.leases()
	r.inFlight()
	r.rows()
	r.blocks()
	golden.Equal(t, "stored.golden", r.text.String())
}

// begin empties the server. Later steps are by these policies.
func (r *recorder) begin(list ...backend.Policy) {
	r.Helper()
	require.NoError(r, r.client.FlushDB(context.Background()).Err())
	r.now, r.list = time.Date(2026, 1, 31, 12, 0, 5, 123456000, time.UTC), list
}

// ask makes a request of n units, of a lease with this number if that is not 0.
func (r *recorder) ask(op backend.Op, n int64, lease byte) {
	r.Helper()
	q := backend.Request{Op: op, Group: backend.Group{Key: "k", Policies: r.list, Cost: n}}
	if lease > 0 {
		q.Lease = &backend.Lease{ID: id("lease", lease), Length: minute}
		if op == backend.Settle {
			q.Lease.Actual, q.Lease.Attempt = slices.Repeat([]int64{n}, len(r.list)), id("settle", lease)
		}
	}
	r.send(q)
}

func (r *recorder) send(q backend.Request) {
	r.Helper()
	_, err := layer.Ask(context.Background(), r.store, q)
	require.NoError(r, err)
}

// id returns 16 bytes of text, for the golden file to be read by eye.
func id(name string, n byte) backend.LeaseID {
	return backend.LeaseID([]byte(fmt.Sprintf("%s %0*d", name, 15-len(name), n)))
}

// record appends what is stored under the names that begin so.
func (r *recorder) record(step string, fields ...string) {
	r.Helper()
	ctx := context.Background()
	fmt.Fprintf(&r.text, "\n# %s\n", step)
	for _, key := range slices.Sorted(slices.Values(r.client.Keys(ctx, "*").Val())) {
		kind := r.client.Type(ctx, key).Val()
		fmt.Fprintf(&r.text, "%s %q\n", kind, key)
		all := map[string]string{}
		switch kind {
		case "string":
			all[""] = hex.EncodeToString([]byte(r.client.Get(ctx, key).Val()))
		case "hash":
			for f, v := range r.client.HGetAll(ctx, key).Val() {
				all[strconv.Quote(f)] = hex.EncodeToString([]byte(v))
			}
		case "zset":
			for _, z := range r.client.ZRangeWithScores(ctx, key, 0, -1).Val() {
				all[hex.EncodeToString([]byte(z.Member.(string)))] = strconv.FormatFloat(z.Score, 'f', -1, 64)
			}
		}
		for _, f := range slices.Sorted(maps.Keys(all)) {
			if fields == nil || slices.Contains(fields, strings.Trim(f, `"`)) {
				fmt.Fprintln(&r.text, strings.TrimRight("\t"+f+" "+all[f], " "))
			}
		}
	}
}

// counts records what an algorithm stores: of takes, of a reservation and of a loan.
func (r *recorder) counts(a algo.Algorithm) {
	name := a.String() + ": "
	r.begin(backend.Policy{Name: "p", Algorithm: a})
	r.ask(backend.Take, 3, 0)
	r.now = r.now.Add(20 * second)
	r.ask(backend.Take, 2, 0)
	r.record(name + "takes of 3, and of 2 after 20 s")

	r.ask(backend.Reserve, 300, 1)
	r.record(name + "a reservation of 300")
	r.now = r.now.Add(second)
	r.ask(backend.Take, 1, 0)
	r.ask(backend.Settle, 100, 1)
	r.record(name + "1 taken a second later, the reservation settled at 100")
	if !a.Kind().Lends() {
		return
	}

	r.begin(r.list...)
	r.ask(backend.Take, 1, 0)
	r.borrow(1)
	r.record(name + "1 taken, up to 20 lent for 100 ms")
	r.now = r.now.Add(10 * time.Millisecond)
	r.ask(backend.Take, 985, 0)
	r.record(name + "985 denied because of the loan")
	r.now = r.now.Add(20 * time.Millisecond)
	r.borrow(2)
	r.record(name + "of the loan 5 used, 4 lent anew")
}

// borrow asks for the loan with this number, and settles the one before.
func (r *recorder) borrow(number uint32) {
	l := &backend.Loan{ID: id("borrower", 1), Seq: number, Epoch: [8]byte([]byte("epoch 01")), Term: 100 * time.Millisecond, Want: 20}
	if number > 1 {
		l.Held[0] = backend.Held{Seq: number - 1, Used: 5}
	}
	r.send(backend.Request{Op: backend.Borrow, Group: backend.Group{Key: "k", Policies: r.list}, Loan: l})
}

// leases records what is beside the counts of a list.
func (r *recorder) leases() {
	enforced := backend.Policy{Name: "enforced", Algorithm: algo.FixedWindow(algo.PerMinute(algo.MaxCount))}
	shadow := backend.Policy{Name: "shadow", Algorithm: algo.FixedWindow(algo.PerMinute(5)), Shadow: true}
	r.begin(enforced, shadow)
	r.ask(backend.Reserve, 3<<40+6, 1)
	r.record("a reservation of 3 * 2^40 + 6, for which a shadow has no room")
	r.ask(backend.Reset, 0, 0)
	r.record("a Reset")

	r.begin(enforced)
	late := backend.Request{Op: backend.Reserve, Group: backend.Group{Key: "k", Policies: r.list, Cost: 1, Lease: &backend.Lease{ID: id("late", 1), Length: minute, Late: true}}}
	r.send(late)
	late.Op, late.Lease = backend.Settle, &backend.Lease{ID: id("tombstone", 1), Length: minute, Attempt: id("settle", 1), Actual: []int64{4}, Unresolved: true}
	r.send(late)
	r.record("a late reservation, and the tombstone of one whose answer was lost")
}

func (r *recorder) inFlight() {
	r.begin(backend.Policy{Name: "p", Algorithm: algo.InFlight(5)})
	r.ask(backend.Reserve, 1, 1)
	r.now = r.now.Add(second)
	r.ask(backend.Reserve, 1, 2)
	r.record("InFlight: two slots, and their reservations")
}

// rows records the rows of what a log gave back, up to wide ones.
func (r *recorder) rows() {
	r.begin(backend.Policy{Name: "p", Algorithm: algo.SlidingLog(algo.PerMinute(1000))})
	first := binary.BigEndian.AppendUint64([]byte{1}, math.Float64bits(1<<30-5))
	first = binary.BigEndian.AppendUint32(first, 1)
	require.NoError(r, r.client.ZAdd(context.Background(), "headgate:{k}:log:1m/p", redis.Z{Score: float64(r.now.UnixMicro()), Member: first}).Err())
	r.now = r.now.Add(second)
	r.ask(backend.Reserve, 10, 1)
	r.ask(backend.Take, 2, 0)
	r.ask(backend.Settle, 3, 1)
	r.record("SlidingLog: after 2^30 - 5 units a reservation of 10 gives 7 back")
}

// blocks records a CompactLog of 65 blocks: the first two, the sums of 64 and the field h.
func (r *recorder) blocks() {
	r.begin(backend.Policy{Name: "p", Algorithm: algo.CompactLog(algo.PerHour(1_000_000))})
	for i := range int64(64*64 + 65) {
		r.now = r.now.Add(time.Duration(1+i%300) * time.Microsecond)
		r.ask(backend.Take, 1+i/100%3*i%200, 0)
	}
	r.record("CompactLog: 4,161 calls", "h", "0", "1", "-1", "-2")
}
