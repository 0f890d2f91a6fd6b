package grpclimit_test

import (
	"context"
	"net"
	"testing"

	"github.com/headgate-go/headgate/middleware/grpclimit"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

type named string

func (n named) Network() string { return "tcp" }
func (n named) String() string  { return string(n) }

func TestPeerAddress(t *testing.T) {
	tcp := func(ip, zone string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 4242, Zone: zone} }
	for _, c := range []struct {
		addr net.Addr
		want string
	}{
		{tcp("192.0.2.7", ""), "ip:192.0.2.7"},
		{tcp("::ffff:192.0.2.7", ""), "ip:192.0.2.7"},
		{named("[::ffff:192.0.2.7]:1"), "ip:192.0.2.7"},
		{tcp("::ffff:192.0.2.8", ""), "ip:192.0.2.8"},
		{tcp("64:ff9b::192.0.2.7", ""), "ip:192.0.2.7"},
		{tcp("64:ff9b::192.0.2.8", "eth0"), "ip:192.0.2.8"},
		{named("[64:ff9b::c000:209]:1"), "ip:192.0.2.9"},
		{tcp("64:ff9b:1::192.0.2.7", ""), "ip:64:ff9b:1::/64"},
		{tcp("::192.0.2.7", ""), "ip:::/64"},
		{tcp("2001:db8:1:2:3:4:5:6", ""), "ip:2001:db8:1:2::/64"},
		{tcp("2001:db8:1:2::9", ""), "ip:2001:db8:1:2::/64"},
		{tcp("2001:db8:1:3::9", ""), "ip:2001:db8:1:3::/64"},
		{tcp("fe80::1", "eth0"), "ip:fe80::/64"},
		{named("[fe80::2%eth1]:9"), "ip:fe80::/64"},
		{named("192.0.2.7:80"), "ip:192.0.2.7"},
		{named("192.0.2.7"), ""},
		{named("bufconn"), ""},
		{named(""), ""},
		{&net.UnixAddr{Name: "/run/s.sock", Net: "unix"}, ""},
		{&net.TCPAddr{}, ""},
		{(*net.TCPAddr)(nil), ""},
		{nil, ""},
	} {
		key, err := grpclimit.PeerAddress().Of(peer.NewContext(context.Background(), &peer.Peer{Addr: c.addr}), grpclimit.RPC{})
		require.NoError(t, err)
		require.Equal(t, c.want, key, "%v", c.addr)
	}
	key, err := grpclimit.PeerAddress().Of(context.Background(), grpclimit.RPC{})
	require.NoError(t, err)
	require.Empty(t, key, "on a client")
}

func TestMetadata(t *testing.T) {
	in := func(kv ...string) context.Context {
		return metadata.NewIncomingContext(context.Background(), metadata.Pairs(kv...))
	}
	key := grpclimit.Metadata("X-API-Key")
	of := func(ctx context.Context, rpc grpclimit.RPC) string {
		got, err := key.Of(ctx, rpc)
		require.NoError(t, err)
		return got
	}
	one := of(in("x-api-key", "secret"), grpclimit.RPC{})
	require.Equal(t, "metadata:x-api-key:2bb80d537b1da3e38bd30361aa855686", one)
	require.NotEqual(t, one, of(in("x-api-key", "secret2"), grpclimit.RPC{}))
	require.Empty(t, of(in("other", "secret"), grpclimit.RPC{}))
	require.Empty(t, of(in("x-api-key", ""), grpclimit.RPC{}))
	require.Empty(t, of(context.Background(), grpclimit.RPC{}))
	out := metadata.AppendToOutgoingContext(context.Background(), "x-api-key", "secret")
	require.Equal(t, one, of(out, grpclimit.RPC{Target: "dns:///host"}))
	require.Empty(t, of(out, grpclimit.RPC{}), "a server reads what came in")
	_, err := key.Of(in("x-api-key", "secret", "x-api-key", "x"), grpclimit.RPC{})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}
