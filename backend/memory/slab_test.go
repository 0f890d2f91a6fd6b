package memory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// sound walks every stripe: each record is found by its own name, nothing is
// counted twice, and what is free is known to be.
func sound(t *testing.T, s *Store) {
	t.Helper()
	kept := 0
	for i := range s.stripes {
		kept += soundStripe(t, &s.stripes[i].mu)
	}
	require.Equal(t, s.Len(), kept)
}

func soundStripe(t *testing.T, m *guarded) (records int) {
	many, under := 0, map[uint32]int{}
	for i, seg := range m.segs {
		gone := 0
		for off := 0; off < seg.used; {
			w := m.words[i][off:]
			n := m.size(w)
			require.NotEqual(t, int64(mine), w[tagWord]&dead, "still owned")
			if w[tagWord]&dead == dead {
				gone += n
			} else {
				m.index.where(tagIn(w), place(i<<segBits|off)) // does not end where it is missing
				under[nameIn(w[untilWord])]++
				records++
				if keepsMany(m.names[nameIn(w[untilWord])].kind) {
					many++
					require.NotNil(t, m.many[w[header]])
				}
			}
			off += n
		}
		require.Equal(t, seg.dead, gone)
	}
	require.Equal(t, m.index.count, records)
	require.Equal(t, len(m.known), len(under))
	for number, n := range under {
		require.Equal(t, n, m.under[number])
	}
	require.Equal(t, len(m.many), many+len(m.spare.many))
	return records
}

var kinds = []algo.Algorithm{
	algo.FixedWindow(algo.PerSecond(5)), algo.SlidingWindow(algo.PerSecond(5)), algo.TokenBucket(algo.PerSecond(5), 5),
	algo.BucketedWindow(algo.PerSecond(5), 4), algo.SlidingLog(algo.PerSecond(5)),
}

// TestSlab takes, denies, resets and forgets at random, with keys of all
// lengths, and looks whether the store is sound. A second store that decides
// every call the long way has to answer alike.
func TestSlab(t *testing.T) {
	now := time.Unix(1_745_000_000, 0)
	opts := &Options{MaxKeys: 3000, Now: func() time.Time { return now }}
	s, long := New(opts), New(opts)
	s.clock.falls = false // so that there are hits
	r := rand.New(rand.NewPCG(3, 4))
	for step := range 60_000 {
		ps := []backend.Policy{{Name: fmt.Sprint("p", r.IntN(3)), Algorithm: kinds[r.IntN(len(kinds))]}}
		g := backend.Group{Key: strings.Repeat("k", r.IntN(4)*r.IntN(4)*r.IntN(500)/7) + fmt.Sprint(r.IntN(1+step/20)), Policies: ps, Cost: 1}
		if r.IntN(10) == 0 {
			g.Sub = "sub"
		}
		op := backend.Take
		if r.IntN(20) == 0 {
			op = backend.Reset
		}
		got, err := backend.Ask(context.Background(), s, backend.Request{Op: op, Group: g})
		require.NoError(t, err)
		g.Each = make([]backend.State, 1)
		want, err := backend.Ask(context.Background(), long, backend.Request{Op: op, Group: g})
		require.NoError(t, err)
		if s.Len() < 3000 && long.Len() < 3000 && !s.spill.live.Load() && !long.spill.live.Load() {
			require.Equal(t, want, got, "step %d", step)
		}
		now = now.Add(time.Duration(r.IntN(1000)) * time.Microsecond)
		if step%5000 == 0 {
			now = now.Add(time.Duration(r.IntN(2)) * time.Minute)
			sound(t, s)
			sound(t, long)
		}
	}
}

// TestMemoryComesBack: what idle keys held is not held for ever.
func TestMemoryComesBack(t *testing.T) {
	now := time.Unix(1_745_000_000, 0)
	s := New(&Options{Now: func() time.Time { return now }})
	ask := func(key string, a algo.Algorithm) {
		_, err := backend.Ask(context.Background(), s, backend.Request{Op: backend.Take, Group: backend.Group{Key: key, Cost: 1, Policies: []backend.Policy{{Name: "p", Algorithm: a}}}})
		require.NoError(t, err)
	}
	for i := range 50_000 {
		a := algo.PerSecond(5)
		if i%500 == 0 {
			a = algo.PerDay(5) // these stay, one in a segment or two
		}
		ask(fmt.Sprint(i), algo.FixedWindow(a))
	}
	before := words(s)
	now = now.Add(time.Minute)
	for range 400_000 {
		ask("hot", algo.FixedWindow(algo.PerDay(1_000_000)))
	}
	require.Equal(t, 101, s.Len())
	require.Less(t, words(s), before/4)
	sound(t, s)
}

func words(s *Store) (n int) {
	for i := range s.stripes {
		m := &s.stripes[i].mu
		for _, w := range m.words {
			n += len(w)
		}
		n += len(m.index.slots)
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

// TestInstants: what was read before a lock never lies before a decision that
// was made under it meanwhile.
func TestInstants(t *testing.T) {
	s := New(nil)
	m := &s.stripes[0].mu
	require.Equal(t, int64(20), s.instant(m, 20))
	require.Equal(t, int64(20), s.instant(m, 10))
	require.Equal(t, int64(20), s.spill.instant(s, &s.stripes[1].mu, 20))
	require.Equal(t, int64(20), s.spill.instant(s, m, 15))
	require.Equal(t, int64(20), s.instant(&s.stripes[1].mu, 7))
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
			_, err := backend.Ask(context.Background(), s, r)
			require.NoError(t, err)
			broken = true
			require.PanicsWithValue(t, "clock", func() { _, _ = backend.Ask(context.Background(), s, r) })
		}
	}
}
