package grpclimit_test

import (
	"bytes"
	"context"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/middleware/grpclimit"
	"github.com/headgate-go/headgate/middleware/httplimit"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// TestAllow: a limit inside of a handler refuses as a Server does.
func TestAllow(t *testing.T) {
	l := limiter(t, nil, rule("attempts", algo.SlidingLog(algo.PerHour(1))))
	require.NoError(t, grpclimit.Allow(t.Context()))
	require.NoError(t, grpclimit.Allow(t.Context(), l.Part("ann")))
	err := grpclimit.Allow(t.Context(), l.Part("bob"), l.Part("ann"))
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	retry, quota := details(t, err)
	require.InDelta(t, time.Hour, retry.RetryDelay.AsDuration(), float64(time.Minute))
	require.Equal(t, "attempts", quota.Violations[0].Subject)
	require.NoError(t, grpclimit.Allow(t.Context(), l.Part("bob")), "it was not charged")
	require.Equal(t, codes.InvalidArgument, status.Code(grpclimit.Allow(t.Context(), l.Part(""))))
	require.Equal(t, codes.InvalidArgument, status.Code(grpclimit.Allow(t.Context(), l.Part("k", -1))))

	part := l.Part("ann")
	part.Call.Each = make([]headgate.State, 1)
	d, err := headgate.All(t.Context(), part)
	require.NoError(t, err)
	retry, quota = details(t, grpclimit.Denied(d, part))
	require.Equal(t, "attempts", quota.Violations[0].Subject)
	require.Positive(t, retry.RetryDelay.AsDuration())
	require.NoError(t, grpclimit.Denied(headgate.Decision{Allowed: true}))
}

// TestFromHTTP: a client has one count by both protocols, also behind a proxy.
func TestFromHTTP(t *testing.T) {
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: named("10.0.0.7:80")})
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("x-forwarded-for", "6.6.6.6", "x-forwarded-for", "203.0.113.7",
		"x-api-key", "secret", "authorization", "BEARER  x", "x-real-ip", "203.0.113.8", "x-real-ip", "203.0.113.9"))
	r := &http.Request{RemoteAddr: "10.0.0.7:80", Header: http.Header{
		"X-Forwarded-For": {"6.6.6.6", "203.0.113.7"}, "X-Api-Key": {"secret"}, "Authorization": {"Bearer x"}}}
	for _, k := range []httplimit.Key{
		httplimit.RemoteAddr(), httplimit.TrustedProxies("10.0.0.0/8"), httplimit.Header("X-API-Key"), httplimit.Authorization(),
	} {
		want, err := k.Of(r)
		require.NoError(t, err)
		got, err := grpclimit.FromHTTP(k.Of).Of(ctx, grpclimit.RPC{FullMethod: "/s/m"})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	l := limiter(t, nil, policy(algo.SlidingLog(algo.PerHour(6))))
	for _, bad := range []grpclimit.Key{grpclimit.FromHTTP(nil), grpclimit.FromHTTP(httplimit.TrustedProxies().Of), grpclimit.FromHTTP(httplimit.Key{}.Of)} {
		_, err := grpclimit.New(l, bad, nil)
		require.ErrorAs(t, err, new(*headgate.InvalidError))
	}
	s := server(t, l, grpclimit.FromHTTP(httplimit.TrustedAddress("X-Real-IP", "10.0.0.0/8").Of), nil)
	require.Equal(t, codes.InvalidArgument, callOnce(ctx, s, "/s/m"), "several values")
	require.Equal(t, codes.OK, callOnce(peer.NewContext(context.Background(), &peer.Peer{Addr: named("192.0.2.1:80")}), s, "\x00"))
}

// TestFromHTTPOfAWrongHeader: a proxy that sends another header has a line in the log.
func TestFromHTTPOfAWrongHeader(t *testing.T) {
	lines, before := new(bytes.Buffer), log.Writer()
	log.SetOutput(lines)
	defer log.SetOutput(before)
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: named("10.0.0.7:80")})
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("x-forwarded-for", "203.0.113.7"))
	call, err := grpclimit.FromHTTP(httplimit.TrustedAddress("X-Real-IP", "10.0.0.0/8").Of).Of(ctx, grpclimit.RPC{})
	require.NoError(t, err)
	require.Equal(t, "ip:10.0.0.7", call)
	require.Contains(t, lines.String(), "header X-Real-Ip is absent, from the proxy 10.0.0.7:80")
}

// TestFromHTTPOnUnixSocket: a proxy that connects by a Unix socket is trusted where it is
// named.
func TestFromHTTPOnUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "sock") // a socket's path is short
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	for i, c := range []struct {
		key  httplimit.Key
		want codes.Code
	}{
		{httplimit.TrustedProxies("unix"), codes.OK}, {httplimit.TrustedAddress("X-Real-IP", "unix"), codes.OK},
		{httplimit.TrustedProxies("10.0.0.0/8"), codes.InvalidArgument},
	} {
		ln, err := net.Listen("unix", filepath.Join(dir, strconv.Itoa(i)))
		require.NoError(t, err)
		l := limiter(t, nil, policy(algo.SlidingLog(algo.PerHour(1))))
		g := grpc.NewServer(limited(server(t, l, grpclimit.FromHTTP(c.key.Of), nil))...)
		healthpb.RegisterHealthServer(g, health.NewServer())
		go func() { _ = g.Serve(ln) }()
		defer g.Stop()
		cc := dial(t, "unix:"+ln.Addr().String())
		for _, client := range []string{"203.0.113.7", "203.0.113.8"} {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-for", client, "x-real-ip", client)
			require.Equal(t, c.want, status.Code(shapes["unary"](ctx, cc)))
		}
	}
}
