package rls_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/cmd/headgated/internal/limits"
	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"github.com/stretchr/testify/require"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// A model of what no version of envoyproxy/ratelimit on the module proxy has: stars anywhere
// in a value, quota_mode as an "or", and negative hits. It is written from the comments of
// the fields and from that service's README, and decides by regular expressions and maps.

type modelEntry struct {
	key, pattern string
	share, quota bool
	limit        int
}

type model struct {
	entries []modelEntry
	counts  map[string]int
}

// find returns the entry of a value: the one that is equal, else the first whose stars
// match, else the one without a value.
func (m *model) find(key, value string) (*modelEntry, string) {
	for _, stars := range []bool{false, true} {
		for i := range m.entries {
			e := &m.entries[i]
			expr := "(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(e.pattern), `\*`, ".*") + "$"
			switch {
			case e.key != key || e.pattern == "":
			case !stars && e.pattern == value:
				return e, key + "=" + value
			case stars && strings.Contains(e.pattern, "*") && regexp.MustCompile(expr).MatchString(value):
				if e.share {
					value = e.pattern
				}
				return e, key + "=" + value
			}
		}
	}
	for i := range m.entries {
		if e := &m.entries[i]; e.key == key && e.pattern == "" {
			return e, key + "=" + value
		}
	}
	return nil, ""
}

// decide returns the codes of a request: over all, and of each descriptor. A descriptor that
// gives hits back decides nothing, and its count is less by one first. Nothing is charged for a request that is denied.
func (m *model) decide(req *pb.RateLimitRequest) (over bool, each []bool) {
	quotas, spent, charge := 0, 0, []string{}
	for _, d := range req.Descriptors {
		if e, count := m.find(d.Entries[0].Key, d.Entries[0].Value); e != nil && d.IsNegativeHits {
			m.counts[count] = max(0, m.counts[count]-1)
		}
	}
	for _, d := range req.Descriptors {
		e, count := m.find(d.Entries[0].Key, d.Entries[0].Value)
		if e == nil || d.IsNegativeHits {
			each = append(each, false)
			continue
		}
		full := m.counts[count]+1 > e.limit
		each = append(each, full)
		if e.quota {
			if quotas++; full {
				spent++
			}
		} else if full {
			over = true
		}
		if !full {
			charge = append(charge, count)
		}
	}
	if over = over || quotas > 0 && spent == quotas; !over {
		for _, count := range charge {
			m.counts[count]++
		}
	}
	return over, each
}

// drawModel makes entries, with the file that has them.
func drawModel(r *rand.Rand) (*model, string) {
	m, seen := &model{counts: map[string]int{}}, map[string]bool{}
	file := "domain: d\ndescriptors:\n"
	for range 2 + r.IntN(5) {
		e := modelEntry{key: []string{"a", "b", "c"}[r.IntN(3)], pattern: []string{"", "x", "x*", "*y", "x*y", "*", "x*z*y", "*z*", "/a/*/b"}[r.IntN(9)],
			limit: 1 + r.IntN(4), quota: r.IntN(3) == 0}
		if seen[e.key+e.pattern] {
			continue
		}
		seen[e.key+e.pattern] = true
		e.share = strings.Contains(e.pattern, "*") && r.IntN(3) == 0
		m.entries = append(m.entries, e)
		file += fmt.Sprintf("- {key: %s, value: %q, share_threshold: %v, quota_mode: %v, rate_limit: {unit: year, requests_per_unit: %d}}\n",
			e.key, e.pattern, e.share, e.quota, e.limit)
	}
	return m, file
}

// Random requests, each of the model's codes. HEADGATE_LONG asks for 100,000 of them.
func TestModel(t *testing.T) {
	r, requests := rand.New(rand.NewPCG(7, 8)), 10_000
	if os.Getenv("HEADGATE_LONG") != "" {
		requests = 100_000
	}
	base, err := headgate.New(memory.New(nil), []headgate.Policy{{Name: "base", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: headgate.FailOpen}}, nil)
	require.NoError(t, err)
	stars, quotas, negative, denied := 0, 0, 0, 0
	for n := range requests / 100 {
		m, text := drawModel(r)
		domain := fmt.Sprint("d", n)
		config, err := limits.Parse([]limits.File{{Name: "f", Data: []byte(strings.Replace(text, "domain: d", "domain: "+domain, 1))}},
			limits.Options{New: func(p headgate.Policy, _ time.Duration) (*headgate.Limiter, error) { return base.With(p) }})
		require.NoError(t, err, text)
		c := &counter{requests: map[rls.Outcome]int{}, descriptors: map[string]int{}}
		s := rls.New(rls.Options{Config: func() *limits.Config { return config }, Observer: c, Budget: 1e9})
		for range 100 {
			req := &pb.RateLimitRequest{Domain: domain, Descriptors: drawRequest(r, m)}
			over, each := m.decide(req)
			resp, err := s.ShouldRateLimit(ctx, req)
			require.NoError(t, err)
			require.Equal(t, over, resp.OverallCode == pb.RateLimitResponse_OVER_LIMIT, "%v\n%s", req, text)
			for i, d := range req.Descriptors {
				require.Equal(t, each[i], resp.Statuses[i].Code == pb.RateLimitResponse_OVER_LIMIT, "%d of %v\n%v\n%s", i, req, resp, text)
				e, _ := m.find(d.Entries[0].Key, d.Entries[0].Value)
				stars += one(e != nil && strings.Contains(e.pattern, "*"))
				quotas += one(e != nil && e.quota)
				negative += one(d.IsNegativeHits)
			}
			denied += one(over)
		}
	}
	t.Logf("%d requests as the model: %d descriptors by stars, %d by quotas, %d with negative hits; %d requests denied", requests, stars, quotas, negative, denied)
	for _, n := range []int{stars, quotas, negative, denied} {
		require.Greater(t, n, requests/20)
	}
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// drawRequest makes descriptors of counts that differ.
func drawRequest(r *rand.Rand, m *model) (all []*common.RateLimitDescriptor) {
	seen := map[string]bool{}
	for range 1 + r.IntN(4) {
		key, value := []string{"a", "b", "c"}[r.IntN(3)], []string{"", "x", "xy", "xzy", "y", "z", "/a/1/b", "/a/b", "x*y"}[r.IntN(9)]
		if _, count := m.find(key, value); count == "" || !seen[count] {
			seen[count] = true
			all = append(all, &common.RateLimitDescriptor{IsNegativeHits: r.IntN(8) == 0,
				Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}})
		}
	}
	return all
}
