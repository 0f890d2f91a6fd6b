package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
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
	negative.Descriptors[0].IsNegativeHits, negative.Descriptors[0].Entries[0].Key = true, "no limit"
	newer.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.VarintType), 1))
	for range 5 {
		_, err := v.service.ShouldRateLimit(context.Background(), many)
		require.Equal(t, codes.InvalidArgument, status.Code(err))
		_, err = v.service.ShouldRateLimit(context.Background(), negative)
		require.NoError(t, err)
		_, err = v.service.ShouldRateLimit(context.Background(), newer)
		require.Contains(t, []codes.Code{codes.OK}, status.Code(err))
	}
	v.metrics.NegativeHits("returned", true)
	require.NotContains(t, log.String(), "domain=returned")
	for _, line := range []string{"a request is invalid, and the proxy may let it pass\" domain=d reason=counts", "hits are negative, and have no limit that counts them\" domain=d",
		"a field is newer than this server, and is not read\" message=envoy.service.ratelimit.v3.RateLimitRequest field=4"} {
		require.Equal(t, 1, strings.Count(log.String(), line), "%s in %s", line, log.String())
	}
}

// What strangers choose is bounded, and takes no line of what an operator should see: a
// domain of the limits, a field of another message, the discovery service.
func TestNoticesOfStrangers(t *testing.T) {
	t.Parallel()
	v, log := logged(t, userLimits)
	for i := range 1000 {
		v.metrics.Invalid(fmt.Sprint("invented ", i, strings.Repeat("x", 1000)), "counts", errors.New(strings.Repeat("y", 1000)))
		v.metrics.NegativeHits(fmt.Sprint("invented ", i), false)
		v.metrics.UnknownField("Request", protowire.Number(i), 1)
	}
	lines := func() (n [3]int) {
		for i, text := range []string{"a request is invalid", "hits are negative", "a field is newer"} {
			n[i] = strings.Count(log.String(), text)
		}
		return n
	}
	require.Equal(t, [3]int{maxSubjects, maxSubjects, maxSubjects}, lines())
	require.Less(t, len(log.String()), 3*maxSubjects*1000)
	v.metrics.Invalid("d", "counts", nil)
	v.metrics.Invalid("d", "override", nil) // a line per domain and minute; the metric has each reason
	v.metrics.NegativeHits("d", false)
	v.metrics.UnknownField("Resource", 7, 1)
	require.Equal(t, [3]int{maxSubjects + 1, maxSubjects + 1, maxSubjects + 1}, lines())
}

// What names no domain is a line per reason and minute.
func TestNoticesWithoutDomain(t *testing.T) {
	t.Parallel()
	v, log := logged(t, userLimits)
	for range 2 {
		v.metrics.Invalid("", rls.BadMessage, nil)
		v.metrics.Invalid("", rls.NoMethod, nil)
	}
	for _, reason := range []rls.Reason{rls.BadMessage, rls.NoMethod} {
		require.Equal(t, 1, strings.Count(log.String(), "domain=\"\" reason="+string(reason)+" "))
	}
}

// Strangers who take all files make one line per minute.
func TestAcceptsLogged(t *testing.T) {
	t.Parallel()
	v, log := logged(t, userLimits)
	failed := v.notAccepted("grpc")
	for range 5 {
		failed(syscall.EMFILE)
	}
	require.Equal(t, 1, strings.Count(log.String(), "a connection was not accepted"))
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
