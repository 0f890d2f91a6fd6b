package standalone_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
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

// What the children of TestStarvedFleet are.
const (
	starvedAddrs  = "HEADGATE_STARVED_ADDRS"
	starvedRow    = "HEADGATE_STARVED_ROW"
	starvedHalves = "HEADGATE_STARVED_HALVES"
)

// starved is a fleet.
type starved struct {
	name           string
	procs, callers int
	keys           int
	open           func(t *testing.T, addrs []string) decides
	work           time.Duration // processor time per call, as a handler has
	rate           float64       // calls per second of each caller, 0 for closed loops
	idle           time.Duration // before all processes call at one instant
}

// decides makes a call, and reports whether a server decided it.
type decides func(key string) bool

const (
	handler  = 200 * time.Microsecond
	silence  = 12 * time.Second // the connections are tried again after it
	manyKeys = 100_000
)

// starvedRows are the fleets of TestStarvedFleet. The first one is that of the short test.
// go-redis alone shows what the host carries.
var starvedRows = []starved{
	{"short", 24, 2, 1, opened(nil), handler, 0, 0},
	{"go-redis alone", 64, 2, 1, alone, 0, 0, silence},
	{"closed loops", 64, 2, 1, opened(nil), 0, 0, silence},
	{"closed loops, keys", 64, 2, manyKeys, opened(nil), 0, 0, silence},
	{"closed loops, no silence", 64, 2, 1, opened(nil), 0, 0, 0},
	{"closed loops, few processes", 16, 16, manyKeys, opened(nil), 0, 0, silence},
	{"go-redis alone, handlers", 64, 2, 1, alone, handler, 0, silence},
	{"handlers", 64, 2, 1, opened(nil), handler, 0, silence},
	{"handlers, keys", 64, 2, manyKeys, opened(nil), handler, 0, silence},
	{"handlers, no silence", 64, 2, 1, opened(nil), handler, 0, 0},
	{"handlers, few processes", 16, 16, manyKeys, opened(nil), handler, 0, silence},
	{"half of the load", 64, 2, 1, opened(nil), 0, 60, silence},
	{"a user's client", 64, 2, 1, ofClient, handler, 0, silence},
	{"unbatched", 64, 2, 1, opened(&standalone.Options{DisableBatching: true}), handler, 0, silence},
	{"go-redis alone, within the budget, cluster", 64, 2, manyKeys, aloneOnCluster, handler, 0, silence},
	{"cluster", 64, 2, manyKeys, openedCluster, handler, 0, silence},
	{"a user's cluster client", 64, 2, manyKeys, ofCluster, handler, 0, silence},
	{"borrowing", 64, 2, manyKeys, borrowing, handler, 0, silence},
}

// overloads are those of overloaded.
var overloads = []starved{
	{"few callers", 64, 2, manyKeys, opened(nil), 0, 0, 0},
	{"many callers", 64, 31, manyKeys, opened(nil), 0, 0, 0},
}

// limited returns what calls a limiter of the store.
func limited(t *testing.T, s backend.Store, term time.Duration) decides {
	l, err := faulttest.Limiter(t, s, faulttest.Huge).WithBorrow(term)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return func(key string) bool {
		d, _ := l.Allow(context.Background(), key)
		return d.Source == headgate.FromStore || d.Source == headgate.FromLoan
	}
}

func opened(o *standalone.Options) func(*testing.T, []string) decides {
	return func(t *testing.T, addrs []string) decides {
		s, err := standalone.Open("redis://"+addrs[0], o)
		require.NoError(t, err)
		return limited(t, s, 0)
	}
}

func ofClient(t *testing.T, addrs []string) decides {
	return limited(t, standalone.New(redis.NewClient(&redis.Options{Addr: addrs[0]}), nil), 0)
}

func openedCluster(t *testing.T, addrs []string) decides {
	s, err := cluster.Open(addrs, nil)
	require.NoError(t, err)
	return limited(t, s, 0)
}

func ofCluster(t *testing.T, addrs []string) decides {
	return limited(t, cluster.New(redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs}), nil), 0)
}

func borrowing(t *testing.T, addrs []string) decides {
	s, err := standalone.Open("redis://"+addrs[0], nil)
	require.NoError(t, err)
	return limited(t, s, 50*time.Millisecond)
}

// alone is a counter of a script, without a limiter.
func alone(t *testing.T, addrs []string) decides {
	return counted(t, redis.NewClient(&redis.Options{Addr: addrs[0]}), time.Minute)
}

func aloneOnCluster(t *testing.T, addrs []string) decides {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
	return counted(t, c, standalone.DefaultBudget)
}

// counted is a counter by a client, each call within a time.
func counted(t *testing.T, c redis.UniversalClient, within time.Duration) decides {
	count := redis.NewScript(`return redis.call("INCR", KEYS[1])`)
	t.Cleanup(func() { _ = c.Close() })
	return func(key string) bool {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		return count.Run(ctx, c, []string{key}).Err() == nil
	}
}

