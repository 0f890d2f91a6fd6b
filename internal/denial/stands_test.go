package denial

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/stretchr/testify/require"
)

// stands asks what answers a call that no store decided.
func stands(s *Store, r backend.Request) bool {
	var d backend.Decision
	return s.Stands(&r, &d) && !d.Allowed && d.Source == backend.FromDenyCache && d.Err == nil && d.RetryAfter > 0
}

// TestStands: where no store decides, a denial stands until its RetryAfter, for at most
// a minute. While the store decides it holds for a second as ever.
func TestStands(t *testing.T) {
	for _, c := range []struct{ retry, want time.Duration }{{20 * time.Second, 20 * time.Second}, {time.Hour, time.Minute}} {
		f, s := denied(t, c.retry, one, 3)
		f.advance(2 * time.Second)
		require.True(t, stands(s, take("k", one, 3)))
		var d backend.Decision
		r := take("k", one, 5)
		r.Op = backend.Peek
		require.True(t, s.Stands(&r, &d))
		require.GreaterOrEqual(t, d.RetryAfter, c.retry-2*time.Second, "a higher cost")
		require.False(t, stands(s, take("k", one, 2)), "it costs less")
		require.False(t, stands(s, take("another", one, 3)))
		require.True(t, stands(s, take("k", policies(2), 3)), "another list with the policy that denied")
		require.False(t, stands(s, take("k", policies(2), 2)), "it costs less")
		require.False(t, stands(s, take("k", policies(2)[1:], 3)), "another policy")
		f.advance(c.want - 2*time.Second - 1)
		require.True(t, stands(s, take("k", one, 3)))
		require.Nil(t, s.cache.At("k").find(&r.Group, s.cache.Now(), Longest), "it is too old to answer for the store")
		f.advance(1)
		require.False(t, stands(s, take("k", one, 3)))
		require.EqualValues(t, 4, s.Answered())
	}
	var none *Store
	require.False(t, none.Stands(nil, nil), "a store in this process needs none")
	f, _ := denied(t, time.Hour, one, 1)
	require.False(t, stands(f.wrapper(-1), take("k", one, 1)), "off")
}

// TestStandsRefilled: when a TokenBucket's denial has ended, one call per refill is not
// known to be denied. The others are.
func TestStandsRefilled(t *testing.T) {
	drip := []backend.Policy{{Name: "drip", Algorithm: algo.TokenBucket(algo.PerMinute(60), 5), OnFailure: backend.FailOpen}}
	f, s := denied(t, 2*time.Second, drip, 1)
	passed := 0
	for range 100 {
		f.advance(100 * time.Millisecond)
		if !stands(s, take("k", drip, 1)) {
			passed++
		}
	}
	require.Equal(t, 9, passed, "10 s after a denial for 2 s")
	f, s = denied(t, 2*time.Second, drip, 1)
	f.advance(3 * time.Second)
	f.do = leaves(0)
	require.True(t, ask(t, s, take("k", drip, 1)).Allowed, "by the store")
	require.False(t, stands(s, take("k", drip, 1)), "the second unit since")
	require.True(t, stands(s, take("k", drip, 1)))
	f, s = denied(t, 2*time.Second, drip, 1)
	f.advance(2 * time.Second)
	require.False(t, stands(s, take("k", drip, 1)))
	f.do = denies(time.Millisecond)
	require.False(t, ask(t, s, take("k", drip, 1)).Allowed, "by the store, which has counted no unit since")
	f.advance(2 * time.Millisecond)
	r, d := take("k", drip, 1), backend.Decision{}
	require.True(t, s.Stands(&r, &d), "the unit is taken")
	require.Equal(t, backend.NotCounted, d.Known, "by a call that no store has counted")
	window := []backend.Policy{{Name: "w", Algorithm: algo.FixedWindow(algo.PerMinute(60)), OnFailure: backend.FailOpen}}
	f, s = denied(t, 2*time.Second, window, 1)
	f.advance(2 * time.Second)
	for range 60 {
		require.False(t, stands(s, take("k", window, 1)), "the window is a new one")
	}
}

