package rls

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

func request(domain string, descriptors []*common.RateLimitDescriptor) *rlspb.RateLimitRequest {
	if descriptors == nil {
		descriptors = []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "none"}}}}
	}
	return &rlspb.RateLimitRequest{Domain: domain, Descriptors: descriptors}
}

// domain is one configuration, with what requests may ask of it.
type domain struct {
	name, text   string
	keys, values []string
}

// draw makes the configuration of a domain. full are the fields whose decisions differ
// in docs/server.md once a limit is exceeded.
func draw(r *rand.Rand, name string, full bool) domain {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\ndescriptors:\n", name)
	drawLevel(r, &b, "  ", 2, full)
	return domain{name, b.String(), []string{"a", "b", "c"}, []string{"", "1", "2", "x1", "x22", "y"}}
}

func drawLevel(r *rand.Rand, b *strings.Builder, indent string, depth int, full bool) {
	seen := map[string]bool{}
	for range 1 + r.IntN(4) {
		key, value := pick(r, "a", "b", "c"), pick(r, "", "", "1", "2", "x*", "x1")
		if seen[key+"_"+value] {
			continue
		}
		seen[key+"_"+value] = true
		fmt.Fprintf(b, "%s- key: %s\n", indent, key)
		inner := indent + "  "
		if value != "" {
			fmt.Fprintf(b, "%svalue: %s\n", inner, value)
		}
		if value == "x*" && r.IntN(2) == 0 {
			fmt.Fprintf(b, "%sshare_threshold: true\n", inner)
		}
		if r.IntN(4) > 0 {
			drawLimit(r, b, inner, full)
		}
		if depth > 0 && r.IntN(2) == 0 {
			fmt.Fprintf(b, "%sdescriptors:\n", inner)
			drawLevel(r, b, inner+"  ", depth-1, full)
		}
	}
}

func drawLimit(r *rand.Rand, b *strings.Builder, indent string, full bool) {
	name := pick(r, "", "", "n1", "n2") // in the status, so that a cause can be told by it
	if r.IntN(4) == 0 {
		name = "shadow"
		fmt.Fprintf(b, "%sshadow_mode: true\n", indent)
	}
	fmt.Fprintf(b, "%s%s: true\n", indent, pick(r, "detailed_metric", "value_to_metric"))
	if r.IntN(8) == 0 {
		fmt.Fprintf(b, "%srate_limit: {unlimited: true}\n", indent)
		return
	}
	limit := []int{0, 1, 2, 3, 10}[r.IntN(5)]
	if full {
		limit = []int{0, 5, 20, 100, 1000}[r.IntN(5)]
	}
	fmt.Fprintf(b, "%srate_limit:\n%s  unit: %s\n%s  requests_per_unit: %d\n", indent, indent,
		pick(r, "second", "minute", "HOUR", "day", "week", "month", "year"), indent, limit)
	if name != "" {
		fmt.Fprintf(b, "%s  name: %s\n", indent, name)
	}
	if full && name == "" && r.IntN(4) == 0 {
		fmt.Fprintf(b, "%s  replaces: [{name: n3}, {name: %s}]\n", indent, pick(r, "n1", "n2", "shadow"))
	}
}

func pick(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }

// descriptor draws a descriptor of up to three entries.
func (d domain) descriptor(r *rand.Rand) *common.RateLimitDescriptor {
	out := &common.RateLimitDescriptor{}
	for range 1 + r.IntN(3) {
		out.Entries = append(out.Entries, &common.RateLimitDescriptor_Entry{Key: pick(r, d.keys...), Value: pick(r, d.values...)})
	}
	return out
}

