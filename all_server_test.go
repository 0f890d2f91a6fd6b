package headgate_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// crowded are users of two organisations, of which one has room for all and the other
// for some of the users' limits.
type crowded struct {
	levels
	small *headgate.Limiter
}

const (
	crowdUsers  = 40
	crowdCaller = 8
	wide, tight = "org:wide", "org:tight"
)

func crowdUser(i int) string { return fmt.Sprint("user:", i%crowdUsers) }

// The limits of a user and of the small organisation, of so many calls.
func crowdLimits(calls int) (user, org int64) { return int64(calls / 200), int64(calls / 20) }

func newCrowded(t *testing.T, s backend.Store, calls int) (c crowded) {
	user, org := crowdLimits(calls)
	c.user = limiter(t, s, nil, level("user", user))
	var err error
	c.org, err = c.user.With(level("wide", 1_000_000))
	require.NoError(t, err)
	c.small, err = c.user.With(level("tight", org))
	require.NoError(t, err)
	return c
}

// run asks for so many calls, half of them for each organisation, and returns how many
// each admitted once nothing is given back any more.
func (c crowded) run(t *testing.T, calls int) (inWide, inTight int64) {
	var admitted [2]atomic.Int64
	faulttest.Go(crowdCaller, func(caller int) {
		for i := range calls / crowdCaller {
			org, key := c.org, wide
			if i%2 == 1 {
				org, key = c.small, tight
			}
			d, err := headgate.All(context.Background(), c.user.Part(crowdUser(caller*7+i/2)), org.Part(key))
			if err != nil || d.Err != nil {
				t.Error(err, d.Err)
				return
			}
			if d.Allowed {
				admitted[i%2].Add(1)
			}
		}
	})()
	require.Eventually(t, func() bool { return headgate.Cancelling(c.user) == 0 }, 30*time.Second, time.Millisecond)
	return admitted[0].Load(), admitted[1].Load()
}

// check requires that what is counted is what was admitted.
func (c crowded) check(t *testing.T, calls int, inWide, inTight int64) {
	user, org := crowdLimits(calls)
	requireCount(t, c.org, wide, inWide)
	requireCount(t, c.small, tight, inTight)
	used := int64(0)
	for i := range crowdUsers {
		d, err := c.user.Peek(context.Background(), headgate.Call{Key: crowdUser(i), Costs: []int64{0}})
		require.NoError(t, err)
		require.LessOrEqual(t, d.Used, user)
		used += d.Used
	}
	t.Logf("%d calls: %d and %d admitted, %d counted for users", calls, inWide, inTight, used)
	require.Equal(t, inWide+inTight, used)
	require.LessOrEqual(t, inTight, org)
	require.Less(t, used, int64(calls))
	require.Positive(t, inTight)
	require.Positive(t, inWide)
}

// TestAllCounts: what a denied call had taken of a key is given back, so that once quiet
// every key counts what was admitted.
func TestAllCounts(t *testing.T) {
	calls := redistest.Steps(2_000, 100_000)
	forms(t, func(t *testing.T, s backend.Store) {
		c := newCrowded(t, s, calls)
		inWide, inTight := c.run(t, calls)
		c.check(t, calls, inWide, inTight)
	})
}

const crowdProcesses = 8

// crowdProcess is TestAllCounts for processes. open makes a child's store of what start
// returns.
func crowdProcess(t *testing.T, open func(addrs []string) backend.Store, start func() (addrs []string)) {
	calls := redistest.Steps(2_000, 100_000)
	if _, ok := redistest.Child(); ok {
		c := newCrowded(t, open(strings.Split(os.Getenv("ALL_ADDRS"), ",")), calls)
		_, err := c.user.Peek(context.Background(), headgate.Call{Key: "any"}) // loads the script
		require.NoError(t, err)
		redistest.Ready()
		inWide, inTight := c.run(t, calls/crowdProcesses)
		redistest.Result("%d %d", inWide, inTight)
		return
	}
	addrs, inWide, inTight := start(), int64(0), int64(0)
	for _, line := range redistest.Processes(t, crowdProcesses, t.Name(), "ALL_ADDRS="+strings.Join(addrs, ",")) {
		var a, b int64
		_, err := fmt.Sscan(line, &a, &b)
		require.NoError(t, err, line)
		inWide, inTight = inWide+a, inTight+b
	}
	newCrowded(t, open(addrs), calls).check(t, calls, inWide, inTight)
}

func TestAllProcesses(t *testing.T) {
	crowdProcess(t, func(addrs []string) backend.Store {
		client := redis.NewClient(&redis.Options{Addr: addrs[0]})
		t.Cleanup(func() { _ = client.Close() })
		return standalone.New(client, &standalone.Options{Budget: 20 * time.Second})
	}, func() []string { return []string{redistest.Start(t).Addr()} })
}

func TestAllProcessesOnACluster(t *testing.T) {
	crowdProcess(t, func(addrs []string) backend.Store {
		s, err := cluster.Open(addrs, &cluster.Options{Budget: 20 * time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}, func() []string { return redistest.StartCluster(t).Addrs() })
}

// TestAllDeniedFromCache: a flood on a spent key stays in the process, whichever of the
// keys is spent. The other key's server gets at most one call per second of it, and the
// cancellation of that.
func TestAllDeniedFromCache(t *testing.T) {
	users, orgs := redistest.Start(t), redistest.Start(t)
	l := levels{user: limiter(t, unhurried(t, users), nil, hourly), org: limiter(t, unhurried(t, orgs), nil, hourly)}
	roomy, err := l.user.With(level("roomy", 1000))
	require.NoError(t, err)
	for _, spent := range []string{"u", "o"} {
		of, key, parts := l.user, "u-spent", []headgate.Part{l.user.Part("u-spent"), l.org.Part("o")}
		if spent == "o" {
			of, key, parts = l.org, "o-spent", []headgate.Part{roomy.Part("u"), l.org.Part("o-spent")}
		}
		_, err := of.AllowN(context.Background(), key, 10)
		require.NoError(t, err)
		d, err := headgate.All(context.Background(), parts...)
		require.NoError(t, err)
		require.Equal(t, headgate.FromStore, d.Source)
		l.quiet(t)
		users.ResetStats(t)
		orgs.ResetStats(t)
		var asked atomic.Int64
		var all sync.WaitGroup
		begin := time.Now()
		for end, caller := begin.Add(time.Second), 0; caller < 16; caller++ {
			all.Add(1)
			go func() {
				defer all.Done()
				for time.Now().Before(end) {
					d, err := headgate.All(context.Background(), parts...)
					if err != nil || d.Err != nil || d.Allowed || d.Key != key {
						t.Error(d, err)
						return
					}
					asked.Add(1)
				}
			}()
		}
		all.Wait()
		l.quiet(t)
		took := time.Since(begin)
		u, o := users.CommandStats(t)["evalsha"].Calls, orgs.CommandStats(t)["evalsha"].Calls
		t.Logf("%s spent: %d calls in %v, %d commands at the users' server, %d at the organisations'", spent, asked.Load(), took, u, o)
		require.Greater(t, asked.Load(), int64(500))
		// One per second, and calls that ask when a denial has just ended. A busy machine
		// and the race detector are slow to merge those.
		most := int64(redistest.Steps(8, 2)) * int64(1+took.Seconds())
		if spent == "u" {
			require.Zero(t, o)
			require.LessOrEqual(t, u, most)
		} else {
			require.LessOrEqual(t, o, most)
			require.LessOrEqual(t, u, 4*most) // each is given back, and some meet a denial that has come meanwhile
		}
	}
}
