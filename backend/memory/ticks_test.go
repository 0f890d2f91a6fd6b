package memory

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStamps: one serves where the counter has gone alike since the two before
// it, and it was taken at a glance.
func TestStamps(t *testing.T) {
	const perMilli = 2_600_000 // ticks
	var s stamps
	at, since := uint64(1<<50), 3*time.Millisecond
	passes := func(ticks uint64, ns time.Duration) *stamp {
		at, since = at+ticks, since+ns
		s.follow(at, 100, since)
		return s.serving.Load()
	}
	steady := func() *stamp { return passes(2*perMilli, 2*time.Millisecond) }
	require.Nil(t, passes(0, 0), "the first")
	require.Nil(t, steady(), "the first that tells a rate")
	require.NotNil(t, steady())
	require.NotNil(t, passes(16*perMilli, 16*time.Millisecond))
	require.Nil(t, passes(16*perMilli+1, 16*time.Millisecond+1), "nobody asks often")

	one := steady()
	require.InDelta(t, perMilli, one.good, 2)
	require.InDelta(t, float64(1<<32)*1e6/perMilli, one.rate, 2)
	require.Equal(t, stamp{at, since, one.rate, one.good}, *one)
	require.Same(t, one, passes(perMilli/2, time.Millisecond/2), "one is good for a millisecond")
	s.follow(at+perMilli, perMilli/512, since+time.Millisecond)
	require.Same(t, one, s.serving.Load(), "it was long in taking")
	s.follow(at+9*perMilli, perMilli/512, since+9*time.Millisecond)
	require.Same(t, one, s.serving.Load(), "as long, after longer")

	for what, step := range map[string]func() *stamp{
		"forward":   func() *stamp { return passes(2*perMilli+perMilli/64, 2*time.Millisecond) },
		"back":      func() *stamp { return passes(2*perMilli-perMilli/64, 2*time.Millisecond) },
		"far back":  func() *stamp { return passes(^uint64(9*perMilli), 2*time.Millisecond) },
		"far ahead": func() *stamp { return passes(1<<62, 2*time.Millisecond) },
	} {
		require.Nil(t, step(), "it went %s", what)
		require.Nil(t, steady(), "it went %s before", what)
		require.NotNil(t, steady(), "it went %s long before", what)
	}
}

// TestTicks tell the time, however many ask.
func TestTicks(t *testing.T) {
	if !ticking() {
		t.Skip("no counter that is invariant")
	}
	c := newClock(nil)
	var asked, stamped, off atomic.Int64
	crowd(4, func(int) {
		for time.Since(c.begin) < 100*time.Millisecond {
			before := time.Since(c.begin)
			s := c.serving.Load()
			now := c.since()
			after := time.Since(c.begin)
			if now < before-serves || now > after+serves {
				t.Errorf("%v, between %v and %v", now, before, after)
			}
			asked.Add(1)
			if now < before-time.Microsecond || now > after+time.Microsecond {
				off.Add(1)
			}
			if s != nil {
				stamped.Add(1)
			}
		}
	})
	require.Less(t, off.Load(), asked.Load()/100+1)
	require.Greater(t, stamped.Load(), asked.Load()/2)
	old := c.serving.Load()
	require.Eventually(t, func() bool {
		c.since()
		s := c.serving.Load()
		return s != nil && s != old
	}, 10*time.Second, 2*serves)
}
