package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	limitpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
)

// refused is a set of resources that no server uses.
func refused(t testing.TB, version string) *discovery.DiscoveryResponse {
	return resources(t, version, perHour("", 1))
}

// What is refused is refused at once, then after a pause, and logged once. What is mended
// waits for no pause.
func TestRefusedResources(t *testing.T) {
	t.Parallel()
	c, address := startControl(t)
	v, log := logged(t, "", "-config", "", "-xds", address)
	c.next(t)
	domain := userRequest("x").Domain
	c.send <- resources(t, "1", perHour(domain, 7))
	c.next(t)
	var took []time.Duration
	for begin := time.Now(); time.Since(begin) < 2500*time.Millisecond; { // as a control plane does: the same again, at once
		sent := time.Now()
		c.send <- refused(t, "2")
		require.Contains(t, errorOf(c.next(t)), "empty domain")
		took = append(took, time.Since(sent))
	}
	require.LessOrEqual(t, len(took), 3, "at once, after 1 s, and after 2 s more")
	require.Less(t, took[0], took[1], "the first answer waits for nothing")
	require.GreaterOrEqual(t, took[1], 900*time.Millisecond)
	require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
	require.Contains(t, log.String(), "limits: refused, those in force stay\" source=xds version=2 ")
	require.EqualValues(t, 7, v.watcher.now.Load().Rules()[0].Max())

	c.send <- refused(t, "2") // its answer is due in 4 s
	begin := time.Now()
	c.push <- resources(t, "3", perHour(domain, 9)) // by a control plane that does not wait for it
	require.Eventually(t, func() bool { return v.watcher.now.Load().Rules()[0].Max() == 9 }, 2*time.Second, time.Millisecond)
	require.Equal(t, "3 <nil>", func() string { r := c.next(t); return r.VersionInfo + " " + errorOf(r) }())
	require.Less(t, time.Since(begin), 2*time.Second)
	c.send <- refused(t, "4") // the same content after another is refused at once
	require.Contains(t, errorOf(c.next(t)), "empty domain")
	require.Less(t, time.Since(begin), 3*time.Second)
}

// Resources are told apart by what is in them, and not by their order.
func TestRefusedInAnotherOrder(t *testing.T) {
	a, b := resources(t, "1", perHour("a", 1), perHour("b", 1)), resources(t, "1", perHour("b", 1), perHour("a", 1))
	sum := func(resp *discovery.DiscoveryResponse) digest { return new(xdsClient).read(resp).sum() }
	require.Equal(t, sum(a), sum(b))
	require.NotEqual(t, sum(a), sum(resources(t, "1", perHour("a", 1), perHour("b", 2))))
	broken := resources(t, "1", perHour("a", 1))
	broken.Resources[0].Value = broken.Resources[0].Value[1:]
	require.NotEqual(t, sum(a), sum(broken))
}

// withMetadata is a set that no server uses, whose bytes differ each time: a map has no order.
func withMetadata(t testing.TB, value string) *discovery.DiscoveryResponse {
	t.Helper()
	fields := map[string]any{}
	for i := range 20 {
		fields[fmt.Sprint(i)] = value
	}
	metadata, err := structpb.NewStruct(fields)
	require.NoError(t, err)
	config := perHour("", 1)
	config.Descriptors[0].Metadata = metadata
	return resources(t, "2", config)
}

// Contents that come in turn, also with other bytes, are refused at once each, and once: then
// the pause holds.
func TestRefusedInTurn(t *testing.T) {
	t.Parallel()
	c, address := startControl(t)
	_, log := logged(t, "", "-config", "", "-xds", address)
	c.next(t)
	var took []time.Duration
	for _, content := range []string{"a", "b", "a"} {
		sent := time.Now()
		c.send <- withMetadata(t, content)
		c.next(t)
		took = append(took, time.Since(sent))
	}
	require.Greater(t, took[2], 1800*time.Millisecond, "after 2 s")
	require.Less(t, max(took[0], took[1]), took[2], "at once")
	require.Equal(t, 2, strings.Count(log.String(), "level=ERROR"), log.String())
}

// Any number of contents makes few refusals at once.
func TestRefusedContentsAreBounded(t *testing.T) {
	t.Parallel()
	c, address := startControl(t)
	v, _ := logged(t, "", "-config", "", "-xds", address)
	c.next(t)
	for i := range maxRefused {
		c.send <- withMetadata(t, fmt.Sprint(i))
		c.next(t)
	}
	c.send <- withMetadata(t, "one more")
	select {
	case <-c.got:
		t.Error("refused without a pause")
	case <-time.After(time.Second):
	}
	c.push <- resources(t, "3", perHour("d", 9)) // mended
	require.Equal(t, "<nil>", errorOf(c.next(t)))
	require.EqualValues(t, 9, v.watcher.now.Load().Rules()[0].Max())
}