// referenceFiles are the good YAML files of the service's tests and examples, under
// domains of their own.
func referenceFiles(t testing.TB) (all []domain) {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", "github.com/envoyproxy/ratelimit").Output()
	require.NoError(t, err)
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &module))
	bad := regexp.MustCompile(`/(bad_|duplicate_|empty_|misspelled_|non_|replaces_|unlimited_|merge_)`)
	for _, pattern := range []string{"test/config/*.yaml", "test/integration/runtime/current/ratelimit/config/*.yaml", "examples/ratelimit/config/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(module.Dir, pattern))
		require.NoError(t, err)
		for _, f := range files {
			if bad.MatchString(f) {
				continue
			}
			text, err := os.ReadFile(f)
			require.NoError(t, err)
			d := domain{name: fmt.Sprintf("file%d", len(all)), values: []string{"", "other", "foobar", "files/x"}}
			d.text = regexp.MustCompile(`(?m)^domain: .*$`).ReplaceAllString(string(text), "domain: "+d.name)
			d.text = regexp.MustCompile(`(?m)value: (\S*)\*(\S+)$`).ReplaceAllString(d.text, "value: $1$2") // a letter there, any number of them here
			for _, m := range regexp.MustCompile(`(?m)key: (\S+)`).FindAllStringSubmatch(d.text, -1) {
				d.keys = append(d.keys, m[1])
			}
			for _, m := range regexp.MustCompile(`(?m)value: (\S+)`).FindAllStringSubmatch(d.text, -1) {
				d.values = append(d.values, m[1], strings.ReplaceAll(m[1], "*", "q"))
			}
			all = append(all, d)
		}
	}
	require.GreaterOrEqual(t, len(all), 8)
	return all
}

func texts(ds []domain) map[string]string {
	all := map[string]string{}
	for _, d := range ds {
		all[d.name] = d.text
	}
	return all
}

// awayFromBoundary waits until no second is about to end or has just begun: two services
// that are asked one after the other would count in different windows.
func awayFromBoundary() {
	if at := time.Now().Nanosecond(); at > 985e6 || at < 5e6 {
		time.Sleep(time.Duration((1e9+5e6-at)%1e9) * time.Nanosecond)
	}
}

// pair is what both services answered to a request.
type pair struct {
	reference, headgated *rlspb.RateLimitResponse
	second               int64 // of the Unix time at which both decided; 0 if it changed meanwhile
}

func ask(t testing.TB, reference, headgated *service, req *rlspb.RateLimitRequest) (p pair) {
	t.Helper()
	awayFromBoundary()
	begin := time.Now().Unix()
	var err error
	p.reference, err = reference.client.ShouldRateLimit(context.Background(), req)
	require.NoError(t, err)
	p.headgated, err = headgated.client.ShouldRateLimit(context.Background(), req)
	require.NoError(t, err)
	if time.Now().Unix() == begin {
		p.second = begin
	}
	return p
}

// equal compares two statuses: code, limit and what is left, and the reset within 1 s.
func equal(a, b *rlspb.RateLimitResponse_DescriptorStatus) bool {
	reset := a.DurationUntilReset.GetSeconds() - b.DurationUntilReset.GetSeconds()
	return a.Code == b.Code && proto.Equal(a.CurrentLimit, b.CurrentLimit) && a.LimitRemaining == b.LimitRemaining && reset >= -1 && reset <= 1
}

// windows remembers counts that the services may hold in different windows, since the
// second changed between their decisions.
type windows map[string]bool

func (w windows) key(req *rlspb.RateLimitRequest, i int, s *rlspb.RateLimitResponse_DescriptorStatus, second int64) string {
	unit := unitOf(s)
	return fmt.Sprint(entriesOf(req, i), unit, second/unit)
}

