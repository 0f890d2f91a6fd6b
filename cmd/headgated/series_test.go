package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/cmd/headgated/internal/limits"
	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"github.com/stretchr/testify/require"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// ask sends a request of one descriptor, "key=value,key=value".
func (s *testServer) ask(t testing.TB, descriptor string) {
	t.Helper()
	req := &rlspb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{{}}}
	for _, entry := range strings.Split(descriptor, ",") {
		key, value, _ := strings.Cut(entry, "=")
		req.Descriptors[0].Entries = append(req.Descriptors[0].Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	_, err := s.service.ShouldRateLimit(context.Background(), req)
	require.NoError(t, err)
}

func decided(label string, n int) string {
	return fmt.Sprintf("headgated_descriptor_decisions_total{descriptor=%q,result=\"ok\"} %d\n", label, n)
}

// A value that is long counts as its path: a scrape is not as large as what clients send.
func TestLongValues(t *testing.T) {
	t.Parallel()
	s := startServer(t, "domain: d\ndescriptors: [{key: any, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}]")
	for i := range 10 {
		s.ask(t, fmt.Sprint("any=", i, strings.Repeat("x", 60<<10)))
	}
	s.ask(t, "any="+strings.Repeat("x", 100))
	metrics := scrape(t, s)
	require.Contains(t, metrics, decided("d.any", 10))
	require.Contains(t, metrics, decided("d.any_"+strings.Repeat("x", 100), 1))
	require.Less(t, len(metrics), 60<<10)
}

// Values take no series of paths, nor of the values of another descriptor. Those that have none
// count as their path.
func TestValuesBesidePaths(t *testing.T) {
	t.Parallel()
	s := startServer(t, `
domain: d
descriptors:
- {key: user, rate_limit: {unit: day, requests_per_unit: 2}}
- {key: any, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: each, value: "*", value_to_metric: true, descriptors: [{key: b, value: x, rate_limit: {unit: day, requests_per_unit: 1}}]}
- {key: fixed, value: x, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: shared, value: "x*", detailed_metric: true, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}
`)
	for i := range 400 {
		s.ask(t, fmt.Sprint("any=", i))
	}
	for _, descriptor := range []string{"each=1,b=x", "fixed=x", "shared=x1", "user=x"} {
		s.ask(t, descriptor)
	}
	metrics := scrape(t, s)
	require.Contains(t, metrics, decided("d.any", 400-maxDescriptors/2))
	for _, label := range []string{"d.any_0", "d.each_1.b_x", "d.fixed_x", "d.shared_x*", "d.user"} {
		require.Contains(t, metrics, decided(label, 1))
	}
	require.NotContains(t, metrics, otherDescriptors)
}

// A value that makes the label of another descriptor counts as its own path.
func TestLabelOfAnotherPath(t *testing.T) {
	t.Parallel()
	s := startServer(t, `
domain: d
descriptors:
- {key: a, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 9}}
- {key: a_x, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 9}}
- {key: a_b, descriptors: [{key: c, rate_limit: {unit: day, requests_per_unit: 9}}]}
`)
	for _, descriptor := range []string{"a=b.c", "a_b=1,c=2", "a_x=y", "a=x_y"} {
		s.ask(t, descriptor)
	}
	metrics := scrape(t, s)
	require.Contains(t, metrics, decided("d.a", 2))
	require.Contains(t, metrics, decided("d.a_b.c", 1))
	require.Contains(t, metrics, decided("d.a_x_y", 1))
}

// Series of paths leave with them, so that those of the files in force have theirs.
func TestSeriesLeave(t *testing.T) {
	t.Parallel()
	m, err := newMetrics(slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	var label string
	for i := range 3 * maxDescriptors {
		label = fmt.Sprint("d.", i)
		m.descriptors.reserve([]limits.Label{{Path: label, Valued: true}, {Path: "stays"}})
		m.Descriptor(label, label+"_x", rls.OK)
		m.Descriptor("stays", "stays", rls.OK)
	}
	families, err := m.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "headgated_descriptor_decisions_total" {
			got := map[string]float64{}
			for _, c := range f.GetMetric() {
				got[c.GetLabel()[0].GetValue()] += c.GetCounter().GetValue()
			}
			require.Equal(t, map[string]float64{label: 0, label + "_x": 1, "stays": 3 * maxDescriptors}, got)
			require.Len(t, f.GetMetric(), 9)
		}
	}
}

// A new share holds for the values that came before it.
func TestShareAfterAReload(t *testing.T) {
	t.Parallel()
	m, err := newMetrics(slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	all := []limits.Label{{Path: "a", Valued: true}}
	for i := range 10 {
		m.descriptors.reserve(all)
		for _, l := range all {
			for n := range maxDescriptors {
				m.Descriptor(l.Path, fmt.Sprint(l.Path, "_", n), rls.OK)
			}
		}
		all = append(all, limits.Label{Path: fmt.Sprint("b", i), Valued: true})
	}
	n := 0
	m.descriptors.all.Range(func(any, any) bool { n++; return true })
	require.LessOrEqual(t, n, maxDescriptors+len(all))
}
