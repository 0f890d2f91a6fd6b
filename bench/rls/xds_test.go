package rls

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	limitpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
)

// node is the control plane's name for every server.
type node struct{}

func (node) ID(*core.Node) string { return "node" }

// controlPlane serves resources by go-control-plane, as Envoy Gateway and Istio do.
type controlPlane struct {
	cache   cache.SnapshotCache
	address string
	refused atomic.Int64
}

func startControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	c := &controlPlane{cache: cache.NewSnapshotCache(true, node{}, nil)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c.address = l.Addr().String()
	g := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(g, server.NewServer(context.Background(), c.cache, server.CallbackFuncs{
		StreamRequestFunc: func(_ int64, req *discovery.DiscoveryRequest) error {
			if req.ErrorDetail != nil {
				c.refused.Add(1)
			}
			return nil
		},
	}))
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return c
}

func (c *controlPlane) set(t *testing.T, version string, unit limitpb.RateLimitUnit) {
	t.Helper()
	config := &limitpb.RateLimitConfig{Name: "xds", Domain: "xds", Descriptors: []*limitpb.RateLimitDescriptor{{
		Key: "user", RateLimit: &limitpb.RateLimitPolicy{Unit: unit, RequestsPerUnit: 2}}}}
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: {config}})
	require.NoError(t, err)
	require.NoError(t, c.cache.SetSnapshot(context.Background(), "node", snapshot))
}

// A real control plane sends a resource that is refused again at once. It is refused a few
// times in six seconds, with one line in the log, and its mended version is used.
func TestRefusedByTheServer(t *testing.T) {
	if !*withReference {
		t.Skip("NOT TESTED: without -reference no program is built")
	}
	plane := startControlPlane(t)
	plane.set(t, "1", limitpb.RateLimitUnit_UNKNOWN)
	var log lines
	s := launch(t, "ratelimit", t.TempDir(), &log, "LOG_LEVEL=info", "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+plane.address,
		"FORCE_START_WITHOUT_INITIAL_CONFIG=true")
	time.Sleep(6 * time.Second)
	refused := plane.refused.Load()
	text := log.String()
	t.Logf("refused %d times in 6 s, with %d lines in the log", refused, strings.Count(text, "\n"))
	require.Equal(t, 1, strings.Count(text, "limits: refused"), text)
	require.LessOrEqual(t, refused, int64(4))
	begin := time.Now()
	plane.set(t, "2", limitpb.RateLimitUnit_HOUR)
	require.Eventually(t, func() bool {
		_, err := s.client.ShouldRateLimit(context.Background(), request("xds", nil))
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	t.Logf("mended after %v: the control plane sends it as the answer to the next refusal", time.Since(begin))
}

// lines is the log of a program that runs.
type lines struct {
	mu struct {
		sync.Mutex
		text strings.Builder
	}
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.text.String()
}
