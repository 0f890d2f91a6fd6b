package main

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	limitpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
)

// control is a discovery service of one client: what it sends, and what it is answered.
type control struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	send chan *discovery.DiscoveryResponse // after the next request
	push chan *discovery.DiscoveryResponse // at once
	got  chan *discovery.DiscoveryRequest
}

func (c *control) StreamAggregatedResources(s discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	lost := make(chan error, 1)
	asked := make(chan struct{}, 100)
	go func() {
		for {
			req, err := s.Recv()
			if err != nil {
				lost <- err
				return
			}
			c.got <- req
			asked <- struct{}{}
		}
	}()
	for {
		var send chan *discovery.DiscoveryResponse
		if len(asked) > 0 {
			send = c.send
		}
		select {
		case err := <-lost:
			return err
		case resp := <-c.push:
			if err := s.Send(resp); err != nil {
				return err
			}
		case resp := <-send:
			if <-asked; resp == nil {
				return status.Error(codes.Unavailable, "the control plane restarts")
			}
			if err := s.Send(resp); err != nil {
				return err
			}
		case <-time.After(time.Millisecond):
		}
	}
}

// startControl serves a control, and returns its address.
func startControl(t *testing.T, opts ...grpc.ServerOption) (*control, string) {
	t.Helper()
	c := &control{send: make(chan *discovery.DiscoveryResponse), push: make(chan *discovery.DiscoveryResponse), got: make(chan *discovery.DiscoveryRequest, 8)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := grpc.NewServer(append(opts, grpc.MaxSendMsgSize(64<<20))...)
	discovery.RegisterAggregatedDiscoveryServiceServer(g, c)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return c, l.Addr().String()
}

// next returns the next request of the client.
func (c *control) next(t *testing.T) *discovery.DiscoveryRequest {
	t.Helper()
	select {
	case req := <-c.got:
		return req
	case <-time.After(20 * time.Second):
		t.Fatal("no request")
		return nil
	}
}

func resources(t testing.TB, version string, configs ...*limitpb.RateLimitConfig) *discovery.DiscoveryResponse {
	t.Helper()
	resp := &discovery.DiscoveryResponse{VersionInfo: version, Nonce: "n" + version, TypeUrl: limitsType}
	for _, c := range configs {
		packed, err := anypb.New(c)
		require.NoError(t, err)
		resp.Resources = append(resp.Resources, packed)
	}
	return resp
}

func perHour(domain string, n uint32) *limitpb.RateLimitConfig {
	return &limitpb.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*limitpb.RateLimitDescriptor{{
		Key: "user", RateLimit: &limitpb.RateLimitPolicy{Unit: limitpb.RateLimitUnit_HOUR, RequestsPerUnit: n},
	}}}
}

// Limits by the discovery service: used as a whole, refused with the reason while those
// before stay, and kept while it is away.
func TestXDS(t *testing.T) {
	t.Parallel()
	c, address := startControl(t)
	s := startServer(t, "", "-config", "", "-xds", address, "-xds-node", "here")
	limit := func() (uint32, error) {
		resp, err := s.client(t).ShouldRateLimit(context.Background(), userRequest("x"))
		if err != nil {
			return 0, err
		}
		return resp.Statuses[0].GetCurrentLimit().GetRequestsPerUnit(), nil
	}
	first := c.next(t)
	require.Equal(t, "here", first.Node.Id)
	require.Equal(t, limitsType, first.TypeUrl)
	_, err := limit()
	require.Equal(t, codes.Unavailable, status.Code(err), "there are no limits yet")
	require.False(t, s.readiness.ready.Load())

	domain := userRequest("x").Domain
	c.send <- resources(t, "1", perHour(domain, 7), perHour("other", 1))
	ack := c.next(t)
	require.Equal(t, "1 n1 <nil>", ack.VersionInfo+" "+ack.ResponseNonce+" "+errorOf(ack))
	n, err := limit()
	require.NoError(t, err)
	require.EqualValues(t, 7, n)

	bad := perHour(domain, 8)
	bad.Descriptors[0].RateLimit.Unit = limitpb.RateLimitUnit_UNKNOWN
	c.send <- resources(t, "2", bad)
	nack := c.next(t)
	require.Equal(t, "1 n2", nack.VersionInfo+" "+nack.ResponseNonce, "the version in use")
	require.Contains(t, errorOf(nack), "unit")
	n, err = limit()
	require.NoError(t, err)
	require.EqualValues(t, 7, n)

	c.send <- nil
	again := c.next(t)
	require.Equal(t, "here", again.Node.Id, "a new stream")
	n, err = limit()
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	c.send <- resources(t, "3", perHour(domain, 9))
	require.Equal(t, "3", c.next(t).VersionInfo)
	n, err = limit()
	require.NoError(t, err)
	require.EqualValues(t, 9, n)
}

