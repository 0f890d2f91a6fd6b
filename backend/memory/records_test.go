package memory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestRecords takes, denies, resets and forgets at random, with keys of all
// lengths, and looks whether the store is sound.
func TestRecords(t *testing.T) {
	now := time.Unix(1_745_000_000, 0)
	s := New(&Options{MaxKeys: 3000, Now: func() time.Time { return now }})
	r := rand.New(rand.NewPCG(3, 4))
	for step := range redistest.Steps(30_000, 60_000) {
		ps := []backend.Policy{{Name: fmt.Sprint("p", r.IntN(3)), Algorithm: kinds[r.IntN(len(kinds))]}}
		key := strings.Repeat("k", r.IntN(4)*r.IntN(4)*r.IntN(500)/7) + fmt.Sprint(r.IntN(1+step/20))
		g := backend.Group{Key: key, Policies: ps, Cost: 1}
		if r.IntN(10) == 0 {
			g.Sub = "sub"
		}
		op := backend.Take
		if r.IntN(20) == 0 {
			op = backend.Reset
		}
		_, err := layer.Ask(context.Background(), s, backend.Request{Op: op, Group: g})
		if err != nil {
			require.ErrorIs(t, err, ErrSharedCount)
		}
		require.LessOrEqual(t, s.Len(), 3000)
		now = now.Add(time.Duration(r.IntN(1000)) * time.Microsecond)
		if step%5000 == 0 {
			now = now.Add(time.Duration(r.IntN(2)) * time.Minute)
			sound(t, s)
		}
	}
}

// TestRecordsOfOneCall: of its policies some have a record, and some get one.
func TestRecordsOfOneCall(t *testing.T) {
	ps := make([]backend.Policy, 8)
	for i := range ps {
		ps[i] = by(fmt.Sprint("p", i), algo.FixedWindow(algo.PerDay(100)))
	}
	s := New(nil)
	for n := 1; n <= len(ps); n++ {
		g := backend.Group{Key: "k", Policies: ps[:n], Cost: 1, Each: make([]backend.State, n)}
		ask(t, s, backend.Take, g)
		for i := range n {
			require.Equal(t, int64(n-i), g.Each[i].Used)
		}
		sound(t, s)
	}
	s = New(nil)
	ask(t, s, backend.Take, backend.Group{Key: "k", Policies: ps, Cost: 1})
	sound(t, s)
}

// TestAFullStoreMakesNoGarbage of the calls of new keys.
func TestAFullStoreMakesNoGarbage(t *testing.T) {
	s := New(&Options{MaxKeys: 1})
	ps := []backend.Policy{by("p", algo.FixedWindow(algo.PerDay(1_000_000)))}
	ask(t, s, backend.Take, backend.Group{Key: "own", Policies: ps, Cost: 1})
	r := backend.Request{Op: backend.Take, Group: backend.Group{Policies: ps, Cost: 1}}
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("%0150d", i)
	}
	i := 0
	allocs := testing.AllocsPerRun(len(keys)-1, func() {
		var d backend.Decision
		r.Key = keys[i]
		_ = s.Do(context.Background(), &r, &d)
		i++
	})
	require.Zero(t, allocs, "in the mean, rounded down")
}

// TestPeekMakesNoRecord.
func TestPeekMakesNoRecord(t *testing.T) {
	s := New(nil)
	ask(t, s, backend.Peek, backend.Group{Key: "k", Policies: []backend.Policy{by("p", kinds[2])}, Cost: 1})
	for i := range s.stripes {
		require.Zero(t, s.stripes[i].mu.records.live)
	}
}

// TestResetOfALongLog: a key's log is longer than that of any key without a record.
func TestResetOfALongLog(t *testing.T) {
	for _, a := range []algo.Algorithm{algo.SlidingLog(algo.PerDay(1000)), algo.CompactLog(algo.PerDay(1000))} {
		s, now := settable(0)
		g := backend.Group{Key: "k", Policies: []backend.Policy{by("p", a)}, Cost: 1}
		for range 500 {
			*now = now.Add(time.Microsecond)
			ask(t, s, backend.Take, g)
		}
		require.Zero(t, ask(t, s, backend.Reset, g).Used)
		require.Zero(t, s.Len())
		require.EqualValues(t, 1, ask(t, s, backend.Take, g).Used)
	}
}

// TestLongKeys are told apart by their last byte.
func TestLongKeys(t *testing.T) {
	s := New(nil)
	for round := range int64(3) {
		for i, a := range slow(100) {
			for n := 1; n < 100; n += 7 {
				for _, last := range []string{"a", "b"} {
					g := backend.Group{Key: strings.Repeat("k", n-1) + last, Policies: []backend.Policy{by("p", a)}, Cost: 1}
					require.Equal(t, round+1, ask(t, s, backend.Take, g).Used, "%d", i)
				}
			}
		}
	}
	require.Equal(t, 30*len(kinds), s.Len())
	sound(t, s)
}

// TestMemoryComesBack: what idle keys held is not held for ever, of kinds with few
// words and with many.
func TestMemoryComesBack(t *testing.T) {
	redistest.Plain(t)
	keys := redistest.Steps(10_000, 50_000)
	now := time.Unix(1_745_000_000, 0)
	s := New(&Options{MaxKeys: 4 * keys, Now: func() time.Time { return now }})
	empty := heap()
	for i := range keys {
		l := algo.PerSecond(5)
		if i%500 == 0 {
			l = algo.PerDay(5) // these stay, one in a stripe or two
		}
		for _, p := range []backend.Policy{by("few", algo.FixedWindow(l)), by("many", algo.BucketedWindow(l, 10))} {
			ask(t, s, backend.Take, backend.Group{Key: fmt.Sprint(i), Policies: []backend.Policy{p}, Cost: 1})
		}
	}
	full := heap() - empty
	now = now.Add(time.Minute)
	for range 60 * keys {
		ask(t, s, backend.Take, backend.Group{Key: "hot", Policies: []backend.Policy{by("p", algo.FixedWindow(algo.PerDay(1_000_000)))}, Cost: 1})
	}
	require.Equal(t, 2*keys/500+1, s.Len())
	require.Less(t, max(heap(), empty)-empty, full/8)
	sound(t, s)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestNowMayPanic: it does not leave a lock behind.
func TestNowMayPanic(t *testing.T) {
	broken := false
	s := New(&Options{Now: func() time.Time {
		if broken {
			panic("clock")
		}
		return time.Now()
	}})
	r := backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Cost: 1, Policies: []backend.Policy{{Name: "p", Algorithm: kinds[2]}}}}
	for _, each := range [][]backend.State{nil, make([]backend.State, 1)} {
		r.Each = each
		for range 2 {
			broken = false
			_, err := layer.Ask(context.Background(), s, r)
			require.NoError(t, err)
			broken = true
			require.PanicsWithValue(t, "clock", func() { _, _ = layer.Ask(context.Background(), s, r) })
		}
	}
}

// TestKeysNamedAsPolicies: a count is that of a key and a policy, also where a key has the
// policy's name, or two keys have each other's.
func TestKeysNamedAsPolicies(t *testing.T) {
	a, b := by("a", algo.FixedWindow(algo.PerDay(1))), by("b", algo.FixedWindow(algo.PerDay(1)))
	for range 500 { // seeds
		s, _ := settable(16)
		require.True(t, takes(t, s, "a", a))
		require.True(t, takes(t, s, "b", b), "each key has its policy's name")
		require.True(t, takes(t, s, "a", b))
		require.True(t, takes(t, s, "b", a), "each key has the other policy's name")
	}
}
