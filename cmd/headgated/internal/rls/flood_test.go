package rls_test

import (
	"fmt"
	"testing"

	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// TestFloodOfValues: a client sends ten times as many values of one descriptor as the store has
// counts. New users of another descriptor are decided by counts of their own.
func TestFloodOfValues(t *testing.T) {
	maxKeys := redistest.Steps(2_000, 1_000_000)
	s, _ := service(t, memory.New(&memory.Options{MaxKeys: maxKeys}), nil)
	send := func(key, value string) *pb.RateLimitResponse {
		d := of(key, 1)
		d.Entries[0].Value = value
		req := &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{d}}
		resp, err := s.ShouldRateLimit(ctx, req)
		require.NoError(t, err)
		return resp
	}
	flooded := 0
	for i := range 10 * maxKeys {
		if send("three", fmt.Sprint(i)).OverallCode == pb.RateLimitResponse_OK {
			flooded++
		}
	}
	require.InDelta(t, maxKeys/2+3, flooded, 2, "half of the counts, and one that the others share")
	for i := range maxKeys / 10 {
		for n := range 3 {
			resp := send("ten", fmt.Sprint(i))
			require.Equal(t, pb.RateLimitResponse_OK, resp.OverallCode)
			require.EqualValues(t, 9-n, resp.Statuses[0].LimitRemaining, "user %d", i)
		}
	}
}