// A content that is sent again and again without waiting for the answer does not put it off.
func TestRefusedPushes(t *testing.T) {
	t.Parallel()
	c, address := startControl(t)
	logged(t, "", "-config", "", "-xds", address)
	c.next(t)
	c.send <- refused(t, "2")
	c.next(t)
	begin := time.Now()
	for {
		c.push <- refused(t, "2")
		select {
		case req := <-c.got:
			require.Contains(t, errorOf(req), "empty domain")
			require.Greater(t, time.Since(begin), 700*time.Millisecond)
			return
		case <-time.After(50 * time.Millisecond):
		}
		require.Less(t, time.Since(begin), 10*time.Second)
	}
}

// Characters that YAML reads otherwise, or refuses, are those of the resource.
func TestXDSCharacters(t *testing.T) {
	t.Parallel()
	c, address := startControl(t)
	s := startServer(t, "", "-config", "", "-xds", address)
	c.next(t)
	for i, value := range []string{"a\u0085b", "a\u2028b", "a\u00a0 b", "\ufeff", "a\u007fb", "\uffff", "a\tb\n", "ü😀", "\\\"/", " a ", "\x00"} {
		config := perHour("d", 1)
		config.Descriptors[0].Value = value
		var err error
		config.Descriptors[0].Metadata, err = structpb.NewStruct(map[string]any{value: value, "<<": map[string]any{"x": value}})
		require.NoError(t, err)
		c.send <- resources(t, fmt.Sprint(i), config)
		require.Equal(t, "<nil>", errorOf(c.next(t)), "%q", value)
		rule := s.watcher.now.Load().Rules()[0]
		require.Equal(t, "d."+config.Descriptors[0].Key+"_"+value, rule.Label)
		require.True(t, proto.Equal(config.Descriptors[0].Metadata, rule.Metadata), "%q: %v", value, rule.Metadata)
	}
}

// quota_mode and metadata of a resource have the meaning that they have in a file.
func TestXDSFields(t *testing.T) {
	t.Parallel()
	c, address := startControl(t)
	s := startServer(t, "", "-config", "", "-xds", address)
	c.next(t)
	config := perHour("d", 1)
	var err error
	config.Descriptors[0].QuotaMode = true
	config.Descriptors[0].Metadata, err = structpb.NewStruct(map[string]any{"plan": map[string]any{"tier": "gold"}})
	require.NoError(t, err)
	c.send <- resources(t, "1", config)
	require.Equal(t, "<nil>", errorOf(c.next(t)))
	rule := s.watcher.now.Load().Rules()[0]
	require.True(t, rule.Quota)
	require.True(t, proto.Equal(config.Descriptors[0].Metadata, rule.Metadata))
}

// A field of a newer version is used without, and seen: a line per field, and a metric.
func TestXDSUnknownField(t *testing.T) {
	t.Parallel()
	c, address := startControl(t)
	v, log := logged(t, "", "-config", "", "-xds", address)
	c.next(t)
	config := perHour("d", 1)
	for i, m := range []proto.Message{config, config.Descriptors[0], config.Descriptors[0].RateLimit} {
		m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, protowire.Number(100+i), protowire.VarintType), 1))
	}
	for _, version := range []string{"1", "2"} {
		c.send <- resources(t, version, config, perHour(version, 1))
		require.Equal(t, "<nil>", errorOf(c.next(t)))
	}
	for _, line := range []string{"RateLimitConfig field=100", "RateLimitDescriptor field=101", "RateLimitPolicy field=102"} {
		require.Equal(t, 1, strings.Count(log.String(), line), log.String())
	}
	families, err := v.metrics.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "headgated_unknown_fields_total" {
			got := map[string]float64{}
			for _, m := range f.GetMetric() {
				got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
			require.Equal(t, 2.0, got["ratelimit.config.ratelimit.v3.RateLimitPolicy"], got)
			return
		}
	}
	t.Error("no metric")
}

// Resources of more than 4 MiB load. A control plane gets the metadata and the headers.
func TestXDSLargeWithMetadata(t *testing.T) {
	t.Parallel()
	headers := make(chan metadata.MD, 1)
	c, address := startControl(t, grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		headers <- md
		return next(srv, s)
	}))
	s := startServer(t, "", "-config", "", "-xds", address, "-xds-metadata", "zone=a,tier=b=c", "-xds-headers", "x-tenant=blue")
	first := c.next(t)
	require.Equal(t, "b=c", first.Node.Metadata.Fields["tier"].GetStringValue())
	require.Equal(t, "a", first.Node.Metadata.Fields["zone"].GetStringValue())
	require.Equal(t, []string{"blue"}, (<-headers).Get("x-tenant"))
	config := perHour("d", 7)
	config.Descriptors = append(config.Descriptors, &limitpb.RateLimitDescriptor{Key: "long", Value: strings.Repeat("x", 5<<20)})
	c.send <- resources(t, "1", config)
	require.Equal(t, "<nil>", errorOf(c.next(t)))
	require.EqualValues(t, 7, s.watcher.now.Load().Rules()[0].Max())
}

// A discovery service that is away is tried each second, and is one line a minute.
func TestXDSAway(t *testing.T) {
	t.Parallel()
	v, log := logged(t, "", "-config", "", "-xds", "127.0.0.1:1")
	time.Sleep(1500 * time.Millisecond)
	require.Equal(t, 1, strings.Count(log.String(), "there are none yet"), log.String())
	require.Nil(t, v.watcher.now.Load())
}
