package rls_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	limitpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
)

// fields has where each field of a request and of a resource is read: a file, and a text of
// it.
var fields = map[string]string{
	"envoy.service.ratelimit.v3.RateLimitRequest.domain":      "call.go GetDomain | c.req.Domain",
	"envoy.service.ratelimit.v3.RateLimitRequest.descriptors": "call.go c.req.Descriptors",
	"envoy.service.ratelimit.v3.RateLimitRequest.hits_addend": "call.go req.GetHitsAddend()",

	"envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.entries":          "../limits/match.go d.GetEntries()",
	"envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.limit":            "../limits/match.go d.GetLimit()",
	"envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.hits_addend":      "call.go d.GetHitsAddend()",
	"envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.is_negative_hits": "call.go d.GetIsNegativeHits()",
	"envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry.key":        "../limits/match.go e.GetKey()",
	"envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry.value":      "../limits/match.go e.GetValue()",

	"envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride.requests_per_unit": "../limits/override.go l.GetRequestsPerUnit()",
	"envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride.unit":              "../limits/override.go l.GetUnit()",
	"envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride.unit_multiplier":   "../limits/override.go l.GetUnitMultiplier()",

	"google.protobuf.UInt32Value.value": "../limits/override.go f.GetValue()",
	"google.protobuf.UInt64Value.value": "call.go h.GetValue()",

	// A resource is a file: its fields are the keys of one.
	"ratelimit.config.ratelimit.v3.RateLimitConfig.name":                `../../xds.go config.GetName()`,
	"ratelimit.config.ratelimit.v3.RateLimitConfig.domain":              `../limits/yaml.go "domain"`,
	"ratelimit.config.ratelimit.v3.RateLimitConfig.descriptors":         `../limits/yaml.go "descriptors"`,
	"ratelimit.config.ratelimit.v3.RateLimitDescriptor.key":             `../limits/yaml.go "key"`,
	"ratelimit.config.ratelimit.v3.RateLimitDescriptor.value":           `../limits/yaml.go "value"`,
	"ratelimit.config.ratelimit.v3.RateLimitDescriptor.rate_limit":      `../limits/yaml.go "rate_limit"`,
	"ratelimit.config.ratelimit.v3.RateLimitDescriptor.descriptors":     `../limits/yaml.go "descriptors"`,
	"ratelimit.config.ratelimit.v3.RateLimitDescriptor.shadow_mode":     `../limits/yaml.go "shadow_mode"`,
	"ratelimit.config.ratelimit.v3.RateLimitDescriptor.detailed_metric": `../limits/yaml.go "detailed_metric"`,
	"ratelimit.config.ratelimit.v3.RateLimitDescriptor.quota_mode":      `../limits/yaml.go "quota_mode"`,
	"ratelimit.config.ratelimit.v3.RateLimitDescriptor.metadata":        `../limits/yaml.go "metadata"`,
	"ratelimit.config.ratelimit.v3.RateLimitPolicy.unit":                `../limits/yaml.go "unit"`,
	"ratelimit.config.ratelimit.v3.RateLimitPolicy.requests_per_unit":   `../limits/yaml.go "requests_per_unit"`,
	"ratelimit.config.ratelimit.v3.RateLimitPolicy.unlimited":           `../limits/yaml.go "unlimited"`,
	"ratelimit.config.ratelimit.v3.RateLimitPolicy.name":                `../limits/yaml.go "name"`,
	"ratelimit.config.ratelimit.v3.RateLimitPolicy.replaces":            `../limits/yaml.go "replaces"`,
	"ratelimit.config.ratelimit.v3.RateLimitReplace.name":               `../limits/yaml.go "name"`,
}

// Each field of a request and of a resource is read. A new version of the protocol with
// another one fails here, and is not served as if it had none.
func TestEachFieldIsRead(t *testing.T) {
	found := map[string]bool{}
	for _, m := range []proto.Message{&pb.RateLimitRequest{}, &limitpb.RateLimitConfig{}} {
		messages(m.ProtoReflect().Descriptor(), func(d protoreflect.MessageDescriptor) {
			for i := range d.Fields().Len() {
				found[string(d.Fields().Get(i).FullName())] = true
			}
		})
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(fields)), slices.Collect(maps.Keys(found)))
	for name, where := range fields {
		file, texts, _ := strings.Cut(where, " ")
		data, err := os.ReadFile(file)
		require.NoError(t, err, name)
		require.True(t, slices.ContainsFunc(strings.Split(texts, " | "), func(text string) bool { return strings.Contains(string(data), text) }), "%s: %s", name, where)
	}
}

