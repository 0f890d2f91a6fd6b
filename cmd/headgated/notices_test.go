package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// What is invalid, negative or newer than the server is a line per domain and minute. However
// many domains clients name, the log has few.
func TestNotices(t *testing.T) {
	t.Parallel()
	v, log := logged(t, userLimits)
	many := userRequest("x")
	for i := range 65 {
		many.Descriptors = append(many.Descriptors, &common.RateLimitDescriptor{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: fmt.Sprint(i)}}})
	}
	negative, newer := userRequest("y"), userRequest("y")
	negative.Descriptors[0].IsNegativeHits = true
	newer.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.VarintType), 1))
	for range 5 {
		_, err := v.service.ShouldRateLimit(context.Background(), many)
		require.Equal(t, codes.InvalidArgument, status.Code(err))
		_, err = v.service.ShouldRateLimit(context.Background(), negative)
		require.NoError(t, err)
		_, err = v.service.ShouldRateLimit(context.Background(), newer)
		require.Contains(t, []codes.Code{codes.OK}, status.Code(err))
	}
	for _, line := range []string{"a request is invalid, and the proxy may let it pass\" domain=d reason=counts", "hits are negative, and charge nothing\" domain=d",
		"a field is newer than this server, and is not read\" message=envoy.service.ratelimit.v3.RateLimitRequest field=4"} {
		require.Equal(t, 1, strings.Count(log.String(), line), "%s in %s", line, log.String())
	}
	for i := range 1000 {
		v.metrics.Invalid(fmt.Sprint("domain ", i), "counts", nil)
	}
	require.Less(t, strings.Count(log.String(), "a request is invalid"), maxSubjects+1)
}

// Plain HTTP beside client certificates on gRPC is a warning at start, and serves probes.
func TestPlainHTTPBesideTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one := certificate(t, dir, "one")
	replaceFile(t, dir+"/cert", string(one.cert))
	replaceFile(t, dir+"/key", string(one.key))
	s := startServer(t, userLimits, "-tls-cert", dir+"/cert", "-tls-key", dir+"/key", "-plain-http")
	require.Equal(t, 200, s.status(t, "/healthcheck"))
	require.Error(t, handshake(s.listeners["http"].Addr().String(), nil, 0))
	_, log := logged(t, userLimits, "-tls-cert", dir+"/cert", "-tls-key", dir+"/key", "-tls-client-ca", dir+"/one.cert", "-plain-http")
	require.Contains(t, log.String(), "level=WARN msg=\"-http has no TLS: its clients need no certificate, and those of -grpc do\"")
}