// TestStarvedFleet: many processes call at one instant, on few processors, beside a healthy
// server. What refuses a call, or passes it without a decision, takes no processor from what
// shows that the server is well. So the fleet decides nearly all from its second second on.
func TestStarvedFleet(t *testing.T) {
	rows, halves := starvedRows[:1], 6
	if redistest.Long() {
		rows, halves = starvedRows[1:], 16
	}
	if _, ok := redistest.Child(); ok {
		starvedProcess(t)
		return
	}
	redistest.Plain(t)
	for i := range rows {
		row := rows[i]
		t.Run(row.name, func(t *testing.T) {
			decided, lost := starvedFleet(t, row, halves)
			if !redistest.Long() { // other tests run beside it, for some of the time
				good := 0
				for h := 2; h < halves; h++ {
					if lost[h]*20 <= decided[h] {
						good++
					}
				}
				require.GreaterOrEqual(t, 2*good, halves-2, "half seconds in which nearly all was decided")
				return
			}
			all, late := 0, 0
			for h := 2; h < halves; h++ {
				all, late = all+decided[h]+lost[h], late+lost[h]
			}
			t.Logf("%d of %d not decided", late, all)
			if !strings.HasPrefix(row.name, "go-redis") {
				require.LessOrEqual(t, late*1000, all)
			}
		})
	}
	if redistest.Long() {
		t.Run("overload", overloaded)
	}
}

// overloaded has so many callers that the wait for their answers alone exceeds the budget. Nearly
// as much is decided as of few callers, and a call without a decision is no answer at once.
func overloaded(t *testing.T) {
	const halves = 60
	fleet := func(row starved) (decided, lost int) {
		ds, ls := starvedFleet(t, row, halves)
		for h := 2; h < halves; h++ {
			decided, lost = decided+ds[h], lost+ls[h]
		}
		return decided / (halves - 2), lost / (halves - 2)
	}
	few, _ := fleet(overloads[0])
	many, lost := fleet(overloads[1])
	t.Logf("per half second: %d of few callers, %d of many, %d not decided", few, many, lost)
	require.GreaterOrEqual(t, 10*many, 8*few)
	row, halfBudgets := overloads[1], int(time.Second/2/(50*time.Millisecond))
	require.Less(t, lost, row.procs*row.callers*halfBudgets, "a call without a decision waits for half of its budget at least")
}

// starvedFleet returns how many calls of a fleet were decided and how many were not, per half
// second.
func starvedFleet(t *testing.T, row starved, halves int) (decided, lost []int) {
	decided, lost = make([]int, halves), make([]int, halves)
	addrs := starvedServers(t, row)
	for _, lines := range redistest.Processes(t, row.procs, "TestStarvedFleet", starvedAddrs+"="+strings.Join(addrs, ","), starvedRow+"="+row.name, fmt.Sprint(starvedHalves, "=", halves)) {
		for line := range strings.Lines(lines) {
			var h, d, l int
			_, err := fmt.Sscan(line, &h, &d, &l)
			require.NoError(t, err, line)
			decided[h], lost[h] = decided[h]+d, lost[h]+l
		}
	}
	t.Logf("per half second: decided %v, not %v", decided, lost)
	return decided, lost
}

// starvedServers starts what a fleet calls. The nodes of a cluster have Redis' own node timeout:
// within a shorter one they hear nothing of each other on such a host, and refuse calls.
func starvedServers(t *testing.T, row starved) []string {
	if strings.Contains(row.name, "cluster") {
		return redistest.StartCluster(t, "--cluster-node-timeout", "15000").Addrs()
	}
	return []string{redistest.Start(t).Addr()}
}

// starvedProcess is a child of TestStarvedFleet.
func starvedProcess(t *testing.T) {
	all := slices.Concat(starvedRows, overloads)
	row := all[slices.IndexFunc(all, func(r starved) bool { return r.name == os.Getenv(starvedRow) })]
	halves, err := strconv.Atoi(os.Getenv(starvedHalves))
	require.NoError(t, err)
	call := row.open(t, strings.Split(os.Getenv(starvedAddrs), ","))
	require.Eventually(t, func() bool { return call("warm") }, 10*time.Second, time.Millisecond) // all begin at once
	redistest.Ready()
	time.Sleep(row.idle)
	decided, lost, begin := make([]atomic.Int64, halves), make([]atomic.Int64, halves), time.Now()
	faulttest.Go(row.callers, func(int) {
		for next := begin; ; {
			if row.rate > 0 {
				next = next.Add(time.Duration(rand.ExpFloat64() / row.rate * float64(time.Second)))
				time.Sleep(time.Until(next))
			}
			h := int(time.Since(begin) / (time.Second / 2))
			if h >= halves {
				return
			}
			if call(strconv.Itoa(rand.IntN(row.keys))) {
				decided[h].Add(1)
			} else {
				lost[h].Add(1)
			}
			for at := time.Now(); time.Since(at) < row.work; {
			}
		}
	})()
	for h := range halves {
		redistest.Result("%d %d %d", h, decided[h].Load(), lost[h].Load())
	}
}
