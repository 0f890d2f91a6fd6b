package rls

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

const lateLimits = `
domain: late
descriptors:
  - {key: tokens, rate_limit: {unit: year, requests_per_unit: 10000}}
`

func lateRequest(user string, hits uint64) *rlspb.RateLimitRequest {
	return request("late", []*common.RateLimitDescriptor{{
		Entries:    []*common.RateLimitDescriptor_Entry{{Key: "tokens", Value: user}},
		HitsAddend: wrapperspb.UInt64(hits),
	}})
}

// Streams as Envoy counts them: 0 hits on the way in, 3,000 at the end, and the answer to
// these is ignored. Of 10,000 the fifth stream is denied, and each status on the way is
// the same from both services.
func TestLateHits(t *testing.T) {
	for _, stop := range []string{"true", "false"} {
		t.Run("stop counting when over "+stop, func(t *testing.T) {
			reference, headgated := both(t, map[string]string{"late": lateLimits}, "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT="+stop)
			for stream := 1; stream <= 6; stream++ {
				in := askBoth(t, reference, headgated, lateRequest("a", 0))
				want := rlspb.RateLimitResponse_OK
				if stream >= 5 {
					want = rlspb.RateLimitResponse_OVER_LIMIT
				}
				require.Equal(t, want, in.OverallCode, "stream %d", stream)
				if in.OverallCode == rlspb.RateLimitResponse_OK {
					askBoth(t, reference, headgated, lateRequest("a", 3000))
				}
			}
		})
	}
}

// askBoth returns the answer that both services give.
func askBoth(t testing.TB, reference, headgated *service, req *rlspb.RateLimitRequest) *rlspb.RateLimitResponse {
	t.Helper()
	p := ask(t, reference, headgated, req)
	require.Equal(t, p.reference.OverallCode, p.headgated.OverallCode)
	require.True(t, equal(p.reference.Statuses[0], p.headgated.Statuses[0]), "reference %v\nheadgated %v", p.reference, p.headgated)
	return p.reference
}