// TestStandsWithoutStates: a call that costs no less of the policy that denied is denied,
// though the store returned only the state of that policy. The others are not known.
func TestStandsWithoutStates(t *testing.T) {
	f := &fake{do: denies(time.Hour)} // "b" binds
	s := f.wrapper(Longest)
	require.False(t, cached(t, s, take("k", policies(2), 3)))
	r := take("k", policies(2), 0)
	r.Costs, r.Each = []int64{1, 3}, make([]backend.State, 2)
	require.True(t, stands(s, r))
	require.Equal(t, backend.State{Policy: "a", Limit: 10}, r.Each[0])
	require.Equal(t, "b", r.Each[1].Policy)
	require.Equal(t, backend.Estimated, r.Each[1].Known)
	require.Positive(t, r.Each[1].RetryAfter)
	r.Costs = []int64{3, 2}
	require.False(t, stands(s, r), "it costs less")

	// A list in another order, with another policy between.
	list := slices.Insert(policies(2), 1, backend.Policy{Name: "c", Algorithm: algo.InFlight(5), OnFailure: backend.FailOpen})
	slices.Reverse(list)
	r = take("k", list, 3)
	r.Each = make([]backend.State, 3)
	var d backend.Decision
	require.True(t, s.Stands(&r, &d))
	require.Equal(t, "b", d.Policy)
	require.Equal(t, d.State, r.Each[0])
	require.Equal(t, backend.State{Policy: "a", Limit: 10}, r.Each[2])
	r.Costs = []int64{3}
	require.False(t, s.Stands(&r, &d), "the list of costs does not fit")
}

// TestStandsRefilledBesideAnother: what comes free of a TokenBucket is known where the
// state of another policy is not.
func TestStandsRefilledBesideAnother(t *testing.T) {
	list := []backend.Policy{
		{Name: "day", Algorithm: algo.FixedWindow(algo.PerDay(1000)), OnFailure: backend.FailOpen},
		{Name: "drip", Algorithm: algo.TokenBucket(algo.PerMinute(60), 5), OnFailure: backend.FailOpen},
	}
	f, s := denied(t, 2*time.Second, list[1:], 1)
	require.False(t, cached(t, s, take("k", list, 1)))
	passed := 0
	for range 101 { // the second denial is a microsecond longer
		f.advance(100 * time.Millisecond)
		if !stands(s, take("k", list, 1)) {
			passed++
		}
	}
	require.Equal(t, 9, passed, "10.1 s after a denial for 2 s")
}

// TestStandsForDearerCalls: of a TokenBucket a call that costs more than was denied waits
// until that much is free. A Peek waits as long, and takes nothing.
func TestStandsForDearerCalls(t *testing.T) {
	drip := []backend.Policy{{Name: "drip", Algorithm: algo.TokenBucket(algo.PerMinute(60), 100), OnFailure: backend.FailOpen}}
	f, s := denied(t, time.Second, drip, 1)
	f.advance(2 * time.Second)
	r := take("k", drip, 10)
	r.Each = make([]backend.State, 1)
	var d backend.Decision
	require.True(t, s.Stands(&r, &d))
	require.Equal(t, 8*time.Second, d.RetryAfter)
	require.Equal(t, d.State, r.Each[0])
	f.advance(8*time.Second - 1)
	require.True(t, stands(s, take("k", drip, 10)))
	f.advance(1)
	for range 3 {
		look := take("k", drip, 10)
		look.Op = backend.Peek
		require.False(t, stands(s, look))
	}
	require.False(t, stands(s, take("k", drip, 10)))
	require.True(t, stands(s, take("k", drip, 1)))
}

// TestPassesOfTheStore: those that a denial foretold take what has come free, an AtMost as
// much as it was granted. One that it did not foretell ends it: the key has been changed.
func TestPassesOfTheStore(t *testing.T) {
	drip := []backend.Policy{{Name: "drip", Algorithm: algo.TokenBucket(algo.PerMinute(60), 10), OnFailure: backend.FailOpen}}
	f, s := denied(t, time.Second, drip, 1)
	f.advance(9 * time.Second)
	atMost := upTo("k", drip, 20)
	f.do = func(r *backend.Request) (d backend.Decision, _ error) {
		return backend.Decision{Allowed: true, Passed: 9}, nil
	}
	require.EqualValues(t, 9, ask(t, s, atMost).Passed)
	require.True(t, stands(s, take("k", drip, 1)))
	f.advance(time.Second)
	require.False(t, stands(s, take("k", drip, 1)))
	require.True(t, stands(s, take("k", drip, 1)))
	f.do = leaves(9)
	require.True(t, ask(t, s, take("k", drip, 1)).Allowed, "another process has reset it")
	require.False(t, stands(s, take("k", drip, 1)))
}

