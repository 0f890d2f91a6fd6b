package limits_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/cmd/headgated/internal/limits"
	"github.com/stretchr/testify/require"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

func options(t testing.TB) limits.Options {
	t.Helper()
	base, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name: "base", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: headgate.FailOpen,
	}}, &headgate.Options{Instances: 2})
	require.NoError(t, err)
	return limits.Options{New: func(p headgate.Policy, borrow time.Duration) (*headgate.Limiter, error) {
		l, err := base.With(p)
		if err != nil {
			return nil, err
		}
		return l.WithBorrow(borrow)
	}}
}

func parse(t testing.TB, text string) (*limits.Config, error) {
	t.Helper()
	return limits.Parse([]limits.File{{Name: "limits.yaml", Data: []byte(text)}}, options(t))
}

// descriptor is made of "key=value" entries.
func descriptor(entries ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for _, e := range entries {
		k, v, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: k, Value: v})
	}
	return d
}

func find(t testing.TB, c *limits.Config, entries ...string) limits.Match {
	t.Helper()
	m, err := c.Find("d", descriptor(entries...))
	require.NoError(t, err)
	return m
}

func max(m limits.Match) int64 {
	if m.Rule == nil {
		return -1
	}
	return m.Rule.Max()
}

const nested = `
domain: d
descriptors:
  - key: a
    value: "1"
    rate_limit: {unit: second, requests_per_unit: 1}
    descriptors:
      - {key: b, rate_limit: {unit: MINUTE, requests_per_unit: 2}}
      - {key: b, value: x*, rate_limit: {unit: hour, requests_per_unit: 3}, detailed_metric: true}
      - {key: b, value: x1, rate_limit: {unit: day, requests_per_unit: 4}}
  - {key: a, rate_limit: {unit: week, requests_per_unit: 5}, value_to_metric: true}
  - {key: mid, value: 'x*y', rate_limit: {unit: month, requests_per_unit: 6}}
  - key: s
    value: f/*
    share_threshold: true
    descriptors:
      - {key: t, rate_limit: {unit: year, requests_per_unit: 7, name: seven, replaces: [{name: x}]}}
  - {key: zero, rate_limit: {unit: second, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
`

func TestFind(t *testing.T) {
	c, err := parse(t, nested)
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
	for _, test := range []struct {
		entries    []string
		max        int64
		key, label string
	}{
		{[]string{"a=1"}, 1, "d:a:1", "d.a_1"},
		{[]string{"a=2"}, 5, "d:a:2", "d.a_2"},
		{[]string{"a=1", "b=q"}, 2, "d:a:1:b:q", "d.a_1.b"},
		{[]string{"a=1", "b=x"}, 3, "d:a:1:b:x", "d.a_1.b_x"},
		{[]string{"a=1", "b=x22"}, 3, "d:a:1:b:x22", "d.a_1.b_x22"},
		{[]string{"a=1", "b=x1"}, 4, "d:a:1:b:x1", "d.a_1.b_x1"},
		{[]string{"a=1", "b=x1", "c=1"}, -1, "", ""},
		{[]string{"a=2", "b=1"}, -1, "", ""},
		{[]string{"mid=xay"}, 6, "d:mid:xay", "d.mid_x*y"},
		{[]string{"mid=x*y"}, 6, "d:mid:x*y", "d.mid_x*y"},
		{[]string{"s=f/1", "t=:"}, 7, "d:s:f/*:t:%3A", "d.s_f/*.t"},
		{[]string{"s=f/2", "t=:"}, 7, "d:s:f/*:t:%3A", "d.s_f/*.t"},
		{[]string{"s=f/2"}, -1, "", ""},
		{[]string{"zero=1"}, 0, "", "d.zero"},
		{[]string{"free=1"}, 0, "", "d.free"},
		{nil, -1, "", ""},
		{[]string{"unknown=1"}, -1, "", ""},
	} {
		m := find(t, c, test.entries...)
		require.Equal(t, test.max, max(m), test.entries)
		require.Equal(t, test.key, m.Key, test.entries)
		require.Equal(t, test.label, m.Label, test.entries)
	}
	require.Equal(t, []string{"x"}, find(t, c, "s=f/1", "t=1").Rule.Replaces)
	require.True(t, find(t, c, "free=1").Rule.Unlimited)
	other, err := c.Find("other", descriptor("a=1"))
	require.NoError(t, err)
	require.Nil(t, other.Rule)
}

