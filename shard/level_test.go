package shard_test

import (
	"fmt"
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

// TestLoweredLimitBesideASilentShare: while a sub-key does not answer, the others decide. Once it
// answers again, and counts more than its part of a lowered limit, nothing passes.
func TestLoweredLimitBesideASilentShare(t *testing.T) {
	s, h, now := hooking()
	old, lowered := algo.FixedWindow(algo.PerDay(1000)).Part(0, 4), one(algo.FixedWindow(algo.PerDay(100)), 4)
	for i := range 8 {
		key := fmt.Sprint("k", i)
		silent := shard.Names(key, 4)[0]
		r := take(key, spreadList{[]backend.Policy{{Name: "p", Algorithm: old}}, 0}, 90)
		r.Sub = silent
		require.True(t, do(t, h, r).Allowed)
		h.after = func(r backend.Request, _ *backend.Decision, err *error) {
			if r.Sub == silent {
				*err = backend.ErrUnavailable
			}
		}
		for range 5 {
			require.True(t, do(t, s, take(key, lowered, 1)).Allowed, "a living one decides")
		}
		h.after = nil
		now.Add(100_000)
		for range 5 {
			require.False(t, do(t, s, take(key, lowered, 1)).Allowed)
		}
	}
}