// TestStandsRefilledForAtMost: a failure mode may grant an AtMost all that it asks for. So it
// passes when all of that has come free since the denial, and takes it.
func TestStandsRefilledForAtMost(t *testing.T) {
	drip := []backend.Policy{{Name: "drip", Algorithm: algo.TokenBucket(algo.PerMinute(60), 20), OnFailure: backend.FailOpen}}
	f, s := denied(t, time.Second, drip, 1) // one unit each second from then on
	atMost := upTo("k", drip, 10)
	f.advance(10*time.Second - 1)
	require.True(t, stands(s, atMost), "9 units are free")
	f.advance(1)
	require.False(t, stands(s, atMost), "10 are")
	require.True(t, stands(s, take("k", drip, 1)), "and are taken")
	f.advance(time.Second)
	require.False(t, stands(s, take("k", drip, 1)))
	granted := 0
	for range 400 {
		if f.advance(100 * time.Millisecond); !stands(s, atMost) {
			granted += 10
		}
	}
	require.Equal(t, 40, granted, "40 s")
}

// TestStandsForMoreThanTheBurst: an AtMost for more than a bucket ever has passes no failure
// mode while the denial stands, and takes nothing from the calls beside it.
func TestStandsForMoreThanTheBurst(t *testing.T) {
	drip := []backend.Policy{{Name: "drip", Algorithm: algo.TokenBucket(algo.PerMinute(6), 5), OnFailure: backend.FailOpen}}
	for _, n := range []int64{6, 1000, 1 << 40, 1<<53 - 1} {
		f, s := denied(t, 10*time.Second, drip, 1)
		passed := 0
		for range 590 {
			f.advance(100 * time.Millisecond)
			atMost := upTo("k", drip, n)
			var d backend.Decision
			require.True(t, s.Stands(&atMost, &d), n)
			require.LessOrEqual(t, d.RetryAfter, Standing)
			if !stands(s, take("k", drip, 1)) {
				passed++
			}
		}
		require.Equal(t, 5, passed, n)
	}
}

// TestFullBucket: what comes free after a bucket is full is not kept for later.
func TestFullBucket(t *testing.T) {
	drip := []backend.Policy{{Name: "drip", Algorithm: algo.TokenBucket(algo.PerMinute(60), 5), OnFailure: backend.FailOpen}}
	for _, byStore := range []bool{false, true} {
		f, s := denied(t, time.Second, drip, 1)
		f.advance(30 * time.Second)
		f.do = leaves(0)
		passed := 0
		for range 30 {
			if r := take("k", drip, 1); byStore && passed < 5 {
				require.True(t, ask(t, s, r).Allowed)
			} else if stands(s, r) {
				continue
			}
			passed++
		}
		require.Equal(t, 5, passed, byStore)
	}
}

// TestDenialsOfOneCount: what one list's calls take, and how they pass, another list of the
// same count meets. Calls that cost less than was denied take as much.
func TestDenialsOfOneCount(t *testing.T) {
	drip := []backend.Policy{{Name: "drip", Algorithm: algo.TokenBucket(algo.PerMinute(60), 20), OnFailure: backend.FailOpen}}
	both := append(policies(1), drip...)
	f, s := denied(t, 15*time.Second, drip, 15)
	f.do = leaves(1)
	for range 10 {
		f.advance(time.Second)
		require.True(t, ask(t, s, take("k", drip, 1)).Allowed, "it costs less")
		require.True(t, ask(t, s, take("k", both, 1)).Allowed, "by another list")
	}
	f.advance(24 * time.Second)
	require.True(t, stands(s, take("k", drip, 15)), "34 units came free, and 20 were taken")
	f.advance(time.Second)
	require.False(t, stands(s, take("k", drip, 15)))

	f, s = denied(t, time.Hour, one, 1)
	f.do = leaves(5)
	require.True(t, ask(t, s, take("k", policies(2), 1)).Allowed, "another process has reset the key")
	require.False(t, stands(s, take("k", policies(2), 1)))
	require.False(t, stands(s, take("k", one, 1)))
}