// A set without resources switches all limits off, as with envoyproxy/ratelimit. The log has
// a warning.
func TestXDSEmpty(t *testing.T) {
	t.Parallel()
	c, address := startControl(t)
	v, log := logged(t, "", "-config", "", "-xds", address)
	c.next(t)
	c.send <- resources(t, "1", perHour(userRequest("x").Domain, 0))
	c.next(t)
	code := func() rlspb.RateLimitResponse_Code {
		resp, err := v.service.ShouldRateLimit(t.Context(), userRequest("x"))
		require.NoError(t, err)
		return resp.OverallCode
	}
	require.Equal(t, rlspb.RateLimitResponse_OVER_LIMIT, code())
	require.NotContains(t, log.String(), "every request passes")

	c.send <- resources(t, "2")
	ack := c.next(t)
	require.Equal(t, "2 <nil>", ack.VersionInfo+" "+errorOf(ack))
	require.Equal(t, rlspb.RateLimitResponse_OK, code())
	require.Eventually(t, v.readiness.ready.Load, 20*time.Second, 5*time.Millisecond)
	require.Contains(t, log.String(), "level=WARN msg=\"limits: the discovery service has none, so every request passes\"")
}

func errorOf(r *discovery.DiscoveryRequest) string {
	if r.ErrorDetail == nil {
		return "<nil>"
	}
	return r.ErrorDetail.Message
}

// The environment of envoyproxy/ratelimit names the discovery service.
func TestReplacedXDS(t *testing.T) {
	t.Parallel()
	s, _, err := settingsOf([]string{"ratelimit"}, []string{"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=gateway:18001", "CONFIG_GRPC_XDS_NODE_ID=a",
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/ca", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/c", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/k",
		"REDIS_URL=r:1", "REDIS_SOCKET_TYPE=tcp"}, logWriter{t})
	require.NoError(t, err)
	require.Equal(t, "gateway:18001 a /ca /c /k", s.xds+" "+s.xdsNode+" "+s.xdsCA+" "+s.xdsCert+" "+s.xdsKey)
	require.True(t, s.xdsTLS)
	require.Empty(t, s.config)
}

// A discovery service whose machine is gone ends no connection. The server finds out, and dials
// again: limits that change meanwhile are used.
func TestXDSSilent(t *testing.T) {
	if os.Getenv("HEADGATE_LONG") == "" {
		t.Skip("NOT TESTED: without HEADGATE_LONG=1 (35 s) a discovery service that falls silent is not tried")
	}
	t.Parallel()
	c, address := startControl(t)
	relay := redistest.NewRelay(t, address, 0)
	s, _, err := settingsOf([]string{"headgated", "-xds", relay.Addr(), "-grpc", "127.0.0.1:0", "-http", "", "-metrics", ""}, nil, io.Discard)
	require.NoError(t, err)
	require.Greater(t, s.xdsPing, 5*time.Minute, "a server of gRPC ends a connection that asks more often")
	s.xdsPing = 10 * time.Second // the least that gRPC has
	v, err := newServer(s, slog.New(slog.NewTextHandler(logWriter{t}, nil)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- v.serve(ctx) }()
	defer func() { cancel(); require.NoError(t, <-ended) }()
	c.next(t)
	c.send <- resources(t, "1", perHour("d", 7))
	c.next(t)
	relay.ForgetSilent(time.Second)
	time.Sleep(2 * time.Second)
	go func() { c.push <- resources(t, "2", perHour("d", 8)) }() // is lost
	require.Eventually(t, func() bool { return len(c.got) > 0 }, time.Minute, time.Millisecond, "a new stream")
	relay.ForgetSilent(0)
	c.next(t)
	require.Eventually(t, func() bool {
		select {
		case c.push <- resources(t, "3", perHour("d", 9)): // also on the stream that is gone
		default:
		}
		return v.watcher.now.Load().Rules()[0].Max() == 9
	}, 20*time.Second, 10*time.Millisecond)
}

// The certificate that is shown to the discovery service, and the authorities that the service
// is trusted by, may be renewed while the server runs: each connection reads them.
func TestXDSCertificatesRenewed(t *testing.T) {
	t.Parallel()
	dir, served, connected := t.TempDir(), atomic.Pointer[tls.Config]{}, make(chan int, 100)
	renew := func(n int) {
		args, trusting := redistest.Certificate(t)
		pair, err := tls.LoadX509KeyPair(args[1], args[3])
		require.NoError(t, err)
		for name, from := range map[string]string{"cert": args[1], "key": args[3]} {
			text, err := os.ReadFile(from)
			require.NoError(t, err)
			replaceFile(t, filepath.Join(dir, name), string(text))
		}
		served.Store(&tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: trusting.RootCAs, ClientAuth: tls.RequireAndVerifyClientCert,
			NextProtos: []string{"h2"}, VerifyConnection: func(tls.ConnectionState) error { connected <- n; return nil }})
	}
	renew(1)
	_, address := startControl(t, grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 500 * time.Millisecond, MaxConnectionAgeGrace: time.Millisecond}),
		grpc.Creds(credentials.NewTLS(&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return served.Load(), nil }})))
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	startServer(t, "", "-config", "", "-xds", address, "-xds-ca", cert, "-xds-cert", cert, "-xds-key", key)
	for n := 1; n <= 2; n++ {
		require.Eventually(t, func() bool { return len(connected) > 0 && <-connected == n }, 20*time.Second, time.Millisecond, "certificate %d", n)
		renew(n + 1)
	}
}
