package cluster_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const password = "s3cret"

// TestURLAsAddress: an address with a scheme, a user or anything else that may hold a
// password is refused by Open and by New, and not quoted.
func TestURLAsAddress(t *testing.T) {
	for _, addr := range []string{
		"redis://ops:s3cret@127.0.0.1:1", "rediss://:s3cret@127.0.0.1:1", "ops:s3cret@127.0.0.1:1", "s3cret@127.0.0.1",
		"redis://127.0.0.1:1?password=s3cret", "127.0.0.1:1,password=s3cret",
	} {
		addrs := []string{"127.0.0.1:1", addr}
		_, err := cluster.Open(addrs, nil)
		var invalid *headgate.InvalidError
		require.ErrorAs(t, err, &invalid, addr)
		require.Equal(t, "address", invalid.What)
		require.ErrorContains(t, err, "want host:port")
		require.NotContains(t, err.Error(), password)

		store := cluster.New(options{&redis.ClusterOptions{Addrs: addrs}}, nil)
		require.ErrorAs(t, store.Check(nil), &invalid, addr)
		faulttest.Secrets(t, store, password)
	}
}

// options is a client of these options.
type options struct{ *redis.ClusterOptions }

func (o options) Options() *redis.ClusterOptions { return o.ClusterOptions }

// TestNoPasswordInErrors: a cluster that can't serve leaves no password in any text,
// also where the user's own functions name it.
func TestNoPasswordInErrors(t *testing.T) {
	slots := func(addr string, err error) func(context.Context) ([]redis.ClusterSlot, error) {
		return func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: addr, ID: "a"}}}}, err
		}
	}
	const url = "redis://ops:s3cret@127.0.0.1:1"
	for name, c := range map[string]struct {
		redis.ClusterOptions
		want string
	}{
		"dead":                  {redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, Password: password}, "connection refused"},
		"dead owner":            {redis.ClusterOptions{ClusterSlots: slots("127.0.0.1:1", nil), Password: password}, "map[127.0.0.1:1:open]"},
		"wrong password":        {redis.ClusterOptions{Addrs: redistest.SharedCluster(t).Addrs(), Username: "ops", Password: password}, "WRONGPASS"},
		"owner's URL":           {redis.ClusterOptions{ClusterSlots: slots(url, nil)}, "want host:port"},
		"error of ClusterSlots": {redis.ClusterOptions{ClusterSlots: slots("", errors.New("no answer of "+url))}, "no answer of"},
		"NewClient's address": {redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, NewClient: func(o *redis.Options) *redis.Client {
			o.Addr = url
			return redis.NewClient(o)
		}}, "too many colons"},
	} {
		t.Run(name, func(t *testing.T) {
			store := cluster.New(options{&c.ClusterOptions}, nil)
			defer store.Close()
			require.Contains(t, faulttest.Secrets(t, store, password), c.want)
		})
	}
}

// TestCredentials: Open takes user, password and TLS from its options. New refuses them,
// since it takes those of its client.
func TestCredentials(t *testing.T) {
	c := redistest.SharedCluster(t)
	for _, s := range c.Nodes() {
		require.NoError(t, s.Client(t).Do(t.Context(), "acl", "setuser", "ops", "on", ">"+password, "~*", "+@all").Err())
		t.Cleanup(func() { s.Client(t).Do(context.Background(), "acl", "deluser", "ops") })
	}
	allow := func(addrs []string, opts *cluster.Options) (headgate.Decision, error) {
		opts.Budget = faulttest.Budget
		store, err := cluster.Open(addrs, opts)
		require.NoError(t, err)
		t.Cleanup(func() { _ = store.Close() })
		l, err := headgate.New(store, []headgate.Policy{{Name: "p", Algorithm: algo.FixedWindow(algo.PerDay(9)), OnFailure: headgate.FailClosed}}, nil)
		require.NoError(t, err)
		return l.Allow(t.Context(), "credentials")
	}
	d, err := allow(c.Addrs(), &cluster.Options{Username: "ops", Password: password})
	require.NoError(t, err)
	require.Equal(t, headgate.FromStore, d.Source, d.Err)
	d, err = allow(c.Addrs(), &cluster.Options{Username: "ops", Password: "wrong"})
	require.NoError(t, err)
	require.ErrorContains(t, d.Err, "WRONGPASS")

	var asked atomic.Value
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		asked.Store(hello.ServerName)
		return nil, errors.New("no certificate")
	}})
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		for c, err := ln.Accept(); err == nil; c, err = ln.Accept() {
			_ = c.(*tls.Conn).Handshake()
			_ = c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	d, err = allow([]string{"localhost:" + port}, &cluster.Options{TLSConfig: &tls.Config{}})
	require.NoError(t, err)
	require.ErrorContains(t, d.Err, "tls")
	require.Equal(t, "localhost", asked.Load(), "a node is verified by its own host")

	for _, o := range []cluster.Options{{Username: "ops"}, {Password: password}, {TLSConfig: &tls.Config{}}} {
		err := cluster.New(options{&redis.ClusterOptions{Addrs: c.Addrs()}}, &o).Check(nil)
		var invalid *headgate.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "options", invalid.What)
		require.NotContains(t, err.Error(), password)
	}
}
