package memory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/stretchr/testify/require"
)

// holder makes the requests of leases on a store.
type holder struct {
	store *memory.Store
	now   time.Time
	list  []backend.Policy
}

func newHolder(maxKeys int, algorithms ...algo.Algorithm) *holder {
	h := &holder{now: time.Unix(1_745_000_000, 0)}
	h.store = memory.New(&memory.Options{MaxKeys: maxKeys, Now: func() time.Time { return h.now }})
	for i, a := range algorithms {
		h.list = append(h.list, backend.Policy{Name: fmt.Sprint("p", i), Algorithm: a, OnFailure: backend.FailClosed})
	}
	return h
}

func leaseOf(n uint64) backend.Lease {
	r := rand.New(rand.NewPCG(n, 4))
	l := backend.Lease{Length: time.Minute}
	for i := range l.ID {
		l.ID[i] = byte(r.Uint32())
	}
	return l
}

func (h *holder) do(op backend.Op, key string, cost int64, l backend.Lease) (backend.Decision, error) {
	r := backend.Request{Op: op, Group: backend.Group{Key: key, Policies: h.list, Cost: cost, Lease: &l}}
	return layer.Ask(context.Background(), h.store, r)
}

func (h *holder) used(t *testing.T, key string) int64 {
	d, err := h.do(backend.Peek, key, 0, backend.Lease{})
	require.NoError(t, err)
	return d.Used
}

