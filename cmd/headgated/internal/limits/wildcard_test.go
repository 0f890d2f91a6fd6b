package limits_test

import (
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A star is any number of bytes, wherever it stands, as with envoyproxy/ratelimit since
// March 2026. The first two patterns are those of its test/config/wildcard.yaml (Apache
// License 2.0), where the second one matched nothing before.
func TestWildcards(t *testing.T) {
	for _, test := range []struct {
		pattern string
		yes, no []string
	}{
		{pattern: "foo*", yes: []string{"foo", "foo1", "foo*", "foo/bar"}, no: []string{"", "fo", "xfoo"}},
		{pattern: "bar*b", yes: []string{"barb", "bar1b", "barbarb", "bar*b"}, no: []string{"bar", "ba", "barbc", "barc"}},
		{pattern: "/api/*/orders", yes: []string{"/api/1/orders", "/api//orders", "/api/a/b/orders"}, no: []string{"/api/orders", "/api/1/orders/2", "/API/1/orders"}},
		{pattern: "*.example.com", yes: []string{"a.example.com", ".example.com", "a.b.example.com"}, no: []string{"example.com", "a.example.comx"}},
		{pattern: "/a/*/b/*/c", yes: []string{"/a/1/b/2/c", "/a/b/b/b/c", "/a/1/b/2/b/3/c"}, no: []string{"/a/1/c", "/a/b/c", "/a/1/b/c"}},
		{pattern: "*", yes: []string{"", "x", "*"}},
		{pattern: "a**z", yes: []string{"az", "a1z"}, no: []string{"a", "z"}},
		{pattern: "aba*aba", yes: []string{"abaaba", "aba1aba"}, no: []string{"aba", "ababa"}},
		{pattern: "*mid*", yes: []string{"mid", "xmidx"}, no: []string{"mi", "dim"}},
	} {
		c, err := parse(t, fmt.Sprintf("domain: d\ndescriptors: [{key: k, value: %q, rate_limit: {unit: hour, requests_per_unit: 1}}]", test.pattern))
		require.NoError(t, err)
		for _, value := range test.yes {
			require.EqualValues(t, 1, max(find(t, c, "k="+value)), "%s: %s", test.pattern, value)
			require.Equal(t, "d:k:"+value, find(t, c, "k="+value).Key, "each value has its own count")
		}
		for _, value := range test.no {
			require.EqualValues(t, -1, max(find(t, c, "k="+value)), "%s: %s", test.pattern, value)
		}
	}
}

// The name without a star stands first, then the entries with one in the order of the file,
// then the key alone. All values of a share count together.
func TestWildcardOrder(t *testing.T) {
	c, err := parse(t, `
domain: d
descriptors:
  - {key: k, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: k, value: 'a*', rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: k, value: '*z', share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: k, value: 'b*y*z', rate_limit: {unit: hour, requests_per_unit: 4}}
  - {key: k, value: az, rate_limit: {unit: hour, requests_per_unit: 5}}
  - key: 'p*'
    descriptors: [{key: q, value: 'x*y', share_threshold: true, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 6}}]
`)
	require.NoError(t, err)
	for value, want := range map[string]string{
		"az": "5 d:k:az", "abz": "2 d:k:abz", "byz": "3 d:k:*z", "z": "3 d:k:*z", "b": "1 d:k:b", "*z": "3 d:k:*z",
	} {
		m := find(t, c, "k="+value)
		require.Equal(t, want, fmt.Sprint(max(m), " ", m.Key), value)
	}
	m := find(t, c, "pod=1", "q=x1y")
	require.Equal(t, "6 d:pod:1:q:x*y d.pod_1.q_x*y", fmt.Sprint(max(m), " ", m.Key, " ", m.Label))
	_, err = parse(t, "domain: d\ndescriptors: [{key: k, value: v, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1}}]")
	require.ErrorContains(t, err, "limits.yaml:2: share_threshold: wants a value with a '*'")
}

// Patterns of two letters against path.Match, which has the same stars where no value has a
// slash.
func TestWildcardsDrawn(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	word := func(letters string) string {
		var b strings.Builder
		for range r.IntN(7) {
			b.WriteByte(letters[r.IntN(len(letters))])
		}
		return b.String()
	}
	matched := 0
	for range 200 {
		pattern := word("ab**") + "*" + word("ab*")
		c, err := parse(t, fmt.Sprintf("domain: d\ndescriptors: [{key: k, value: %q, rate_limit: {unit: hour, requests_per_unit: 1}}]", pattern))
		require.NoError(t, err)
		for range 30 {
			value := word("ab")
			want, err := path.Match(pattern, value)
			require.NoError(t, err)
			if want {
				matched++
			}
			require.Equal(t, want, find(t, c, "k="+value).Rule != nil, "%s: %s", pattern, value)
		}
	}
	require.Greater(t, matched, 200)
}