func unitOf(s *rlspb.RateLimitResponse_DescriptorStatus) int64 {
	unit := map[string]int64{"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 7 * 86400, "MONTH": 30 * 86400, "YEAR": 365 * 86400}[s.GetCurrentLimit().GetUnit().String()]
	return max(unit, 1)
}

func entriesOf(req *rlspb.RateLimitRequest, i int) string {
	entries := make([]string, len(req.Descriptors[i].Entries))
	for j, e := range req.Descriptors[i].Entries {
		if entries[j] = e.Key + "=" + e.Value; strings.Contains(e.Value, "x") { // may share a count
			entries[j] = e.Key + "=x"
		}
	}
	return fmt.Sprint(req.Domain, entries)
}

// starts remembers the units of the windows of a descriptor that begin at an instant.
type starts map[string]int64

// several reports whether there were two units.
func (w starts) several(req *rlspb.RateLimitRequest, i int, s *rlspb.RateLimitResponse_DescriptorStatus, second int64) bool {
	unit := unitOf(s)
	key := fmt.Sprint(entriesOf(req, i), second/unit*unit)
	if s.CurrentLimit != nil {
		w[key] |= unit // no unit's bits are all of another's
	}
	return w[key] != 0 && s.CurrentLimit != nil && w[key] != unit
}

// One descriptor, hits of 1: every answer is equal.
func TestEqualOne(t *testing.T) { equalOne(t, *requests) }

// TestEqualShadowMode is TestEqualOne under SHADOW_MODE, with a tenth of the requests: no
// request is denied, and each status is as it would be.
func TestEqualShadowMode(t *testing.T) { equalOne(t, *requests/10, "SHADOW_MODE=true") }

func equalOne(t *testing.T, requests int, env ...string) {
	r := rand.New(rand.NewPCG(1, 2))
	domains := referenceFiles(t)
	for i := range 200 {
		domains = append(domains, draw(r, fmt.Sprintf("d%d", i), false))
	}
	reference, headgated := both(t, texts(domains), append(env, "HEADGATED_BUDGET=5s")...)
	unsure, skipped, over := windows{}, 0, 0
	for n := range requests {
		d := domains[r.IntN(len(domains))]
		req := request(d.name, []*common.RateLimitDescriptor{d.descriptor(r)})
		p := ask(t, reference, headgated, req)
		a, b := p.reference.Statuses[0], p.headgated.Statuses[0]
		now := time.Now().Unix()
		if p.second == 0 {
			unsure[unsure.key(req, 0, a, now-1)], unsure[unsure.key(req, 0, a, now)] = true, true
		}
		if unsure[unsure.key(req, 0, a, now)] {
			skipped++
			continue
		}
		if a.Code == rlspb.RateLimitResponse_OVER_LIMIT {
			over++
		}
		require.Equal(t, p.reference.OverallCode, p.headgated.OverallCode, "request %d: %v\n%s", n, req, d.text)
		require.True(t, equal(a, b), "request %d: %v\nreference %v\nheadgated %v\n%s", n, req, a, b, d.text)
	}
	t.Logf("%d requests over %d configurations: all equal, %d of them over a limit; %d not compared at the end of a window", requests, len(domains), over, skipped)
	require.Less(t, skipped, requests/20+10)
	require.Greater(t, over, requests/100)
}

// causes are the named differences of docs/server.md.
const (
	allOrNothing = "all or nothing"
	lateCharge   = "late charges"
	freeShadow   = "a shadow has free units or is not charged"
	oneCount     = "descriptors of one count"
	zeroLimit    = "a limit of 0 denies 0 hits"
	ownCount     = "a shadow and an override count apart"
	oneStart     = "windows of two units that begin together are one count there"
)

// Several descriptors, hits, shadow, share_threshold, replaces, override, unlimited: equal up
// to a key's first denial in its window. Later differences have a cause. What the reference on
// the module proxy is too old for is held against a model: TestModel of
// cmd/headgated/internal/rls.
func TestEqualSeveral(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var domains []domain
	for i := range 200 {
		domains = append(domains, draw(r, fmt.Sprintf("d%d", i), true))
	}
	reference, headgated := both(t, texts(domains), "HEADGATED_BUDGET=5s")
	differ, counted, equalOnes, skipped := map[string]string{}, map[string]int{}, 0, 0
	kinds, units := map[string]int{}, starts{}
	for n := range *requests {
		d := domains[r.IntN(len(domains))]
		req := several(r, d)
		p := ask(t, reference, headgated, req)
		now := time.Now().Unix()
		cause := causeOf(req, p)
		w := windows{}
		for i := range req.Descriptors {
			key := w.key(req, i, p.reference.Statuses[i], now)
			if p.second == 0 {
				differ[key], differ[w.key(req, i, p.reference.Statuses[i], now-1)] = "window", "window"
			}
			name := p.reference.Statuses[i].GetCurrentLimit().GetName()
			kinds[key] |= kindOf(req.Descriptors[i], name)
			if units.several(req, i, p.reference.Statuses[i], now) && cause == "" {
				cause = oneStart
			}
			if cause == "" && kinds[key] == overridden|shadowed {
				cause = ownCount
			}
			if cause == "" {
				cause = differ[key]
			}
		}
		if cause == "window" {
			skipped++
		}
		same := p.reference.OverallCode == p.headgated.OverallCode
		for i := range req.Descriptors {
			same = same && equal(p.reference.Statuses[i], p.headgated.Statuses[i])
			if key := w.key(req, i, p.reference.Statuses[i], now); cause != "" && differ[key] == "" {
				differ[key] = cause
			}
		}
		if same {
			equalOnes++
			continue
		}
		require.NotEmpty(t, cause, "request %d: %v\nreference %v\nheadgated %v\n%s", n, req, p.reference, p.headgated, d.text)
		counted[cause]++
	}
	t.Logf("%d requests: %d equal; differences by cause: %v", *requests, equalOnes, counted)
	require.Less(t, skipped, *requests/10+10)
	require.Greater(t, equalOnes, *requests/4)
}

// What a count was asked by.
const (
	overridden = 1 << iota
	shadowed
)

func kindOf(d *common.RateLimitDescriptor, name string) int {
	switch {
	case d.Limit != nil:
		return overridden
	case name == "shadow":
		return shadowed
	}
	return 0
}

func several(r *rand.Rand, d domain) *rlspb.RateLimitRequest {
	req := request(d.name, []*common.RateLimitDescriptor{d.descriptor(r)})
	for range r.IntN(4) {
		req.Descriptors = append(req.Descriptors, d.descriptor(r))
	}
	req.HitsAddend = uint32([]int{0, 0, 1, 3}[r.IntN(4)])
	for _, e := range req.Descriptors {
		if r.IntN(4) == 0 {
			e.HitsAddend = wrapperspb.UInt64(uint64(r.IntN(5)))
		}
		if r.IntN(10) == 0 {
			e.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(10 + r.IntN(50)), Unit: typev3.RateLimitUnit(1 + r.IntN(4))}
		}
	}
	return req
}

