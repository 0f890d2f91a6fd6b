package memory

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pair is two who call one record on and on, in made-up time: how far apart
// their decisions are while both call, and while one stays away; 0: nobody
// decides then.
type pair struct {
	m           guarded
	now         time.Duration
	both, alone time.Duration
}

const (
	ours  = 7 // the record's tag
	while = 200 * time.Millisecond
)

// call has both call for a while, and returns how long one of the two stayed away.
func (p *pair) call(t *testing.T, during time.Duration) (away time.Duration) {
	for end := p.now + during; p.now < end; p.now += p.both {
		if !p.m.share(ours, p.now) {
			continue
		}
		begin := p.now
		for ; p.alone > 0 && p.now-begin < turn; p.now += p.alone {
			if p.m.share(ours, p.now) {
				t.Fatal("both stay away")
			}
		}
		p.now = max(p.now, begin+turn)
		away += p.now - begin
		p.m.back(ours, p.now)
	}
	return away
}

// TestTurns: who share a record take turns where that brings more decisions,
// and hardly ever where it doesn't.
func TestTurns(t *testing.T) {
	for _, c := range []struct {
		name        string
		both, alone time.Duration
		away        [2]float64 // least and most, of the time
	}{
		{"the lines are far", 240, 80, [2]float64{0.9, 0.99}},
		{"one decides what two do", 100, 100, [2]float64{0, 0.02}},
		{"one decides half of what two do", 75, 150, [2]float64{0, 0.01}},
		{"nobody else calls", 75, 0, [2]float64{0, 0.003}},
		{"they seldom meet", 1100, 100, [2]float64{0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &pair{now: time.Minute, both: c.both, alone: c.alone}
			away := p.call(t, while).Seconds() / while.Seconds()
			require.GreaterOrEqual(t, away, c.away[0])
			require.LessOrEqual(t, away, c.away[1])
		})
	}
}

// TestTurnsFollowTheCallers: what brought more is known anew soon after it no
// longer does, or does again.
func TestTurnsFollowTheCallers(t *testing.T) {
	p := &pair{now: time.Minute, both: 240, alone: 80}
	for range 2 {
		p.both, p.alone = 240, 80
		p.call(t, 2*atMost)
		require.Greater(t, p.call(t, while), while*9/10)
		p.both = 60 // the lines are near, and turns still bring what they did
		p.call(t, 10*time.Millisecond)
		require.Less(t, p.call(t, while), while/20)
		p.both, p.alone = 600, 1100 // they do other things
		require.Less(t, p.call(t, while), while/50)
	}
}

// TestTurnsAreOneRecords: another record of the stripe has them where that is
// called more, and where the first is not called any more.
func TestTurnsAreOneRecords(t *testing.T) {
	p := &pair{now: time.Minute, both: 240, alone: 80}
	for p.m.due.Load() == 0 {
		p.call(t, p.both)
	}
	const other = ours + 1
	due := time.Duration(p.m.due.Load())
	for p.m.turns.tag.Load() == ours {
		p.now += 100
		require.False(t, p.m.share(other, p.now))
	}
	require.InDelta(t, forgot, p.now-due, float64(forgot)/8)
	p.m.back(ours, p.now) // a turn that began before
	require.Zero(t, p.m.due.Load())
	require.Greater(t, p.call(t, while), while*9/10)
}

// TestATurnIsOnes: of two who call when one is due one has it.
func TestATurnIsOnes(t *testing.T) {
	p := &pair{now: time.Minute, both: 240, alone: 80}
	for p.m.due.Load() == 0 {
		p.call(t, p.both)
	}
	p.now = time.Duration(p.m.due.Load())
	require.False(t, p.m.share(ours, p.now-1))
	require.True(t, p.m.share(ours, p.now))
	require.False(t, p.m.share(ours, p.now))
}

// TestATurnEnds: not before its time, and not long after it.
func TestATurnEnds(t *testing.T) {
	c := newClock(nil)
	quickest := time.Hour
	for range 1000 {
		begin := c.since()
		took := c.pass(turn) - begin
		require.GreaterOrEqual(t, took, turn)
		quickest = min(quickest, took)
	}
	require.Less(t, quickest, 2*turn)
}
