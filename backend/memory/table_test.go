package memory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/layer"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/redistest"
	"github.com/stretchr/testify/require"
)

// TestTables takes, denies, resets and forgets at random, with keys of all
// lengths, and looks whether the store is sound.
func TestTables(t *testing.T) {
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

// TestOneStripe: of keys that come and go, with none to sweep them, each is
// found while it is there, and not when it is not.
func TestOneStripe(t *testing.T) {
	var st stripe
	r := rand.New(rand.NewPCG(5, 6))
	id := identity(kinds[2].Kind())
	kept := map[uint64]bool{}
	for step := range 40_000 {
		of := uint64(r.IntN(60 + step/100))
		key, hash := fmt.Sprintf("%06d", of), of*0x9E3779B1
		tb, slot := st.locate(hash, key, id)
		require.Equal(t, kept[of], tb != nil)
		if tb == nil {
			st.insert(hash, key, id, 2)
		} else {
			st.remove(tb, slot)
		}
		kept[of] = tb == nil
		if step%100 == 0 {
			soundStripe(t, &st)
		}
	}
}

// BenchmarkResize moves the records of a stripe that has its part of a million.
func BenchmarkResize(b *testing.B) {
	const keys = DefaultMaxKeys / maxStripes
	var st stripe
	id := identity(kinds[2].Kind())
	for i := range uint64(keys) {
		st.insert(i*0x9E3779B1, fmt.Sprintf("user:%06d", i), id, 2)
	}
	tb := st.mu.tables[sizeOf(id.kind(), len("user:123456"))-minSize]
	for b.Loop() {
		tb.resized(keys)
	}
}

// TestRecordsOfOneCall: the records that a call makes move those that it found.
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
		for _, tb := range s.stripes[i].mu.tables {
			require.Nil(t, tb)
		}
	}
}

// reach is how many groups the search for a record reads, in the mean.
func reach(s *Store) float64 {
	groups, records := 0, 0
	for i := range s.stripes {
		for _, tb := range s.stripes[i].mu.tables {
			if tb == nil {
				continue
			}
			for slot := range tb.slots() {
				if tb.control(slot) >= inUse {
					groups += (slot/groupSlots-tb.home(tb.at(slot).tag())+tb.groups)%tb.groups + 1
					records++
				}
			}
		}
	}
	return float64(groups) / float64(records)
}

// TestSearchesStayShort where keys come and go, and where a table shrinks that
// the sweep is in the middle of: what is idle leaves everywhere at once.
func TestSearchesStayShort(t *testing.T) {
	now := time.Unix(1_745_000_000, 0)
	s := New(&Options{Now: func() time.Time { return now }})
	ps := []backend.Policy{by("p", algo.FixedWindow(algo.Per(5, 50*time.Millisecond)))}
	for i := range redistest.Steps(80_000, 400_000) {
		now = now.Add(time.Microsecond)
		ask(t, s, backend.Take, backend.Group{Key: fmt.Sprintf("k%011d", i), Policies: ps, Cost: 1})
	}
	require.Less(t, reach(s), 3.0)
	now = now.Add(time.Hour)
	for s.Len() > 10_000 {
		ask(t, s, backend.Take, backend.Group{Key: "k", Policies: ps, Cost: 1})
	}
	require.Less(t, reach(s), 3.0)
}

// TestVisits: each cell once, and no part of the table before the others.
func TestVisits(t *testing.T) {
	for groups := 1; groups < 300; groups++ {
		tb := newTable(minSize, groups)
		seen := make([]bool, tb.slots())
		for i := range tb.slots() {
			require.False(t, seen[tb.visited(i)])
			seen[tb.visited(i)] = true
			if i+1 == tb.slots()/2 && groups >= 50 {
				for part := range 5 {
					n := 0
					for _, was := range seen[part*tb.slots()/5 : (part+1)*tb.slots()/5] {
						if was {
							n++
						}
					}
					require.InDelta(t, 0.5, float64(n)/float64(tb.slots()/5), 0.4)
				}
			}
		}
	}
}