// TestLeaseOfTheOverflow: where a key shares its count, a settlement corrects the
// shared one.
func TestLeaseOfTheOverflow(t *testing.T) {
	h := newHolder(1, algo.SlidingLog(algo.PerDay(100)))
	_, err := h.do(backend.Take, "first", 1, backend.Lease{})
	require.NoError(t, err)
	for i, key := range []string{"b", "c"} {
		d, err := h.do(backend.Reserve, key, 40, leaseOf(uint64(i)))
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	require.EqualValues(t, 80, h.used(t, "d"))
	l := leaseOf(0)
	l.Actual = []int64{25}
	_, err = h.do(backend.Settle, "b", 0, l)
	require.NoError(t, err)
	require.EqualValues(t, 65, h.used(t, "d"))
	l = leaseOf(1)
	l.Actual = []int64{70}
	_, err = h.do(backend.Settle, "c", 0, l)
	require.NoError(t, err)
	require.EqualValues(t, 95, h.used(t, "d"))
	require.EqualValues(t, 1, h.used(t, "first"))
}

// TestLeaseOfAnEarlierRecord: a bucket that was full again, and left, gives nothing back
// of what was charged before.
func TestLeaseOfAnEarlierRecord(t *testing.T) {
	h := newHolder(1, algo.TokenBucket(algo.PerSecond(100), 200))
	_, err := h.do(backend.Reserve, "a", 150, leaseOf(1))
	require.NoError(t, err)
	for _, key := range []string{"b", "a"} { // each is idle when the next one comes
		h.now = h.now.Add(2 * time.Second)
		_, err = h.do(backend.Take, key, 100, backend.Lease{})
		require.NoError(t, err)
	}
	h.now = h.now.Add(500 * time.Millisecond)
	_, err = h.do(backend.Take, "a", 60, backend.Lease{})
	require.NoError(t, err)
	_, err = h.do(backend.Settle, "a", 0, leaseOf(1))
	require.NoError(t, err)
	require.EqualValues(t, 110, h.used(t, "a"))
}

// TestExtendKeepsEndedSlots: as in the script, an Extend drops no slot that has ended. It
// is held again where the clock goes back.
func TestExtendKeepsEndedSlots(t *testing.T) {
	h := newHolder(0, algo.InFlight(2))
	short, long := leaseOf(0), leaseOf(1)
	short.Length = time.Second
	for _, l := range []backend.Lease{short, long} {
		d, err := h.do(backend.Reserve, "k", 1, l)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	h.now = h.now.Add(2 * time.Second)
	_, err := h.do(backend.Extend, "k", 0, long)
	require.NoError(t, err)
	require.EqualValues(t, 1, h.used(t, "k"))
	h.now = h.now.Add(-1500 * time.Millisecond)
	require.EqualValues(t, 2, h.used(t, "k"))
}

// TestALeaseIDIsUsedAgain: once what is known of a lease has left, another one may have
// its ID, and is found where the clock steps back.
func TestALeaseIDIsUsedAgain(t *testing.T) {
	h := newHolder(0, algo.SlidingLog(algo.PerDay(1000)))
	for i := range 200 { // others, so that no sweep finds the settlement
		l := leaseOf(uint64(1 + i))
		l.Length = time.Hour
		h.settled(t, l)
	}
	l := leaseOf(0)
	l.Length = time.Second
	h.settled(t, l)
	h.now = h.now.Add(2 * time.Second)
	d, err := h.do(backend.Reserve, "k", 5, l)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	h.now = h.now.Add(-1500 * time.Millisecond) // where the earlier settlement would still stand
	_, err = h.do(backend.Extend, "k", 0, l)
	require.NoError(t, err)
}

// TestALeaseOfAResetLeaves: a settle after a Reset keeps the record of the lease no
// longer than the lease itself would have stayed, as in the script.
func TestALeaseOfAResetLeaves(t *testing.T) {
	h := newHolder(0, algo.SlidingLog(algo.PerDay(1000)))
	l := leaseOf(0)
	_, err := h.do(backend.Reserve, "k", 1, l)
	require.NoError(t, err)
	_, err = h.do(backend.Reset, "k", 0, l)
	require.NoError(t, err)
	h.now = h.now.Add(2*l.Length - time.Millisecond)
	_, err = h.do(backend.Settle, "k", 0, l)
	require.ErrorIs(t, err, backend.ErrNotHeld)
	_, err = h.do(backend.Reserve, "k", 1, l)
	require.ErrorIs(t, err, backend.ErrNotHeld)
	h.now = h.now.Add(time.Millisecond)
	d, err := h.do(backend.Reserve, "k", 1, l)
	require.NoError(t, err)
	require.True(t, d.Allowed)
}

// settled reserves a lease of one unit and settles it.
func (h *holder) settled(t *testing.T, l backend.Lease) {
	d, err := h.do(backend.Reserve, "k", 1, l)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	_, err = h.do(backend.Settle, "k", 0, l)
	require.NoError(t, err)
}

// TestLeaseBytes: what a lease takes, and that it leaves by itself while others
// call. It takes 96 bytes, and 29 to 57 of a map, by how full the map's tables are.
func TestLeaseBytes(t *testing.T) {
	redistest.Plain(t)
	n := redistest.Steps(10_000, 1_000_000)
	for _, keys := range []int{1, n} {
		h := newHolder(0, algo.TokenBucket(algo.PerHour(1<<30), 1<<30))
		before := heap()
		for i := range n {
			_, err := h.do(backend.Reserve, fmt.Sprint("user:", i%keys), 1, leaseOf(uint64(i)))
			require.NoError(t, err)
		}
		full := heap()
		bytes := float64(full-before) / float64(n)
		t.Logf("%d keys: %.0f bytes per lease, with its key's count", keys, bytes)
		require.Less(t, bytes, 160+float64(keys)/float64(n)*100)

		h.now = h.now.Add(2 * time.Minute)
		for range n * sweepCalls {
			_, err := h.do(backend.Peek, "another", 1, backend.Lease{})
			require.NoError(t, err)
		}
		left := (float64(heap()) - float64(before)) / float64(n)
		t.Logf("%d keys: %.0f bytes once they have left", keys, left)
		require.Less(t, left, bytes-80)
	}
}

// sweepCalls is after how many calls per lease all have left.
const sweepCalls = 12
