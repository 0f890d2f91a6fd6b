package headgate_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/starved"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// clientsOf returns the stores of each kind of client, over servers of their own.
var clientsOf = []struct {
	name string
	open func(t *testing.T, args ...string) (s backend.Store, server *redistest.Server)
}{
	{"own client", func(t *testing.T, args ...string) (backend.Store, *redistest.Server) {
		server := redistest.Start(t, args...)
		return standalone.New(server.Client(t), nil), server
	}},
	{"Open", func(t *testing.T, args ...string) (backend.Store, *redistest.Server) {
		server := redistest.Start(t, args...)
		s, err := standalone.Open("redis://"+server.Addr(), nil)
		require.NoError(t, err)
		return s, server
	}},
	{"FailoverClient", func(t *testing.T, args ...string) (backend.Store, *redistest.Server) {
		server := redistest.Start(t, args...)
		c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{
			server.Sentinel(t, "main", "--sentinel", "down-after-milliseconds", "main", "60000").Addr()}})
		t.Cleanup(func() { _ = c.Close() })
		return standalone.New(c, &standalone.Options{Name: "main"}), server
	}},
	{"ClusterClient", func(t *testing.T, args ...string) (backend.Store, *redistest.Server) {
		server := redistest.Start(t, append(args, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1")...)
		admin := server.Client(t)
		require.NoError(t, admin.Do(t.Context(), "cluster", "addslotsrange", 0, 16383).Err())
		require.Eventually(t, func() bool { return admin.Set(t.Context(), "k", 1, time.Second).Err() == nil }, 10*time.Second, time.Millisecond)
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
		t.Cleanup(func() { _ = c.Close() })
		return cluster.New(c, nil), server
	}},
}

// waited are calls of an outage that waited, for at least nine tenths of the budget. On a host
// without a free processor each of them does.
type waited struct {
	calls, inARow int // of all callers; the most of one caller, one after the other
	longest       time.Duration
}

// outageOf calls for a while, and returns how long the calls waited.
func outageOf(t *testing.T, l *headgate.Limiter, callers int, lasts time.Duration) (w waited) {
	var mu sync.Mutex
	var running sync.WaitGroup
	end := time.Now().Add(lasts)
	for caller := range callers {
		running.Add(1)
		go func() {
			defer running.Done()
			row := 0
			for time.Now().Before(end) {
				begin := time.Now()
				if _, err := l.Allow(t.Context(), fmt.Sprint("k", caller)); err != nil {
					t.Error(err)
					return
				}
				took := time.Since(begin)
				if took < 9*standalone.DefaultBudget/10 || starved.Host() {
					row = 0
					time.Sleep(time.Millisecond) // no spin beside the others
				} else {
					row++
				}
				mu.Lock()
				if row > 0 {
					w.calls++
				}
				w.inARow, w.longest = max(w.inARow, row), max(w.longest, took)
				mu.Unlock()
			}
		}()
	}
	running.Wait()
	return w
}

// unfit is a server that can't run the script, as one whose Lua lacks struct.
const unfit = "unfit"

// outageOfClient begins an outage of a client's server.
func outageOfClient(t *testing.T, open func(*testing.T, ...string) (backend.Store, *redistest.Server), begins string, callers int) waited {
	var args []string
	if begins == unfit {
		args = []string{"--rename-command", "EVALSHA", ""}
	}
	store, server := open(t, args...)
	defer store.Close()
	l, err := headgate.New(store, []headgate.Policy{{
		Name: "p", Algorithm: algo.FixedWindow(algo.PerMinute(1 << 30)), OnFailure: headgate.FailClosed,
	}}, nil)
	require.NoError(t, err)
	for i := 0; i < 200 && !strings.HasSuffix(begins, "start") && begins != unfit; i++ {
		_, err := l.Allow(t.Context(), "k0")
		require.NoError(t, err)
	}
	switch {
	case begins == unfit:
	case strings.HasPrefix(begins, "refused"):
		server.Kill()
	default:
		server.Stop()
		defer server.Cont()
	}
	return outageOf(t, l, callers, time.Duration(redistest.Steps(700, 1500))*time.Millisecond)
}

// TestCallersOfAnOutage: whatever the client, no caller of a server that refuses, or that
// answers nothing, waits for more than three budgets in a row.
func TestCallersOfAnOutage(t *testing.T) {
	t.Log("| client | server | callers | calls that wait | longest in a row | longest |")
	for _, client := range clientsOf {
		for _, begins := range []string{"refused", "refused from the start", "frozen", "frozen from the start", unfit} {
			for _, callers := range []int{1, 64} {
				if !redistest.Long() && (callers > 1 || begins == "refused from the start") {
					continue
				}
				t.Run(fmt.Sprint(client.name, "/", begins, "/", callers), func(t *testing.T) {
					if !redistest.Long() {
						t.Parallel()
					}
					const most = 3
					var w waited
					for try := 0; try == 0 || w.inARow > most && try < 3; try++ { // a process that is late excuses the server
						w = outageOfClient(t, client.open, begins, callers)
					}
					t.Logf("| %s | %s | %d | %d | %d | %v |", client.name, begins, callers, w.calls, w.inARow, w.longest.Round(time.Millisecond))
					require.LessOrEqual(t, w.inARow, most)
				})
			}
		}
	}
}