// TestLongKeysComeBack: what lay aside for them is not held for ever.
func TestLongKeysComeBack(t *testing.T) {
	keys := redistest.Steps(5_000, 50_000)
	now := time.Unix(1_745_000_000, 0)
	s := New(&Options{Now: func() time.Time { return now }})
	for i := range keys {
		l := algo.PerSecond(5)
		if i%100 == 0 {
			l = algo.PerDay(5)
		}
		ask(t, s, backend.Take, backend.Group{Key: strings.Repeat("k", longKey) + fmt.Sprint(i), Policies: []backend.Policy{by("p", algo.SlidingLog(l))}, Cost: 1})
	}
	now = now.Add(time.Hour)
	for range 40 * keys {
		ask(t, s, backend.Take, backend.Group{Key: "hot", Policies: []backend.Policy{by("p", algo.FixedWindow(algo.PerDay(1_000_000)))}, Cost: 1})
	}
	require.Equal(t, keys/100+1, s.Len())
	sound(t, s)
	n := 0
	for i := range s.stripes {
		n += cap(s.stripes[i].mu.outOfLine.words) + cap(s.stripes[i].mu.outOfLine.spare)
	}
	require.Less(t, n, keys)
	for i := 0; i < keys; i += 100 {
		ps := []backend.Policy{by("p", algo.SlidingLog(algo.PerDay(5)))}
		require.Equal(t, int64(2), ask(t, s, backend.Take, backend.Group{Key: strings.Repeat("k", longKey) + fmt.Sprint(i), Policies: ps, Cost: 1}).Used)
	}
}

// TestLongKeys are told apart by their last byte.
func TestLongKeys(t *testing.T) {
	s := New(nil)
	for round := range int64(3) {
		for i, a := range slow(100) {
			for n := longKey - 20; n < longKey+20; n++ {
				for _, last := range []string{"a", "b"} {
					g := backend.Group{Key: strings.Repeat("k", n-1) + last, Policies: []backend.Policy{by("p", a)}, Cost: 1}
					require.Equal(t, round+1, ask(t, s, backend.Take, g).Used, "%d", i)
				}
			}
		}
	}
	require.Equal(t, 80*len(kinds), s.Len())
	sound(t, s)
}

// TestMemoryComesBack: what idle keys held is not held for ever.
func TestMemoryComesBack(t *testing.T) {
	keys := redistest.Steps(10_000, 50_000)
	now := time.Unix(1_745_000_000, 0)
	s := New(&Options{Now: func() time.Time { return now }})
	ask := func(key string, a algo.Algorithm) {
		_, err := layer.Ask(context.Background(), s, backend.Request{
			Op: backend.Take, Group: backend.Group{Key: key, Cost: 1, Policies: []backend.Policy{by("p", a)}},
		})
		require.NoError(t, err)
	}
	for i := range keys {
		a := algo.PerSecond(5)
		if i%500 == 0 {
			a = algo.PerDay(5) // these stay, one in a stripe or two
		}
		ask(fmt.Sprint(i), algo.FixedWindow(a))
	}
	before := words(s)
	now = now.Add(time.Minute)
	for range 40 * keys {
		ask("hot", algo.FixedWindow(algo.PerDay(1_000_000)))
	}
	require.Equal(t, keys/500+1, s.Len())
	require.Less(t, words(s), before/4)
	sound(t, s)
}

func words(s *Store) (n int) {
	for i := range s.stripes {
		for _, tb := range s.stripes[i].mu.tables {
			if tb != nil {
				n += len(tb.words)
			}
		}
	}
	return n
}

// TestKeys: isKey tells keys of one length apart, wherever they differ.
func TestKeys(t *testing.T) {
	for n := 1; n <= 40; n++ {
		key := strings.Repeat("k", n)
		w := make([]int64, keyWords(n))
		putKey(w, key)
		require.True(t, isKey(w, key))
		for i := range n {
			require.False(t, isKey(w, key[:i]+"j"+key[i+1:]), "%d of %d", i, n)
		}
	}
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
