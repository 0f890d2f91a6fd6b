package headgate_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// TestAllFromLoans calls two keys at once from several limiters. Most calls need no round
// trip, both keys count each call that passed, and no more pass than the lower limit.
func TestAllFromLoans(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const limit = 100_000
	var passed, atHome atomic.Int64
	var wait sync.WaitGroup
	var users, orgs []*headgate.Limiter
	begin := time.Now()
	goes := func() bool { // a busy machine takes longer until a call is decided at home
		took := time.Since(begin)
		return took < time.Second || took < 20*time.Second && atHome.Load() == 0
	}
	for range 3 {
		user := borrowing(t, server, algo.FixedWindow(algo.PerDay(limit)), 50*time.Millisecond)
		org, err := user.With(headgate.Policy{
			Name: "org", Algorithm: algo.FixedWindow(algo.PerDay(10 * limit)), OnFailure: headgate.FailClosed,
		})
		require.NoError(t, err)
		users, orgs = append(users, user), append(orgs, org)
		for range 3 {
			wait.Add(1)
			go func() {
				defer wait.Done()
				for goes() {
					d, err := headgate.All(context.Background(), user.Part("user"), org.Part("org"))
					if err != nil {
						t.Error(err)
					}
					if d.Allowed {
						passed.Add(1)
					}
					if d.Allowed && d.Source == headgate.FromLoan {
						atHome.Add(1)
					}
				}
			}()
		}
	}
	wait.Wait()
	t.Logf("%d passed, %d at home", passed.Load(), atHome.Load())
	require.LessOrEqual(t, passed.Load(), int64(limit))
	require.Positive(t, atHome.Load())
	if redistest.Long() {
		require.Greater(t, atHome.Load(), passed.Load()/2)
	}
	for _, all := range [][]*headgate.Limiter{users, orgs} {
		key := map[bool]string{true: "user", false: "org"}[&all[0] == &users[0]]
		time.Sleep(time.Second) // what is held is given back
		d, err := all[0].Peek(context.Background(), headgate.Call{Key: key})
		require.NoError(t, err)
		require.Zero(t, d.Lent)
		require.GreaterOrEqual(t, d.Used, passed.Load(), key)
		require.LessOrEqual(t, d.Used, 2*passed.Load(), key) // what a busy process settles too late is charged whole
	}
}

// TestAllOverALinkThatWasSlow: calls of two keys borrow again after a slow link has become
// fast, though no call of one key shows how fast it is.
func TestAllOverALinkThatWasSlow(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	day := algo.FixedWindow(algo.PerDay(1_000_000))
	for _, stores := range []string{"one store", "two stores"} {
		t.Run(stores, func(t *testing.T) {
			t.Parallel()
			relay := redistest.NewRelay(t, server.Addr(), 0)
			user := borrowingAt(t, relay.Addr(), day, 50*time.Millisecond)
			org := borrowingAt(t, relay.Addr(), day, 50*time.Millisecond)
			if stores == "one store" {
				var err error
				org, err = user.With(headgate.Policy{Name: "org", Algorithm: day, OnFailure: headgate.FailClosed})
				require.NoError(t, err)
			}
			atHome := func() int64 {
				var n atomic.Int64
				faulttest.Go(8, func(int) {
					for range 25 {
						d, err := headgate.All(t.Context(), user.Part("user "+stores), org.Part("org "+stores))
						if err != nil || !d.Allowed {
							t.Error(err, d)
						}
						if d.Source == headgate.FromLoan {
							n.Add(1)
						}
					}
				})()
				return n.Load()
			}
			until := func(want bool, within time.Duration) {
				for end := time.Now().Add(within); (atHome() > 0) != want; {
					require.Less(t, time.Now(), end, "decided at home: %v is wanted", want)
				}
			}
			relay.SetRoundTrip(20 * time.Millisecond)
			until(false, 30*time.Second)
			relay.SetRoundTrip(0)
			until(true, 30*time.Second)
		})
	}
}

// TestAllAsksNoStore: on a cluster, over two stores and over one, keys of which this process
// has units cost no round trip. Neither does a user whose organisation is known to be denied,
// whether the user's units are at home or not.
func TestAllAsksNoStore(t *testing.T) {
	t.Parallel()
	c, one, other := redistest.StartCluster(t), redistest.Start(t), redistest.Start(t)
	clustered, err := cluster.Open(c.Addrs(), &cluster.Options{Budget: 20 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = clustered.Close() })
	users, orgs := unhurried(t, one), unhurried(t, other)
	scripts := func() int64 {
		return c.CommandStats(t)["evalsha"].Calls + one.CommandStats(t)["evalsha"].Calls + other.CommandStats(t)["evalsha"].Calls
	}
	for name, s := range map[string][2]backend.Store{"cluster": {clustered, clustered}, "two stores": {users, orgs}, "one store": {users, users}} {
		for _, term := range []time.Duration{0, time.Second} {
			user, org := limiter(t, s[0], &headgate.Options{Borrow: term}, million("user")), limiter(t, s[1], &headgate.Options{Borrow: term}, million("org"))
			small := limiter(t, s[1], nil, level("org", 10))
			key := name + term.String()
			_, err := small.AllowN(t.Context(), key+" small", 10)
			require.NoError(t, err)
			if term > 0 {
				untilSilent(t, scripts, headgate.FromLoan, user.Part(key), org.Part(key+" org"))
			}
			untilSilent(t, scripts, headgate.FromDenyCache, user.Part(key), small.Part(key+" small"))
		}
	}
}

func million(name string) headgate.Policy {
	return headgate.Policy{Name: name, Algorithm: algo.FixedWindow(algo.PerDay(1_000_000)), OnFailure: headgate.FailClosed}
}

// untilSilent repeats ten calls until no store has decided one and no server has run a script
// meanwhile. Calls are decided by the stores at first, and a loan may be renewed beside them.
func untilSilent(t *testing.T, scripts func() int64, source headgate.Source, parts ...headgate.Part) {
	t.Helper()
	for end, silent := time.Now().Add(20*time.Second), false; !silent; {
		require.Less(t, time.Now(), end)
		silent = true
		before := scripts()
		for range 10 {
			d, err := headgate.All(t.Context(), parts...)
			require.NoError(t, err)
			require.Equal(t, source == headgate.FromLoan, d.Allowed)
			silent = silent && d.Source == source
		}
		silent = silent && scripts() == before
	}
}