// TestResetElsewhere: a denial of the store that ends sooner than the one before is right: no
// call has passed here that the store has not counted.
func TestResetElsewhere(t *testing.T) {
	drip := []backend.Policy{{Name: "drip", Algorithm: algo.TokenBucket(algo.PerMinute(60), 100), OnFailure: backend.FailOpen}}
	f, s := denied(t, 50*time.Second, drip, 1)
	f.advance(time.Second)
	f.do = denies(time.Second)
	require.False(t, cached(t, s, take("k", drip, 1)))
	f.advance(2 * time.Second)
	require.False(t, stands(s, take("k", drip, 1)))
}

// TestCheaperCallsOfAFullBucket: what calls take that cost less than was denied is taken of
// the full bucket.
func TestCheaperCallsOfAFullBucket(t *testing.T) {
	drip := []backend.Policy{{Name: "drip", Algorithm: algo.TokenBucket(algo.PerMinute(60), 10), OnFailure: backend.FailOpen}}
	f, s := denied(t, time.Second, drip, 10)
	f.advance(20 * time.Second)
	f.do = leaves(1)
	for range 10 {
		require.True(t, ask(t, s, take("k", drip, 1)).Allowed)
	}
	require.True(t, stands(s, take("k", drip, 10)), "nothing is left")
	f.advance(10 * time.Second)
	require.False(t, stands(s, take("k", drip, 10)))
}

// TestOwedAtAnotherCost: a denial of a lower cost ends sooner than the one before it.
func TestOwedAtAnotherCost(t *testing.T) {
	drip := []backend.Policy{{Name: "drip", Algorithm: algo.TokenBucket(algo.PerMinute(60), 100), OnFailure: backend.FailOpen}}
	f, s := denied(t, time.Minute, drip, 60)
	f.do = denies(time.Second)
	require.False(t, cached(t, s, take("k", drip, 1)))
	passed := 0
	for range 58 {
		f.advance(time.Second)
		if !stands(s, take("k", drip, 1)) {
			passed++
		}
	}
	require.Equal(t, 58, passed)
}

// TestWhatEndsStands: what ends a denial within its second ends it later too.
func TestWhatEndsStands(t *testing.T) {
	for name, end := range map[string]func(f *fake, s *Store){
		"a Reset here": func(_ *fake, s *Store) {
			_ = ask(t, s, backend.Request{Op: backend.Reset, Group: take("k", one, 0).Group})
		},
		"a refund here": func(_ *fake, s *Store) {
			_ = ask(t, s, settle("k", one, 1, 0))
		},
		"a call that passes": func(f *fake, s *Store) { f.do = leaves(5); _ = ask(t, s, take("k", one, 3)) },
	} {
		f, s := denied(t, time.Hour, one, 3)
		f.advance(10 * time.Second)
		require.True(t, stands(s, take("k", one, 3)), name)
		end(f, s)
		require.False(t, stands(s, take("k", one, 3)), name)
	}
}

// TestLaterDenialStays: of calls that are decided at once, the last may be denied and the
// first that passed come back after it. Its pass says nothing of the denial.
func TestLaterDenialStays(t *testing.T) {
	f := &fake{do: denies(time.Hour)}
	s, r, passed := f.wrapper(Longest), take("k", one, 1), backend.Decision{Allowed: true}
	passed.Source = backend.FromStore
	first := f.shared.Sending(&r)
	f.advance(time.Millisecond)
	require.False(t, cached(t, s, r))
	f.shared.Sent(&r, &passed, first, nil)
	require.True(t, cached(t, s, r))
	f.advance(time.Millisecond)
	f.shared.Sent(&r, &passed, f.shared.Sending(&r), nil)
	require.False(t, cached(t, s, r), "the store let a later call pass")
}