func TestKeysAreThoseOfHeadgateKey(t *testing.T) {
	c, err := parse(t, "domain: d\ndescriptors: [{key: 'k:%', rate_limit: {unit: second, requests_per_unit: 1}}]")
	require.NoError(t, err)
	require.Equal(t, headgate.Key("d", "k:%", "a:b%"), find(t, c, "k:%=a:b%").Key)
	long := find(t, c, "k:%="+strings.Repeat("x", 5000)).Key
	require.Less(t, len(long), 100)
	require.NotEqual(t, long, find(t, c, "k:%="+strings.Repeat("x", 5001)).Key)
}

func TestOverride(t *testing.T) {
	c, err := parse(t, nested)
	require.NoError(t, err)
	d := descriptor("a=1")
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 9, Unit: typev3.RateLimitUnit_MINUTE}
	m, err := c.Find("d", d)
	require.NoError(t, err)
	require.EqualValues(t, 9, m.Rule.Max())
	require.Equal(t, rls.RateLimitResponse_RateLimit_MINUTE, m.Rule.Limit.Unit)
	require.Equal(t, "d:a:1", m.Key, "the descriptor's own count")
	again, err := c.Find("d", d)
	require.NoError(t, err)
	require.Same(t, m.Rule, again.Rule, "made once")
	for i := range uint32(3000) { // clients choose them: the cache is bounded, and goes on
		d.Limit.RequestsPerUnit = i
		_, err := c.Find("d", d)
		require.NoError(t, err)
	}
	d.Limit.Unit = typev3.RateLimitUnit_UNKNOWN
	_, err = c.Find("d", d)
	require.ErrorContains(t, err, "unit")
}

func TestAdditions(t *testing.T) {
	c, err := parse(t, `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: second, requests_per_unit: 5, algorithm: token-bucket, on_failure: open, charge: always, borrow: 50ms}}
  - {key: b, rate_limit: {unit: second, requests_per_unit: 5}, metadata: {plan: gold, n: 3}}
`)
	require.NoError(t, err)
	a, b := find(t, c, "a=1").Rule, find(t, c, "b=1").Rule
	require.Equal(t, rule.KindTokenBucket, a.Policy.Algorithm.Kind())
	require.Equal(t, headgate.FailOpen, a.Policy.OnFailure)
	require.True(t, a.FailureMode)
	require.Equal(t, limits.ChargeAlways, a.Charge)
	require.Equal(t, 50*time.Millisecond, a.Borrow)
	require.Zero(t, b.Borrow)
	require.Equal(t, rule.KindFixedWindow, b.Policy.Algorithm.Kind())
	require.False(t, b.FailureMode)
	require.Equal(t, limits.ChargeDefault, b.Charge)
	require.Equal(t, "gold", b.Metadata.Fields["plan"].GetStringValue())
}

// A borrow of the options applies to a limit that names none.
func TestBorrowOfTheOptions(t *testing.T) {
	opts := options(t)
	opts.Borrow = "50ms"
	c, err := limits.Parse([]limits.File{{Name: "limits.yaml", Data: []byte(`
domain: d
descriptors:
  - {key: a, rate_limit: {unit: second, requests_per_unit: 5}}
  - {key: b, rate_limit: {unit: second, requests_per_unit: 5, borrow: 0s}}
  - {key: c, rate_limit: {unit: second, requests_per_unit: 5, algorithm: sliding-log}}
`)}}, opts)
	require.NoError(t, err)
	require.Equal(t, 50*time.Millisecond, find(t, c, "a=1").Rule.Borrow)
	require.Zero(t, find(t, c, "b=1").Rule.Borrow)
	require.Equal(t, 50*time.Millisecond, find(t, c, "c=1").Rule.Borrow)
}

