package standalone_test

import (
	"testing"

	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/internal/client"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const password = "s3cret"

// TestURLAsAddress: an address with a scheme, a user or anything else that may hold a
// password is refused, and not quoted, wherever it is given.
func TestURLAsAddress(t *testing.T) {
	for _, addr := range []string{
		"redis://ops:s3cret@127.0.0.1:1", "rediss://:s3cret@127.0.0.1:1", "ops:s3cret@127.0.0.1:1", "s3cret@127.0.0.1",
		"redis://127.0.0.1:1?password=s3cret", "127.0.0.1:1?password=s3cret", "127.0.0.1:1,password=s3cret",
	} {
		c := redis.NewClient(&redis.Options{Addr: addr})
		defer c.Close()
		store := standalone.New(c, nil)
		var invalid *headgate.InvalidError
		require.ErrorAs(t, store.Check(nil), &invalid, addr)
		require.Equal(t, "address", invalid.What)
		require.Contains(t, faulttest.Secrets(t, store, password), "want host:port")

		server := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer server.Close()
		named := standalone.New(server, &standalone.Options{Name: addr})
		require.ErrorAs(t, named.Check(nil), &invalid, addr)
		require.Equal(t, "Options.Name", invalid.What)
		faulttest.Secrets(t, named, password)
	}
}

// TestAddressesOfAllKinds: what go-redis can dial is an address.
func TestAddressesOfAllKinds(t *testing.T) {
	for _, o := range []redis.Options{
		{}, {Addr: "redis.internal:6379"}, {Addr: "[::1]:6379"}, {Addr: "[fe80::1%eth0]:6379"}, {Addr: "my_redis-0:6379"},
		{Addr: "/run/redis/redis.sock"}, {Network: "unix", Addr: "@redis"}, {Addr: ":6379"}, {Addr: "bücher.example:6379"},
	} {
		require.NoError(t, client.CheckAddr(o.Network, o.Addr), "%s %s", o.Network, o.Addr)
	}
}

// TestNoPasswordInErrors: a server that can't serve, behind each kind of client, leaves
// no password in any text. Sentinel's addresses are not visible, so they are dialled.
func TestNoPasswordInErrors(t *testing.T) {
	dead, err := standalone.Open("redis://ops:s3cret@127.0.0.1:1", nil)
	require.NoError(t, err)
	defer dead.Close()
	require.Contains(t, faulttest.Secrets(t, dead, password), "map[127.0.0.1:1:open]")

	failover := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "primary", SentinelAddrs: []string{"redis://ops:s3cret@127.0.0.1:1"}, MaxRetries: -1, DialerRetries: 1,
	})
	defer failover.Close()
	require.Contains(t, faulttest.Secrets(t, standalone.New(failover, nil), password), "too many colons in address")

	wrong, err := standalone.Open("redis://ops:s3cret@"+redistest.Shared(t).Addr(), nil)
	require.NoError(t, err)
	defer wrong.Close()
	require.Contains(t, faulttest.Secrets(t, wrong, password), "WRONGPASS")
}

// TestServerThatQuotesThePassword: one without HELLO and AUTH quotes their arguments.
func TestServerThatQuotesThePassword(t *testing.T) {
	server := redistest.Start(t, "--rename-command", "AUTH", "", "--rename-command", "HELLO", "")
	for name, c := range map[string]*redis.Client{
		"user":    redis.NewClient(&redis.Options{Addr: server.Addr(), Password: password}),
		"no user": redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "ops", Password: password, Protocol: 2}),
	} {
		t.Run(name, func(t *testing.T) {
			defer c.Close()
			s := standalone.New(c, nil)
			require.Contains(t, faulttest.Secrets(t, s, password), "unknown command 'auth'")
			_, stored := s.Stored(t.Context(), "k")
			_, leases := s.Leases(t.Context(), "k")
			_, ping := s.Ping(t.Context())
			for _, err := range []error{stored, leases, ping} {
				require.ErrorIs(t, err, backend.ErrUnavailable)
				require.ErrorContains(t, err, server.Addr()+" has no command AUTH (see rename-command)")
			}
		})
	}
}
