package standalone_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
)

const callers = faulttest.Callers

var wide, huge = faulttest.Wide, faulttest.Huge

func limiter(t testing.TB, c standalone.Client, o *standalone.Options, policies ...headgate.Policy) *headgate.Limiter {
	t.Helper()
	return faulttest.Limiter(t, standalone.New(c, o), policies...)
}

func peek(t testing.TB, l *headgate.Limiter, key string) int64 { return faulttest.Used(t, l, key) }

// TestAtMostOnce uses a client whose settings are go-redis' own.
func TestAtMostOnce(t *testing.T) { atMostOnce(t, nil) }

func TestAtMostOnceAlone(t *testing.T) { atMostOnce(t, &standalone.Options{DisableBatching: true}) }

func atMostOnce(t *testing.T, o *standalone.Options) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	var ls []*headgate.Limiter
	for range 8 {
		client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		ls = append(ls, limiter(t, client, o, wide))
	}
	faulttest.AtMostOnce(t, ls, limiter(t, server.Client(t), patient, wide), proxy, standalone.DefaultBudget)
	server.NoImmortals(t)
}

// TestLostLeases loses replies of reservations and of what follows them.
func TestLostLeases(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	through, direct := standalone.New(client, nil), standalone.New(server.Client(t), patient)
	faulttest.LostLeases(t, through, direct, proxy, standalone.DefaultBudget)
	t.Run("stopped", func(t *testing.T) {
		faulttest.LostReservations(t, through, direct, func() func() { return faulttest.StopBriefly(server) })
	})
	server.NoImmortals(t)
}

// store opens a store on the server: in a child, which has none, on its parent's.
func store(server *redistest.Server, o *standalone.Options) backend.Store {
	addr := os.Getenv("ADDR")
	if server != nil {
		addr = server.Addr()
	}
	return standalone.New(redis.NewClient(&redis.Options{Addr: addr}), o)
}

func TestRaces(t *testing.T) {
	redistest.Plain(t)
	races(t, patient)
}

func TestRacesAlone(t *testing.T) {
	redistest.Plain(t)
	races(t, patientAlone)
}

func races(t *testing.T, o *standalone.Options) {
	var server *redistest.Server
	faulttest.Races(t, func() backend.Store { return store(server, o) }, func() string {
		server = redistest.Start(t)
		return "ADDR=" + server.Addr()
	})
	if server != nil {
		server.NoImmortals(t)
	}
}

// TestSlots in short form has 64 processes for three seconds.
func TestSlots(t *testing.T) {
	redistest.Plain(t)
	var server *redistest.Server
	processes := redistest.Steps(16, 64)
	faulttest.Slots(t, processes, processes*5/16, func() backend.Store { return store(server, patient) }, func() string {
		server = redistest.Start(t)
		return "ADDR=" + server.Addr()
	})
}

func TestScriptFlush(t *testing.T) {
	redistest.Plain(t)
	scriptFlush(t, patient)
}

func TestScriptFlushAlone(t *testing.T) {
	redistest.Plain(t)
	scriptFlush(t, patientAlone)
}

func scriptFlush(t *testing.T, o *standalone.Options) {
	var server *redistest.Server
	faulttest.Flush(t, func() backend.Store { return store(server, o) }, func() faulttest.Servers {
		server = redistest.Start(t)
		c := server.Client(t)
		return faulttest.Servers{
			Env: "ADDR=" + server.Addr(), Nodes: 1,
			Flush: func() error { return c.ScriptFlush(t.Context()).Err() },
			Stats: func() map[string]redistest.Stat { return server.CommandStats(t) },
		}
	})
}

func TestBatches(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	(&faulttest.Batches{
		Through: func(ps ...headgate.Policy) *headgate.Limiter {
			return limiter(t, server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), &standalone.Options{Budget: faulttest.Budget}, ps...)
		},
		Direct:  func(ps ...headgate.Policy) *headgate.Limiter { return limiter(t, server.Client(t), patient, ps...) },
		Network: proxy,
		Name:    func(i int) string { return fmt.Sprint("key", i) },
	}).Run(t)
}
