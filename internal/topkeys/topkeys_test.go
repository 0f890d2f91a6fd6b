package topkeys_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/topkeys"
	"github.com/stretchr/testify/require"
)

var now = time.Unix(1e9, 0)

func add(s *topkeys.Sketch, key string, times int) {
	for range times {
		s.Add(key, rand.Uint64())
	}
}

func names(all []topkeys.Key) (names []string) {
	for _, k := range all {
		names = append(names, k.Key)
	}
	return names
}

// TestCounts: few keys have exact counts, from the first occurrence on, in their order.
func TestCounts(t *testing.T) {
	s := topkeys.New()
	require.Empty(t, s.Top(10, now))
	add(s, "b", 2)
	add(s, "a", 2)
	add(s, "a longer key than a word", 3)
	add(s, "", 1)
	all := s.Top(3, now)
	require.Equal(t, []string{"a longer key than a word", "a", "b"}, names(all))
	require.EqualValues(t, 3, all[0].Count)
	require.Zero(t, all[0].Excess)
	require.Len(t, s.Top(10, now), 4)
}

// TestFlood: three busy keys among a million are found in their order, and their counts are within
// what the Excess says, but for what they had before they got a place.
func TestFlood(t *testing.T) {
	redistest.Plain(t)
	s, want := topkeys.New(), map[string]int{"hot:first": 60_000, "hot:second": 40_000, "hot:third": 20_000}
	var all []string
	for key, n := range want {
		for range n {
			all = append(all, key)
		}
	}
	for i := range 1_000_000 {
		all = append(all, fmt.Sprint("user:", i))
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, key := range all {
		s.Add(key, rand.Uint64())
	}
	top := s.Top(3, now)
	require.Equal(t, []string{"hot:first", "hot:second", "hot:third"}, names(top))
	for _, k := range top {
		require.InDelta(t, want[k.Key], k.Count, float64(k.Excess)+5000, k)
	}
}

// TestMissesByChance: of keys that occur once few take the place of another one. So what a place
// costs is not paid for each.
func TestMissesByChance(t *testing.T) {
	s := topkeys.New()
	for i := range 100 * topkeys.Places {
		s.Add(fmt.Sprint("first:", i), 0)
	}
	taken := func(salt func(i int) uint64) float64 {
		before := map[uint64]bool{}
		for _, h := range s.Hashes() {
			before[h] = true
		}
		for i := range topkeys.Places {
			s.Add(fmt.Sprint("second:", i), salt(i))
		}
		n := 0.0
		for _, h := range s.Hashes() {
			if !before[h] {
				n++
			}
		}
		return n
	}
	n := taken(func(i int) uint64 { return uint64(i) * 1000 })
	require.Greater(t, n, float64(topkeys.Places)/64)
	require.Less(t, n, float64(topkeys.Places)/16)
}

// TestSecondNames: a key that has taken another one's place is shown from its second occurrence on.
func TestSecondNames(t *testing.T) {
	s := topkeys.New()
	for i := range 100 * topkeys.Places {
		s.Add(fmt.Sprint("once:", i), rand.Uint64())
	}
	add(s, "busy", 1000)
	top := s.Top(1, now)
	require.Equal(t, "busy", top[0].Key)
	require.Greater(t, top[0].Count, int64(500))
}

// TestPeriods: counts leave when two periods have passed, and no sooner than one.
func TestPeriods(t *testing.T) {
	s, at := topkeys.New(), now
	add(s, "k", 3)
	require.Len(t, s.Top(1, at), 1)
	at = at.Add(topkeys.Period)
	require.Len(t, s.Top(1, at), 1)
	add(s, "k", 2)
	all := s.Top(1, at.Add(topkeys.Period-1))
	require.EqualValues(t, 5, all[0].Count, "of both periods")
	at = at.Add(topkeys.Period)
	require.Len(t, s.Top(1, at), 1)
	all = s.Top(1, at.Add(1))
	require.EqualValues(t, 2, all[0].Count)
	s.Top(1, at.Add(topkeys.Period))
	require.Empty(t, s.Top(1, at.Add(topkeys.Period+1)))
}

// TestBytes: a key of 4 KiB takes a place of its own and a KiB, and no key keeps what it was cut
// from.
func TestBytes(t *testing.T) {
	s, long := topkeys.New(), strings.Repeat("k", 4096)
	add(s, long+"a", 2)
	add(s, long+"b", 1)
	all := s.Top(9, now)
	require.Len(t, all, 2, "the keys differ beyond what is kept")
	require.Len(t, all[0].Key, topkeys.Text)
	require.EqualValues(t, 2, all[0].Count)
	buffer := []byte("GET /key")
	s.Add(unsafe.String(&buffer[5], 3), 1)
	copy(buffer, "POST    ")
	require.Contains(t, names(s.Top(9, now)), "key")
}

// TestConcurrent: calls beside each other lose no count of keys that have a place, and no key has
// two places.
func TestConcurrent(t *testing.T) {
	s := topkeys.New()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 20_000 {
				s.Add([]string{"a:------", "b:------", "c:------"}[i%3], uint64(i))
				s.Add(fmt.Sprint("other:", g, i), uint64(i))
				if i%1000 == 0 {
					s.Top(3, now)
				}
			}
		}()
	}
	wg.Wait()
	top := s.Top(3, now)
	require.Subset(t, names(top), []string{"a:------", "b:------", "c:------"})
	for _, k := range top {
		require.Greater(t, k.Count, int64(50_000), k)
	}
	seen := map[uint64]bool{}
	for _, h := range s.Hashes() {
		require.False(t, seen[h])
		seen[h] = true
	}
}
