package standalone_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// slotted returns a server that has all slots of a cluster, behind an address that hides the
// cluster, as a managed service's proxy does: a script over two slots is refused.
func slotted(t *testing.T) (proxy *redistest.Proxy, server *redistest.Server) {
	server = redistest.Start(t, "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
	c := server.Client(t)
	require.NoError(t, c.Do(t.Context(), "cluster", "addslotsrange", 0, 16383).Err())
	require.Eventually(t, func() bool { return c.Set(t.Context(), "k", 1, time.Second).Err() == nil }, 10*time.Second, time.Millisecond)
	proxy = redistest.NewProxy(t, server.Addr())
	proxy.Rewrite(func(b []byte) []byte {
		return []byte(strings.Replace(string(b), "cluster_enabled:1", "cluster_enabled:0", 1))
	})
	return proxy, server
}

// TestOneAddressOfManySlots: a server that refuses two slots in one script decides every call,
// of one key and of several, and its circuit stays closed.
func TestOneAddressOfManySlots(t *testing.T) {
	proxy, server := slotted(t)
	addr := proxy.Addr()
	t.Run("at once", func(t *testing.T) { firstOfManySlots(t, proxy) })
	t.Run("calls", func(t *testing.T) { callsOfManySlots(t, addr, server) })
	t.Run("reservations", func(t *testing.T) { reservedOfManySlots(t, addr) })
	t.Run("learnt anew", func(t *testing.T) { slotsAreLearntAnew(t, addr, server) })
}

func callsOfManySlots(t *testing.T, addr string, server *redistest.Server) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	l := limiter(t, client, &standalone.Options{Budget: 2 * time.Second}, wide)
	var decided, undecided atomic.Int64
	note := func(d headgate.Decision, err error) {
		if err == nil && d.Source == headgate.FromStore {
			decided.Add(1)
		} else if undecided.Add(1) == 1 {
			t.Log(d.Err, err)
		}
	}
	var wg sync.WaitGroup
	for caller := range 64 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 20 {
				note(l.Allow(t.Context(), fmt.Sprint("k", caller, i)))
				note(headgate.All(t.Context(), l.Part(fmt.Sprint("u", caller, i)), l.Part(fmt.Sprint("o", i))))
			}
		}()
	}
	wg.Wait()
	require.Zero(t, undecided.Load())
	require.EqualValues(t, 64*20*2, decided.Load())
	require.Equal(t, map[string]string{addr: "closed"}, l.Stats().Circuits)
	require.EqualValues(t, 64, peek(t, l, "o7"), "each counted once")

	warnings, err := l.Ping(t.Context())
	require.NoError(t, err)
	require.Contains(t, strings.Join(warnings, "\n"), "two slots")
	require.NotContains(t, strings.Join(keysOf(t, server.Client(t)), " "), "headgate-ping")
}

func keysOf(t *testing.T, c *redis.Client) []string {
	keys, err := c.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	return keys
}

// firstOfManySlots: the first calls of several keys are refused together, each in a round trip
// of its own. They are decided within their budget, and open no circuit.
func firstOfManySlots(t *testing.T, proxy *redistest.Proxy) {
	const budget, trip = 300 * time.Millisecond, 200 * time.Millisecond
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	store := standalone.New(client, &standalone.Options{Budget: unhurried.Budget, DisableBatching: true})
	l, err := headgate.New(store, []headgate.Policy{wide}, nil)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			d, err := headgate.All(t.Context(), l.Part(fmt.Sprint("a", i)), l.Part(fmt.Sprint("b", i)))
			if err != nil || d.Source != headgate.FromStore {
				t.Error(err, d.Err)
			}
		}()
	}
	wg.Wait()
	require.Equal(t, map[string]string{proxy.Addr(): "closed"}, l.Stats().Circuits)

	proxy.Set(redistest.Delay(trip))
	defer proxy.Set(redistest.Pass)
	l, err = headgate.New(standalone.New(client, &standalone.Options{Budget: budget}), []headgate.Policy{wide}, nil)
	require.NoError(t, err)
	late, begin := redistest.Lateness(t, budget), time.Now()
	d, err := headgate.All(t.Context(), l.Part("a"), l.Part("b"))
	require.NoError(t, err)
	require.Equal(t, headgate.FromFailClosed, d.Source, "a second round trip takes longer than what is left")
	require.Less(t, time.Since(begin), budget+90*time.Millisecond+late.Max())
}

// reservedOfManySlots: several keys are reserved and settled too.
func reservedOfManySlots(t *testing.T, addr string) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	l := limiter(t, client, unhurried, wide)
	for i := range 3 { // the first one learns
		rs, d, err := headgate.ReserveAll(t.Context(), l.Part("a", 5), l.Part("b", 5))
		require.NoError(t, err)
		require.Equal(t, headgate.FromStore, d.Source, d.Err)
		require.NoError(t, rs.Commit(t.Context(), []int64{1}, []int64{2}))
		require.EqualValues(t, 1+i, peek(t, l, "a"))
		require.EqualValues(t, 2*(1+i), peek(t, l, "b"))
	}
}

// slotsAreLearntAnew: the address leads to a server that takes several slots, and calls of
// several keys are decided at once again.
func slotsAreLearntAnew(t *testing.T, addr string, server *redistest.Server) {
	plain := redistest.Start(t)
	var to atomic.Pointer[string]
	to.Store(&addr)
	client := redis.NewClient(&redis.Options{Addr: "one-name:6379", Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, *to.Load())
	}})
	t.Cleanup(func() { _ = client.Close() })
	s := standalone.New(client, unhurried)
	l, err := headgate.New(s, []headgate.Policy{wide}, nil)
	require.NoError(t, err)
	both := func() {
		d, err := headgate.All(t.Context(), l.Part("a"), l.Part("b"))
		require.NoError(t, err)
		require.Equal(t, headgate.FromStore, d.Source, d.Err)
	}
	both()
	require.Equal(t, 1, s.Capabilities().Keys)
	killed := server.Client(t)
	elsewhere := plain.Addr()
	to.Store(&elsewhere)
	require.NoError(t, killed.ClientKillByFilter(t.Context(), "SKIPME", "yes").Err())
	require.Eventually(t, func() bool { // a connection may be killed under a call
		_, _ = headgate.All(t.Context(), l.Part("a"), l.Part("b"))
		return s.Capabilities().Keys == backend.MaxKeys
	}, 5*time.Second, 10*time.Millisecond)
	both()
	require.Equal(t, backend.MaxKeys, s.Capabilities().Keys)
}
