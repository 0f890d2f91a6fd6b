package memory

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// called is a key that a limiter has called on and on, and its place.
type called struct {
	*testing.T
	s    *Store
	hits Hits
	g    backend.Group
}

// callOn calls until the key's place is remembered.
func callOn(t *testing.T, key string) *called {
	t.Helper()
	s := New(nil)
	p := by("quota", algo.TokenBucket(algo.Per(1, algo.MaxPeriod), 1<<30))
	c := &called{t, s, s.Hits(&p), backend.Group{Key: key, Policies: []backend.Policy{p}, Cost: 1}}
	ask(t, s, backend.Take, c.g)
	for calls := 0; c.hits.hot.of(key) == nil; calls++ {
		require.Less(t, calls, 1_000_000)
		require.True(t, c.take(key))
	}
	return c
}

func (c *called) take(key string) bool {
	var d backend.Decision
	return c.hits.Take(context.Background(), key, 1, &d)
}

func (c *called) used(key string) int64 {
	g := c.g
	g.Key = key
	return ask(c.T, c.s, backend.Peek, g).Used
}

// TestHot: a key that is called on and on is decided at its place, and counted
// there.
func TestHot(t *testing.T) {
	for _, key := range []string{"k", "user:123", "user:123456"} {
		c := callOn(t, key)
		place := c.hits.hot.of(key)
		require.True(t, place.own())
		require.False(t, place.own(), "it has an owner")
		w, free, m := recordOf(t, c.s, c.g)
		require.Equal(t, free|held, w[tagWord], "it is the record")
		require.Same(t, m, place.m)
		release(&w[tagWord])
		at, in, tag, _ := c.hits.own(key)
		require.Same(t, &w[0], &at[0])
		require.Same(t, m, in)
		require.Equal(t, c.hits.name.tag(c.s.hash(&c.g)), tag)
		release(&w[tagWord])
		used := c.used(key)
		c.s.seed = New(nil).seed // whatever is searched is not found
		require.True(t, c.take(key))
		require.Equal(t, used+1, units(w))
		require.False(t, c.take(key[:len(key)-1]+"x"), "another key")
		require.False(t, c.take(key+"x"), "another key")
	}
}

// units are what a bucket's record holds.
func units(w []int64) int64 { return w[header] >> 20 }

// TestNoneHot: where no key stands out none is remembered.
func TestNoneHot(t *testing.T) {
	c := callOn(t, "hot")
	c.hits.hot = new(hot)
	keys := make([]string, 20_000) // two draws that many calls apart are of one key: hardly ever
	for i := range keys {
		keys[i] = fmt.Sprint("user:", i)
		c.g.Key = keys[i]
		ask(t, c.s, backend.Take, c.g)
	}
	drawn := 0
	for round := 0; drawn < 100 && round < 1_000_000; round++ {
		before := c.hits.hot.drawn.Load()
		c.take(keys[round*7919%len(keys)])
		if c.hits.hot.drawn.Load() != before {
			drawn++
		}
	}
	require.Nil(t, c.hits.hot.place.Load())
	require.Equal(t, 100, drawn)
}

// TestHotIsExact: what is decided at a key's place is counted like all else,
// while other records come and go.
func TestHotIsExact(t *testing.T) {
	c := callOn(t, "user:123456")
	before := c.used(c.g.Key)
	var callers, others sync.WaitGroup
	var stop atomic.Bool
	others.Add(1)
	go func() {
		defer others.Done()
		for i := 0; !stop.Load(); i++ {
			g := c.g
			g.Key = fmt.Sprint("other:", i%5000)
			ask(t, c.s, backend.Take, g)
			ask(t, c.s, backend.Reset, g)
		}
	}()
	const each = 100_000
	for range 3 {
		callers.Add(1)
		go func() {
			defer callers.Done()
			for range each {
				if !c.take(c.g.Key) {
					ask(t, c.s, backend.Take, c.g)
				}
			}
		}()
	}
	callers.Wait()
	stop.Store(true)
	others.Wait()
	require.Equal(t, before+3*each, c.used(c.g.Key))
}

// TestHotMoves: a record that moved to another table is found there.
func TestHotMoves(t *testing.T) {
	c := callOn(t, "user:123456")
	place, used := c.hits.hot.of(c.g.Key), c.used(c.g.Key)
	for i := 0; place.own(); i++ {
		release(&place.w[tagWord])
		g := c.g
		g.Key = fmt.Sprint("user:", 200_000+i)
		ask(t, c.s, backend.Take, g)
	}
	require.True(t, c.take(c.g.Key))
	require.Equal(t, used+1, c.used(c.g.Key))
}

// TestHotLeaves: what comes to the cell of a record that was dropped is not taken
// for it, however alike they are.
func TestHotLeaves(t *testing.T) {
	c := callOn(t, "user:123456")
	place := c.hits.hot.of(c.g.Key)
	w, free, m := recordOf(t, c.s, c.g)
	hash := c.s.hash(&c.g)
	ask(t, c.s, backend.Reset, c.g)
	require.False(t, place.own(), "it was dropped")

	const other = "user:654321"
	of := c.s.nameOf(&c.g.Policies[0], "")
	m.Lock()
	m.reserve(len(w), 1)
	came := m.keep(hash, other, of, []int64{0, 0}, 1<<50) // as if it had that hash
	disown(came)
	m.Unlock()
	require.Equal(t, free, came[tagWord])
	if &came[0] != &w[0] { // its table had left with the last of its records
		place.w = came
	}
	require.False(t, place.own())
	require.Equal(t, free, came[tagWord], "given back")
	c.take(c.g.Key)
	require.Zero(t, units(came))
	require.Nil(t, c.hits.hot.place.Load(), "it is of no use any more")
}