// Each mistake is refused with its line and key.
func TestMistakes(t *testing.T) {
	const head = "domain: d\ndescriptors:\n  - key: a\n"
	for _, test := range []struct {
		text string
		line int
		key  string
	}{
		{"", 1, "domain"},
		{"'''", 1, ""},
		{"descriptors: []", 1, "domain"},
		{"- a", 1, "domain"},
		{"domain: d\ndescriptors: [a]", 2, "descriptors"},
		{"domain: d\ndescriptors: 7", 2, "descriptors"},
		{"domain: d\ndescriptors: [{value: x}]", 2, "key"},
		{"0.5: d", 1, "0.5"},
		{head + "  - key: a", 4, "key"},
		{head + "    ratelimit: {}", 4, "ratelimit"},
		{head + "    value: 1.5", 4, "value"},
		{head + "    shadow_mode: perhaps", 4, "shadow_mode"},
		{head + "    shadow_mode: 'true'", 4, "shadow_mode"},
		{head + "    share_threshold: true", 4, "share_threshold"},
		{head + "    metadata: 7", 4, "metadata"},
		{head + "    rate_limit: 7", 4, "rate_limit"},
		{head + "    rate_limit: {}", 4, "unit"},
		{head + "    rate_limit:\n      unit: fortnight", 5, "unit"},
		{head + "    rate_limit:\n      unit: unknown", 5, "unit"},
		{head + "    rate_limit: {unlimited: true,\n      unit: day}", 5, "unit"},
		{head + "    rate_limit: {unit: day,\n      requests_per_unit: -1}", 5, "requests_per_unit"},
		{head + "    rate_limit: {unit: day,\n      requests_per_unit: 4294967296}", 5, "requests_per_unit"},
		{head + "    rate_limit: {unit: day,\n      requests_per_unit: '5'}", 5, "requests_per_unit"},
		{head + "    rate_limit: {unit: day, name: n,\n      replaces: [{name: n}]}", 5, "replaces"},
		{head + "    rate_limit: {unit: day,\n      replaces: [{name: }]}", 5, "replaces"},
		{head + "    rate_limit: {unit: day,\n      algorithm: leaky}", 5, "algorithm"},
		{head + "    rate_limit: {unit: day,\n      on_failure: maybe}", 5, "on_failure"},
		{head + "    rate_limit: {unit: day,\n      charge: twice}", 5, "charge"},
		{head + "    rate_limit: {unit: day,\n      borrow: soon}", 5, "borrow"},
		{head + "    rate_limit: {unit: day, requests_per_unit: 4000000, algorithm: sliding-log}", 4, "rate_limit"},
		{"domain: d\ndescriptors: &x\n  - key: a\n    descriptors: *x", 2, "descriptors"},
	} {
		_, err := parse(t, test.text)
		var e *limits.Error
		require.ErrorAs(t, err, &e, test.text)
		require.Equal(t, test.key, e.Key, "%v: %s", err, test.text)
		if !strings.Contains(test.text, "&x") { // of an endless file it may be any
			require.Equal(t, test.line, e.Line, "%v: %s", err, test.text)
		}
	}
}

// Ways to write what means the same, and what has no effect.
func TestTolerance(t *testing.T) {
	c, err := parse(t, `
domain: d
unit: day
descriptors:
  - &a {key: a, value: 1, shadow_mode: yes, rate_limit: {unit: second, requests_per_unit: 1}}
  - <<: *a
    value: true
    key: b
  - {key: c, rate_limit: , descriptors: }
`)
	require.NoError(t, err)
	require.True(t, find(t, c, "a=1").Rule.Shadow)
	require.True(t, find(t, c, "b=true").Rule.Shadow)
	require.Nil(t, find(t, c, "c=1").Rule)
	require.Len(t, c.Warnings, 1)
	require.Contains(t, c.Warnings[0], "limits.yaml:3: unit")
}

func TestDomains(t *testing.T) {
	one := limits.File{Name: "1", Data: []byte("domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]")}
	two := limits.File{Name: "2", Data: []byte("domain: d\ndescriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 2}}]")}
	opts := options(t)
	_, err := limits.Parse([]limits.File{one, two}, opts)
	require.EqualError(t, err, `2:1: domain: duplicate domain "d"`)
	opts.MergeDomains = true
	c, err := limits.Parse([]limits.File{one, two}, opts)
	require.NoError(t, err)
	require.EqualValues(t, 1, max(find(t, c, "a=1")))
	require.EqualValues(t, 2, max(find(t, c, "b=1")))
	_, err = limits.Parse([]limits.File{one, one}, opts)
	require.ErrorContains(t, err, "duplicate descriptor")
}

