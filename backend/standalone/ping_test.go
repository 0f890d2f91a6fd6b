package standalone_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestPing(t *testing.T) {
	ctx := context.Background()
	server := redistest.Start(t)
	warnings, err := limiter(t, server.Client(t), unhurried, wide).Ping(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"the client lacks MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true: its own commands wait longer in an outage"}, warnings)
	client := server.Client(t, wanted)
	l := limiter(t, client, &standalone.Options{Budget: 2 * time.Second}, wide)
	warnings, err = l.Ping(ctx)
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Zero(t, client.DBSize(ctx).Val(), "the trial request leaves nothing")

	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "100mb").Err())
	require.NoError(t, client.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
	warnings, err = l.Ping(ctx)
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "allkeys-lru")
	require.NoError(t, client.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())

	proxy := redistest.NewProxy(t, server.Addr())
	slow := limiter(t, server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), &standalone.Options{Budget: time.Millisecond}, wide)
	_, _ = slow.Ping(ctx) // a budget of a millisecond may fail, it must not hang

	version := regexp.MustCompile(`redis_version:\d`)
	proxy.Rewrite(func(b []byte) []byte { return version.ReplaceAll(b, []byte("redis_version:6")) })
	old := limiter(t, server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), nil, wide)
	_, err = old.Ping(ctx)
	require.ErrorIs(t, err, backend.ErrServerTooOld)
	require.ErrorContains(t, err, "6.")
	require.ErrorContains(t, err, standalone.MinRedisVersion)

	proxy.Rewrite(func(b []byte) []byte {
		return bytes.Replace(b, []byte("cluster_enabled:0"), []byte("cluster_enabled:1"), 1)
	})
	_, err = old.Ping(ctx)
	require.ErrorContains(t, err, "Cluster")

	proxy.Rewrite(func(b []byte) []byte { return bytes.Replace(b, []byte("role:master"), []byte("role:slave "), 1) })
	_, err = old.Ping(ctx)
	require.ErrorIs(t, err, headgate.ErrUnavailable)

	server.Kill()
	_, err = l.Ping(ctx)
	require.ErrorIs(t, err, headgate.ErrUnavailable)
}

// wanted are the options that a limiter wants of a client.
func wanted(o *redis.Options) {
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
}

// TestPingNamesMissingRights: each right that is missing is named, also where
// the script is cached.
func TestPingNamesMissingRights(t *testing.T) {
	ctx := context.Background()
	server := redistest.Start(t)
	admin := server.Client(t)
	grant(t, admin, documentedRights(t))
	user := func(o *redis.Options) { o.Username, o.Password = "headgate", "secret" }
	l := limiter(t, server.Client(t, user), unhurried, wide)
	_, err := l.Allow(ctx, "k") // caches the script
	require.NoError(t, err)
	named := func(rights ...string) {
		t.Helper()
		_, err := l.Ping(ctx)
		var missing *backend.RightError
		require.ErrorAs(t, err, &missing)
		require.Equal(t, server.Addr(), missing.Node)
		require.Equal(t, rights, missing.Rights)
	}
	for _, command := range commands(documentedRights(t)) {
		require.NoError(t, admin.Do(ctx, "acl", "setuser", "headgate", "-"+command).Err())
		named("+" + command)
		require.NoError(t, admin.Do(ctx, "acl", "setuser", "headgate", "+"+command).Err())
	}
	require.NoError(t, admin.Do(ctx, "acl", "setuser", "headgate", "-hset", "-zadd").Err())
	named("+hset", "+zadd")
	require.NoError(t, admin.Do(ctx, "acl", "setuser", "headgate", "+hset", "+zadd", "resetkeys", "~other:*").Err())
	named("~headgate:*")
}

// TestPingEndsWithItsContext, whatever the client's own timeouts.
func TestPingEndsWithItsContext(t *testing.T) {
	server := redistest.Start(t)
	server.Stop()
	t.Cleanup(server.Cont)
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := limiter(t, redis.NewClient(&redis.Options{Addr: server.Addr()}), nil, wide).Ping(ctx)
	require.ErrorIs(t, err, headgate.ErrUnavailable)
	require.Less(t, time.Since(begin), 2*time.Second, "go-redis would wait for five")
}

// TestOpenDoesNoIO: nobody is dialled before the first call.
func TestOpenDoesNoIO(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	s, err := standalone.Open("redis://"+l.Addr().String(), nil)
	require.NoError(t, err)
	require.NoError(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = l.Accept()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, s.Close())
}

// TestNewDoesNoIO: a service boots while Redis is down.
func TestNewDoesNoIO(t *testing.T) {
	s, err := standalone.Open("redis://127.0.0.1:1", nil)
	require.NoError(t, err)
	l, err := headgate.New(s, []headgate.Policy{wide}, nil)
	require.NoError(t, err)
	d, err := l.Allow(context.Background(), "k")
	require.NoError(t, err)
	require.ErrorIs(t, d.Err, headgate.ErrUnavailable)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, err = l.Allow(context.Background(), "k")
	require.ErrorIs(t, err, headgate.ErrClosed)
	_, err = l.Ping(context.Background())
	require.ErrorIs(t, err, headgate.ErrClosed)
}

func TestOpen(t *testing.T) {
	server := redistest.Start(t)
	s, err := standalone.Open("redis://"+server.Addr()+"/0", &standalone.Options{Budget: 2 * time.Second})
	require.NoError(t, err)
	defer s.Close()
	l, err := headgate.New(s, []headgate.Policy{wide}, nil)
	require.NoError(t, err)
	d, err := l.Allow(context.Background(), "k")
	require.NoError(t, err)
	require.NoError(t, d.Err)
	_, err = standalone.Open("http://nowhere", nil)
	require.ErrorContains(t, err, "want redis://host:port")
	for _, url := range []string{"redis://:secret%zz@localhost", "redis://:secret/@localhost"} {
		_, err = standalone.Open(url, nil)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestNewRefuses(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	var none *redis.Client
	for what, s := range map[string]*standalone.Store{
		"client": standalone.New(none, nil),
		"budget": standalone.New(client, &standalone.Options{Budget: time.Hour}),
		"prefix": standalone.New(client, &standalone.Options{Prefix: "a{b}"}),
	} {
		_, err := headgate.New(s, []headgate.Policy{wide}, nil)
		var invalid *headgate.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, what, invalid.What)
		_, err = layer.Ask(context.Background(), s, backend.Request{Op: backend.Take, Group: backend.Group{Key: "k", Policies: []backend.Policy{wide}, Cost: 1}})
		require.ErrorAs(t, err, &invalid)
	}
	_, err := headgate.New(standalone.New(nil, nil), []headgate.Policy{wide}, nil)
	require.Error(t, err)
}

func TestPrefixesCountApart(t *testing.T) {
	server := redistest.Start(t)
	a := limiter(t, server.Client(t), &standalone.Options{Prefix: "a:", Budget: 10 * time.Second}, wide)
	b := limiter(t, server.Client(t), &standalone.Options{Prefix: "b:", Budget: 10 * time.Second}, wide)
	_, err := a.AllowN(context.Background(), "k", 7)
	require.NoError(t, err)
	require.Zero(t, peek(t, b, "k"))
	require.EqualValues(t, 7, peek(t, a, "k"))
}
