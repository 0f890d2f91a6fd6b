package shard_test

import (
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/shard"
	"github.com/stretchr/testify/require"
)

// TestLoweredLimit: after a limit is lowered to what was used nothing passes, in any number of
// calls at once, and a Peek has nothing that remains. What was used ages as ever.
func TestLoweredLimit(t *testing.T) {
	for kind := range kinds(algo.PerMinute(1000)) {
		_, h, now := hooking()
		before, after := ignorant(h), ignorant(h)
		old, lowered := one(kinds(algo.PerMinute(1000))[kind], 64), one(kinds(algo.PerMinute(100))[kind], 64)
		for range 100 {
			require.True(t, do(t, before, take("k", old, 1)).Allowed)
		}
		faulttest.Go(4, func(int) {
			for range 20 {
				d := do(t, after, take("k", lowered, 1))
				require.False(t, d.Allowed, "kind %d", kind)
				require.Positive(t, d.RetryAfter, "kind %d", kind)
			}
		})()
		r := take("k", lowered, 1)
		r.Run, r.UpTo = 30, true
		require.False(t, do(t, after, r).Allowed, "kind %d", kind)
		d := do(t, after, peek("k", lowered, 1))
		require.EqualValues(t, []int64{100, 100, 0}, []int64{d.Used, d.Limit, d.Remaining}, "kind %d", kind)
		require.False(t, d.Allowed, "kind %d", kind)
		now.Add(121_000_000)
		require.True(t, do(t, after, take("k", lowered, 1)).Allowed, "kind %d", kind)
	}
}

// TestLimitLoweredElsewhere: a process that has summed a key before another limit has charged
// it finds out by the first sub-key that is above its part. It passes nothing from then on,
// also where a sub-key has room, and borrows nothing.
func TestLimitLoweredElsewhere(t *testing.T) {
	_, h, _ := hooking()
	s := ignorant(h)
	old, lowered := one(algo.FixedWindow(algo.PerDay(1000)), 64), one(algo.FixedWindow(algo.PerDay(128)), 64)
	do(t, s, peek("k", lowered, 1))
	for i, sub := range shard.Names("k", 64)[:32] { // by another process: 96 units, 3 where 2 are the part
		r := take("k", spreadList{[]backend.Policy{{Name: "p", Algorithm: old.policies[0].Algorithm.Part(int64(i), 64)}}, 0}, 3)
		r.Sub = sub
		require.True(t, do(t, h, r).Allowed)
	}
	passed := 0
	for range 200 {
		if do(t, s, take("k", lowered, 1)).Allowed {
			passed++
		}
	}
	require.Less(t, passed, 32)
	require.Less(t, do(t, s, peek("k", lowered, 1)).Used, int64(128))
	r := take("k", lowered, 0)
	r.Op, r.Loan = backend.Borrow, &backend.Loan{ID: backend.LeaseID{1}, Seq: 1, Term: time.Second, Want: 9}
	do(t, s, r)
	require.Zero(t, r.Loan.Lent.Units)
	require.True(t, r.Loan.Lent.Recalled)
}

// TestLoweredLimitOfALostShare: nothing passes a lowered limit that is used up if the first sum
// lacks the shares that used it. While they are dead the others serve, until they are back.
func TestLoweredLimitOfALostShare(t *testing.T) {
	for _, dead := range []bool{false, true} {
		s, h, now := hooking()
		old, lowered := one(algo.FixedWindow(algo.PerDay(400)), 4), one(algo.FixedWindow(algo.PerDay(200)), 4)
		r := take("k", old, 1)
		r.Run, r.UpTo = 200, true
		require.EqualValues(t, 200, do(t, ignorant(h), r).Passed)
		lost, most := map[string]int{}, 0
		h.after = func(r backend.Request, d *backend.Decision, err *error) {
			if lost[r.Sub]++; d.Used > d.Limit && (dead || lost[r.Sub] == 1) {
				*err = backend.ErrUnavailable
			}
		}
		if dead {
			most = 20
		}
		passed := 0
		for i := range 200 {
			if i == 20 {
				dead = false
				now.Add(200_000)
			}
			if do(t, s, take("k", lowered, 1)).Allowed {
				passed++
			}
		}
		require.GreaterOrEqual(t, passed, most)
		require.LessOrEqual(t, passed, most+most/5, "the shares of 100 more have room")
	}
}
