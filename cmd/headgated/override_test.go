package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// A limit that a request brings is decided by the count of the file's, and does not change
// the gauge of that limit.
func TestOverrideIsNoGauge(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits)
	ask := func(limit uint32) uint32 {
		req := userRequest("x")
		if limit > 0 {
			req.Descriptors[0].Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: limit, Unit: typev3.RateLimitUnit_DAY}
		}
		resp, err := s.client(t).ShouldRateLimit(context.Background(), req)
		require.NoError(t, err)
		return resp.Statuses[0].LimitRemaining
	}
	require.EqualValues(t, 1, ask(0))
	require.EqualValues(t, 765, ask(767), "one count")
	const gauge = `headgate_policy_limit{headgate_algorithm="FixedWindow",headgate_policy="rls"} `
	metrics := scrape(t, s)
	require.Contains(t, metrics, gauge+"2\n")
	require.Contains(t, metrics, `headgated_descriptor_decisions_total{descriptor="d override",result="ok"} 1`)
	require.Contains(t, metrics, `headgate_decisions_total{headgate_operation="take",headgate_policy="rls",headgate_result="allowed",headgate_source="store"} 2`)
}

// A key named override is no limit that a request brings.
func TestKeyNamedOverride(t *testing.T) {
	t.Parallel()
	s := startServer(t, strings.ReplaceAll(userLimits, "user", "override"))
	for _, limit := range []*common.RateLimitDescriptor_RateLimitOverride{nil, {RequestsPerUnit: 7, Unit: typev3.RateLimitUnit_DAY}} {
		req := userRequest("x")
		req.Descriptors[0].Entries[0].Key, req.Descriptors[0].Limit = "override", limit
		_, err := s.service.ShouldRateLimit(context.Background(), req)
		require.NoError(t, err)
	}
	metrics := scrape(t, s)
	require.Contains(t, metrics, `headgated_descriptor_decisions_total{descriptor="d.override",result="ok"} 1`)
	require.Contains(t, metrics, `headgated_descriptor_decisions_total{descriptor="d override",result="ok"} 1`)
}