// A volume of Kubernetes: files that are links into a hidden folder.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	at := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	require.NoError(t, os.MkdirAll(at("..1", "sub"), 0o700))
	require.NoError(t, os.WriteFile(at("..1", "a.yaml"), []byte("domain: d"), 0o600))
	require.NoError(t, os.WriteFile(at("..1", "sub", "b.yaml"), []byte("domain: e"), 0o600))
	require.NoError(t, os.Symlink("..1", at("..data")))
	require.NoError(t, os.Symlink(filepath.Join("..data", "a.yaml"), at("a.yaml")))
	require.NoError(t, os.Symlink(filepath.Join("..data", "sub"), at("sub")))
	require.NoError(t, os.Symlink("somebody@host.1:2", at(".#a.yaml"))) // an editor's lock
	files, warnings, err := limits.Read(dir)
	require.NoError(t, err)
	require.Equal(t, []limits.File{{Name: at("a.yaml"), Data: []byte("domain: d")}, {Name: at("sub", "b.yaml"), Data: []byte("domain: e")}}, files)
	require.Equal(t, []string{at(".#a.yaml") + " is not read: it is hidden"}, warnings)
	_, _, err = limits.Read(at("none"))
	require.Error(t, err)
}

// Folders in a folder are read too, each once: one may link to another above it.
func TestNestedFolders(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, "teams", "blue")
	require.NoError(t, os.MkdirAll(deep, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(deep, "x.yaml"), []byte("domain: d"), 0o600))
	require.NoError(t, os.Symlink(dir, filepath.Join(deep, "up")))
	require.NoError(t, os.WriteFile(filepath.Join(deep, ".y.yaml"), nil, 0o600))
	files, warnings, err := limits.Read(dir)
	require.NoError(t, err)
	require.Equal(t, []limits.File{{Name: filepath.Join(deep, "x.yaml"), Data: []byte("domain: d")}}, files)
	require.Equal(t, []string{filepath.Join(deep, ".y.yaml") + " is not read: it is hidden",
		filepath.Join(deep, "up") + " is not read: it links to a folder that is read already"}, warnings)
}

// reference returns the folder of envoyproxy/ratelimit in the module cache. The module
// that requires it is that of the comparison.
func reference(t *testing.T) string {
	cmd := exec.Command("go", "mod", "download", "-json", "github.com/envoyproxy/ratelimit")
	cmd.Dir = "../../../../bench/rls"
	out, err := cmd.Output()
	var module struct{ Dir string }
	if err != nil || json.Unmarshal(out, &module) != nil || module.Dir == "" {
		t.Skipf("NOT TESTED: envoyproxy/ratelimit is neither in the module cache nor on the module proxy: %v %s", err, out)
	}
	return module.Dir
}

// The examples and test files of envoyproxy/ratelimit: a good one loads, and a bad one is
// refused with line and key.
func TestReferenceFiles(t *testing.T) {
	dir := reference(t)
	bad := map[string]string{
		"bad_limit_unit": "unit", "bad_yaml": "", "duplicate_key": "key", "empty_domain": "domain", "empty_key": "key",
		"misspelled_key": "ratelimit", "misspelled_key2": "requestsperunit", "non_map_list": "descriptors", "non_string_key": "0.25",
		"replaces_empty": "replaces", "replaces_self": "replaces", "unlimited_with_unit": "unit",
	}
	var files []string
	for _, pattern := range []string{"test/config/*.yaml", "test/integration/runtime/current/ratelimit/config/*.yaml", "examples/ratelimit/config/*.yaml"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		files = append(files, found...)
	}
	good := 0
	for _, file := range files {
		read, _, err := limits.Read(file)
		require.NoError(t, err)
		_, err = limits.Parse(read, options(t))
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		key, isBad := bad[name]
		if !isBad {
			require.NoError(t, err, file)
			good++
			continue
		}
		var e *limits.Error
		require.True(t, errors.As(err, &e), "%s: %v", file, err)
		require.Positive(t, e.Line, err)
		require.Equal(t, key, e.Key, err)
	}
	require.GreaterOrEqual(t, good, 10)
	require.GreaterOrEqual(t, len(files)-good, len(bad))
}
