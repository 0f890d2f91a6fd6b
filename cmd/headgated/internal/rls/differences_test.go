package rls_test

import (
	"testing"

	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// Negative hits are returned and decide nothing, and are reported.
func TestNegativeHits(t *testing.T) {
	s, c := service(t, nil, nil)
	back := of("three", 2)
	back.IsNegativeHits = true
	for range 5 {
		resp := ask(t, s, back, of("ten", -1))
		require.Equal(t, pb.RateLimitResponse_OK, resp.OverallCode)
	}
	want(t, ask(t, s, of("three", -1)), true, 2)
	want(t, ask(t, s, of("ten", -1)), true, 4)
	require.Equal(t, []string{"negative d true", "negative d true", "negative d true", "negative d true", "negative d true"}, c.noted)
	ask(t, s, of("three", -1))
	ask(t, s, of("three", -1))
	want(t, ask(t, s, of("three", -1)), false, 0)
	want(t, ask(t, s, back, of("ten", -1)), true, 0, 3) // a spent count denies no one who gives back
	want(t, ask(t, s, of("three", -1)), true, 1)        // and has room for two
	for range 6 {
		want(t, ask(t, s, back), true, 0)
	}
	want(t, ask(t, s, of("three", -1)), true, 2)
	none := of("nothing of the sort", 2)
	none.IsNegativeHits, c.noted = true, nil
	want(t, ask(t, s, none), true, 0)
	require.Equal(t, []string{"negative d false"}, c.noted)
	var many []*common.RateLimitDescriptor
	for range 200 { // of which as many are returned as a request may have counts
		many = append(many, back)
	}
	c.noted = nil
	_, err := s.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "d", Descriptors: many})
	require.NoError(t, err)
	require.Equal(t, "negative d true", c.noted[63])
	require.Equal(t, "negative d false", c.noted[64])
}

// A descriptor with negative hits replaces no limit of another.
func TestNegativeHitsReplaceNothing(t *testing.T) {
	s, _ := service(t, nil, nil)
	back := of("many", 2) // many replaces ten
	want(t, ask(t, s, back, of("ten", -1)), true, 99_998, 0)
	back.IsNegativeHits = true
	want(t, ask(t, s, back, of("ten", -1)), true, 0, 9)
}

// A descriptor with negative hits is not invalid for the limit that it brings.
func TestNegativeHitsWithALimit(t *testing.T) {
	s, _ := service(t, nil, nil)
	back := of("three", 2)
	back.IsNegativeHits = true
	back.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: 6, UnitMultiplier: wrapperspb.UInt32(9)}
	want(t, ask(t, s, back, of("ten", -1)), true, 0, 9)
}

// In shadow mode all requests pass, and each status is what it would be without: that of a
// rule with a shadow_mode of its own is OK.
func TestShadowModeBesideAShadow(t *testing.T) {
	s, c := service(t, nil, func(o *rls.Options) { o.ShadowMode = true }, shadowed)
	for i := range 4 {
		resp := ask(t, s, of("three", -1), of("shadow", -1))
		require.Equal(t, pb.RateLimitResponse_OK, resp.OverallCode)
		require.Equal(t, []bool{i >= 3, false}, over(resp), i)
	}
	require.Equal(t, 1, c.descriptors["d.three shadow"])
	require.Equal(t, 2, c.descriptors["d.shadow shadow"])
}

// What is invalid is reported with its reason.
func TestInvalidIsReported(t *testing.T) {
	for reason, req := range map[rls.Reason]*pb.RateLimitRequest{
		rls.NoDomain:     {Descriptors: []*common.RateLimitDescriptor{of("three", -1)}},
		rls.NoDescriptor: {Domain: "d"},
		rls.BadOverride: {Domain: "d", Descriptors: []*common.RateLimitDescriptor{{
			Entries: of("three", -1).Entries,
			Limit:   &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: 6, UnitMultiplier: wrapperspb.UInt32(9)},
		}}},
		rls.ManyCounts:      {Domain: "d", Descriptors: many(65)},
		rls.ManyDescriptors: manyDescriptors(1025),
	} {
		s, c := service(t, nil, nil)
		_, err := s.ShouldRateLimit(ctx, req)
		require.Equal(t, codes.InvalidArgument, status.Code(err), reason)
		require.Equal(t, []string{"invalid " + string(reason)}, c.noted)
		require.Equal(t, 1, c.requests[rls.Invalid])
	}
	s, c := service(t, nil, nil)
	ask(t, s, many(64)...)
	require.Empty(t, c.noted)
}

// many makes descriptors of one count each.
func many(n int) (all []*common.RateLimitDescriptor) {
	for i := range n {
		d := of("ten", -1)
		d.Entries[0].Value = string(rune('0' + i))
		all = append(all, d)
	}
	return all
}
