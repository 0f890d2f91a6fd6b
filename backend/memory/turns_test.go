package memory

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// pair is two who call one record on and on, in made-up time: how far apart
// their decisions are while both call, and while one stays away; 0: nobody
// decides then.
type pair struct {
	m           guarded
	now         time.Duration
	both, alone time.Duration
	chance      uint64
}

const (
	ours  = 7 // the record's tag
	while = 200 * time.Millisecond
)

// soon is half or once and a half as long, or anything between.
func (p *pair) soon(d time.Duration) time.Duration {
	p.chance = p.chance*6364136223846793005 + 1442695040888963407
	return d/2 + time.Duration(p.chance>>33)%(d+1)
}

// call has both call for a while, and returns how long one of the two stayed away.
func (p *pair) call(t *testing.T, during time.Duration) (away time.Duration) {
	for end := p.now + during; p.now < end; p.now += p.soon(p.both) {
		if !p.m.share(ours, p.now) {
			continue
		}
		begin := p.now
		for ; p.alone > 0 && p.now-begin < turn; p.now += p.soon(p.alone) {
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
		{"one decides what two do", 100, 100, [2]float64{0, 0.25}}, // by luck, at no cost
		{"one decides half of what two do", 75, 150, [2]float64{0, 0.01}},
		{"nobody else calls", 75, 0, [2]float64{0, 0.003}},
		{"they seldom meet", 2000, 100, [2]float64{0, 0}},
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
		p.call(t, 2*longRest)
		require.Greater(t, p.call(t, while), while*9/10)
		p.both = 60 // the lines are near, and turns still bring what they did
		p.call(t, 10*time.Millisecond)
		require.Less(t, p.call(t, while), while/20)
		p.both, p.alone = 600, 1100 // they do other things
		require.Less(t, p.call(t, while), while/50)
	}
}

// TestASecondCaller: who has called alone for long, and stayed away for nothing
// now and then, takes turns soon after somebody else comes.
func TestASecondCaller(t *testing.T) {
	p := &pair{now: time.Minute, both: 75}
	p.call(t, while)
	p.both, p.alone = 240, 80
	p.call(t, time.Millisecond)
	require.Greater(t, p.call(t, 10*time.Millisecond), 7*time.Millisecond)
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
	p.m.try(p.now)
	p.m.turns.seen.Store(1)
	p.m.back(ours, p.now) // a turn that began before
	require.EqualValues(t, trial, p.m.turns.left.Load())
	require.Greater(t, p.call(t, while), while*9/10)
}

// TestTwoRecordsByTurns: who calls two records of a stripe alone stays away from
// neither for longer than from one.
func TestTwoRecordsByTurns(t *testing.T) {
	var m guarded
	away, now := time.Duration(0), time.Minute
	for i := 0; now < time.Minute+time.Second; i++ {
		now += 75
		tag := uint32(ours)
		if i%9 == 0 {
			tag++
		}
		if m.share(tag, now) {
			now, away = now+turn, away+turn
			m.back(tag, now)
		}
	}
	require.Less(t, away, 3*time.Millisecond)
}

// TestCoarseClock: where the clock stands still for long, a turn that is due is
// long since due.
func TestCoarseClock(t *testing.T) {
	var m guarded
	for i := range 3_000_000 {
		now := time.Minute + time.Duration(i)*75
		require.False(t, m.share(ours, now-now%time.Millisecond))
	}
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
	require.True(t, p.m.share(ours, p.now+turn+2*between), "who had it has lost its core")
}

// TestTurnsFollowEachOther: who comes back late from the last turn of a trial has
// nobody join who took the next.
func TestTurnsFollowEachOther(t *testing.T) {
	p := &pair{now: time.Minute, both: 240, alone: 80}
	p.call(t, time.Millisecond)
	p.m.try(p.now)
	p.m.turns.left.Store(1)
	p.now += between
	require.True(t, p.m.share(ours, p.now))
	p.m.turns.seen.Store(enough)
	p.now += turn + between
	require.True(t, p.m.share(ours, p.now), "the next is another's")
	p.m.back(ours, p.now)
	require.EqualValues(t, trial, p.m.turns.left.Load(), "it brought more, so there is another trial")
	for away := time.Duration(0); away < turn+between; away += 10 {
		require.False(t, p.m.share(ours, p.now+away))
	}
	require.True(t, p.m.share(ours, p.now+turn+between))
}

// TestALateComer: who is back when all call again tells nothing, and keeps
// nobody from turns.
func TestALateComer(t *testing.T) {
	p := &pair{now: time.Minute, both: 240, alone: 80}
	p.call(t, time.Millisecond)
	p.m.all(p.now)
	rest := p.m.turns.rest.Load()
	for range 3 * trial {
		p.now += turn
		p.m.back(ours, p.now)
	}
	require.Equal(t, rest, p.m.turns.rest.Load())
	p.call(t, time.Millisecond)
	require.Greater(t, p.call(t, while), while*9/10)
}

// TestAPause: of turns that were left off is none that is due when the callers
// are back, and they go on soon.
func TestAPause(t *testing.T) {
	p := &pair{now: time.Minute, both: 240, alone: 80}
	for p.m.due.Load() == 0 {
		p.call(t, p.both)
	}
	p.now += 2 * forgot
	require.False(t, p.m.share(ours, p.now))
	require.False(t, p.m.share(ours, p.now+between-1))
	require.True(t, p.m.share(ours, p.now+between))
}

// TestHitsTakeTurns: a hit whose turn it is stays away, and its record is
// anybody's meanwhile.
func TestHitsTakeTurns(t *testing.T) {
	s := New(nil)
	g := backend.Group{Key: "k", Policies: []backend.Policy{by("quota", algo.TokenBucket(algo.PerHour(1<<20), 1<<20))}, Cost: 1}
	ask(t, s, backend.Take, g)
	w, free, m := recordOf(t, s, g)
	begin := s.clock.since()
	m.turns.tag.Store(tagIn(w))
	m.turns.left.Store(trial)
	m.turns.seen.Store(1)
	m.due.Store(int64(begin))
	now := s.clock.begin.Add(begin)
	s.clock.ticks = false
	s.clock.serving.Store(nil)
	s.clock.given = func() time.Time { // a microsecond passes whenever it is read
		require.Equal(t, free, atomic.LoadInt64(&w[tagWord]), "owned")
		now = now.Add(time.Microsecond)
		return now
	}
	var d backend.Decision
	require.True(t, hit(s, &g.Policies[0])(context.Background(), "k", 1, &d))
	require.GreaterOrEqual(t, now.Sub(s.clock.begin)-begin, turn)
	require.EqualValues(t, trial-1, m.turns.left.Load())
}

// TestATurnEnds: not before its time, and not long after it.
func TestATurnEnds(t *testing.T) {
	c := newClock(nil)
	quickest := time.Hour
	for range 1000 {
		begin := c.since()
		took := c.pass(turn) - begin
		require.GreaterOrEqual(t, took, turn*9/10) // the clock is right to some microseconds
		quickest = min(quickest, took)
	}
	require.Less(t, quickest, 2*turn)
}