// causeOf returns why the answers to a request, and to later ones of its keys, may
// differ; "" if nothing was denied.
func causeOf(req *rlspb.RateLimitRequest, p pair) string {
	seen := map[string]bool{}
	for _, d := range req.Descriptors {
		key := fmt.Sprint(d.Entries)
		if seen[key] {
			return oneCount
		}
		seen[key] = true
	}
	over := func(s *rlspb.RateLimitResponse_DescriptorStatus) bool {
		return s.Code == rlspb.RateLimitResponse_OVER_LIMIT
	}
	many := slices.ContainsFunc(req.Descriptors, func(d *common.RateLimitDescriptor) bool { return d.HitsAddend.GetValue() > 1 }) || req.HitsAddend > 1
	for i, s := range p.headgated.Statuses {
		switch ref := p.reference.Statuses[i]; {
		case ref.CurrentLimit != nil && ref.CurrentLimit.RequestsPerUnit == 0 && over(s) && !over(ref):
			return zeroLimit
		case ref.GetCurrentLimit().GetName() == "shadow" && ref.LimitRemaining == 0:
			return freeShadow
		}
	}
	switch {
	case slices.ContainsFunc(p.reference.Statuses, over) && many:
		return lateCharge
	case slices.ContainsFunc(p.reference.Statuses, over):
		return allOrNothing
	}
	return ""
}