// messages calls do for a message and for all that it may hold, but those of metadata, which
// passes through.
func messages(d protoreflect.MessageDescriptor, do func(protoreflect.MessageDescriptor)) {
	seen := map[protoreflect.FullName]bool{"google.protobuf.Struct": true}
	var walk func(protoreflect.MessageDescriptor)
	walk = func(d protoreflect.MessageDescriptor) {
		if seen[d.FullName()] {
			return
		}
		seen[d.FullName()] = true
		do(d)
		for i := range d.Fields().Len() {
			if m := d.Fields().Get(i).Message(); m != nil {
				walk(m)
			}
		}
	}
	walk(d)
}

// full is a request that holds each message that one may hold.
func full() *pb.RateLimitRequest {
	d := of("three", 1)
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: 1, UnitMultiplier: wrapperspb.UInt32(1)}
	return &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{d}}
}

// A field that this version does not have is reported, in whichever message it stands.
func TestUnknownFields(t *testing.T) {
	field := protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1)
	kinds := 0
	messages(full().ProtoReflect().Descriptor(), func(d protoreflect.MessageDescriptor) {
		kinds++
		req := full()
		planted := false
		walk(req.ProtoReflect(), func(m protoreflect.Message) {
			if m.Descriptor() == d {
				m.SetUnknown(field)
				planted = true
			}
		})
		require.True(t, planted, "full holds no %s", d.FullName())
		s, c := service(t, nil, nil)
		_, err := s.ShouldRateLimit(ctx, req)
		require.NoError(t, err)
		require.Equal(t, []string{string(d.FullName()) + " 999"}, c.noted)
	})
	require.Equal(t, 6, kinds)
	s, c := service(t, nil, nil)
	_, err := s.ShouldRateLimit(ctx, full())
	require.NoError(t, err)
	require.Empty(t, c.noted)
}

func walk(m protoreflect.Message, do func(protoreflect.Message)) {
	do(m)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() != nil && f.IsList():
			for i := range v.List().Len() {
				walk(v.List().Get(i).Message(), do)
			}
		case f.Message() != nil:
			walk(v.Message(), do)
		}
		return true
	})
}

// However many there are, few are reported.
func TestUnknownFieldsAreBounded(t *testing.T) {
	req := full()
	var many []byte
	for i := range 10_000 {
		many = protowire.AppendVarint(protowire.AppendTag(many, protowire.Number(999+i), protowire.VarintType), 1)
	}
	req.ProtoReflect().SetUnknown(many)
	s, c := service(t, nil, nil)
	_, err := s.ShouldRateLimit(ctx, req)
	require.NoError(t, err)
	require.Len(t, c.noted, 32)
}

// Many fields of one number are one report, and hide none of another number.
func TestEqualUnknownFields(t *testing.T) {
	req := full()
	var many []byte
	for _, n := range append(slices.Repeat([]protowire.Number{999}, 100), 1000) {
		many = protowire.AppendVarint(protowire.AppendTag(many, n, protowire.VarintType), 1)
	}
	req.ProtoReflect().SetUnknown(many)
	s, c := service(t, nil, nil)
	_, err := s.ShouldRateLimit(ctx, req)
	require.NoError(t, err)
	name := string(req.ProtoReflect().Descriptor().FullName())
	require.ElementsMatch(t, []string{name + " 999", name + " 1000"}, c.noted)
	require.Equal(t, 101, c.fields)
}

// What the look for unknown fields costs a request of one descriptor, with each message that
// a request may hold: no allocation. The rest of a request is in bench/rls.
func BenchmarkUnknownFields(b *testing.B) {
	s, c := service(b, nil, nil)
	req := full()
	b.ReportAllocs()
	for b.Loop() {
		s.ReportUnknown(req)
	}
	require.Empty(b, c.noted)
}

// A request without unknown fields costs no allocation.
func TestUnknownFieldsAllocateNothing(t *testing.T) {
	s, _ := service(t, nil, nil)
	req := full()
	require.Zero(t, testing.AllocsPerRun(100, func() { s.ReportUnknown(req) }))
}
