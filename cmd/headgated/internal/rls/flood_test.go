package rls_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// TestFloodOfValues: two clients send ten times as many values of one descriptor as the store has
// counts: 10 million, at full length. New users of another descriptor are decided by counts of their own.
func TestFloodOfValues(t *testing.T) {
	maxKeys := redistest.Steps(2_000, 1_000_000)
	now := time.Now() // of the whole flood, whose end may be in the next hour
	s, _ := service(t, memory.New(&memory.Options{MaxKeys: maxKeys, Now: func() time.Time { return now }}), nil)
	send := func(d *common.RateLimitDescriptor, value int) *pb.RateLimitResponse {
		d.Entries[0].Value = strconv.Itoa(value)
		resp, err := s.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{d}})
		if err != nil {
			t.Error(err)
			return &pb.RateLimitResponse{}
		}
		return resp
	}
	const clients = 2
	var flooded atomic.Int64
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			d := of("three", 1)
			for i := c; i < 10*maxKeys; i += clients {
				if send(d, i).OverallCode == pb.RateLimitResponse_OK {
					flooded.Add(1)
				}
			}
		})
	}
	all.Wait()
	require.InDelta(t, maxKeys/2+3, flooded.Load(), 2, "half of the counts, and one that the others share")
	ten := of("ten", 1)
	for i := range maxKeys / 10 {
		for n := range 3 {
			resp := send(ten, i)
			if left := resp.Statuses[0].LimitRemaining; resp.OverallCode != pb.RateLimitResponse_OK || left != uint32(9-n) {
				t.Fatalf("user %d, call %d: %v, %d left", i, n, resp.OverallCode, left)
			}
		}
	}
}
