package httpclient

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/middleware/internal/field"
	"github.com/stretchr/testify/require"
)

func TestParseLimits(t *testing.T) {
	const none, most = -1, 999_999_999_999_999
	item := func(policy string, available, window, quota int64) limitItem {
		return limitItem{policy: policy, available: available, window: window, quota: quota}
	}
	for _, c := range []struct {
		lines []string
		want  []limitItem
	}{
		{nil, nil},
		{[]string{""}, nil},
		{[]string{`"default";r=50;t=30`}, []limitItem{item("default", 50, 30, none)}},
		{[]string{`"burst";r=0;t=0,"daily";r=7;t=86400`}, []limitItem{item("burst", 0, 0, none), item("daily", 7, 86400, none)}},
		{[]string{`"burst";a=80;w=45`}, []limitItem{item("burst", 80, 45, none)}}, // as the draft may rename them
		{[]string{`"a";r=1;t=2`, `"b";r=3;t=4`}, []limitItem{item("a", 1, 2, none), item("b", 3, 4, none)}},
		{[]string{`default;r=50;t=30`}, []limitItem{item("default", 50, 30, none)}}, // a token, by earlier drafts
		{[]string{`"p"; r=5; t=6`}, []limitItem{item("p", 5, 6, none)}},
		{[]string{` "p";r=5;t=6 , "q";r=1;t=1 `}, []limitItem{item("p", 5, 6, none), item("q", 1, 1, none)}},
		{[]string{`"p";r=5`}, []limitItem{item("p", 5, none, none)}},
		{[]string{`"p"`}, []limitItem{item("p", none, none, none)}},
		{[]string{`"p";q=100;w=60;qu="content-bytes";pk=:cHNsZ2s=:`}, []limitItem{{policy: "p", available: none, window: 60, quota: 100, unit: "content-bytes"}}},
		{[]string{`"p";q=100;qu="requests"`}, []limitItem{item("p", none, none, 100)}},
		{[]string{`"p";x;r=1;y=?1;t=2;z=1.5`}, []limitItem{item("p", 1, 2, none)}},
		{[]string{`"a\"b\\c,;";r=1;t=2`}, []limitItem{item(`a"b\c,;`, 1, 2, none)}},
		{[]string{`"p";r=1;r=3;t=2`}, []limitItem{item("p", 3, 2, none)}}, // the last of equal parameters counts
		{[]string{`"p";r=-1;t=-5`}, []limitItem{item("p", none, none, none)}},
		{[]string{`"p";r=1.5;t=99999999999999999999`}, []limitItem{item("p", none, most, none)}},
		{[]string{`"p";r=9999999999999999;t=1`}, []limitItem{item("p", most, 1, none)}},
		{[]string{`"p";x=%"f%c3%bc r";r=1;t=2`}, []limitItem{item("p", 1, 2, none)}}, // a Display String
		{[]string{`"p";x=@1659578233;r=1;t=2`}, []limitItem{item("p", 1, 2, none)}},  // a Date
		{[]string{`"p";x=%f;r=1;t=2`}, nil},
		{[]string{`"p;r=1;t=2`}, nil},
		{[]string{`"p";r=1;t=2 "q";r=1;t=2`}, nil},
		{[]string{`"p";=1`}, nil},
		{[]string{`"p";r=`}, nil},
		{[]string{`"p";pk=:abc`}, nil},
		{[]string{"\"p\x00\";r=1"}, nil},
		{[]string{`"p\x";r=1`}, nil},
		{[]string{`limit=100, remaining=50, reset=30`}, nil},  // a dictionary, by a draft before
		{[]string{strings.Repeat(`"p";r=1;t=2,`, 1000)}, nil}, // too long
		{[]string{strings.Repeat(",", 64<<10)}, nil},
		{[]string{`"` + strings.Repeat("x", 64<<10)}, nil},
	} {
		require.Equal(t, c.want, parseLimits(c.lines), "%.80q", c.lines)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		want  time.Duration // negative: none
		lines []string
	}{
		{-1, nil}, {-1, []string{""}}, {0, []string{"0"}}, {7, []string{"7"}}, {7, []string{" 7\t"}}, {7, []string{"007"}},
		{2, []string{"2.0"}}, {30, []string{"29.997"}}, {30, []string{"30, 30"}}, {30, []string{"30", "12"}}, {8, []string{"7, 8"}},
		{7, []string{"7s"}}, {360, []string{"6m0s"}}, {1, []string{"20ms"}}, {1000, []string{"1e3"}},
		{0, []string{"-1"}}, {0, []string{"soon"}}, {0, []string{"NaN"}}, {9, []string{"soon, 9"}},
		{math.MaxInt64, []string{"99999999999999999999999"}}, {math.MaxInt64, []string{"9223372037"}}, {math.MaxInt64, []string{"Inf"}},
		{math.MaxInt64, []string{"9223372036.8"}}, {math.MaxInt64, []string{"2562047h47m16.854775807s"}},
		{60, []string{"Tue, 24 Nov 2026 12:01:00 GMT"}}, {60, []string{"Tuesday, 24-Nov-26 12:01:00 GMT"}},
		{60, []string{"Tue Nov 24 12:01:00 2026"}}, {0, []string{"Tue, 24 Nov 2026 11:59:00 GMT"}},
		{61, []string{"Tue, 24 Nov 2026 12:01:00 GMT", "61"}},
		{60, []string{"2026-11-24T12:01:00Z"}}, {60, []string{"2026-11-24T13:01:00+01:00"}}, {60, []string{"2026-11-24T12:01Z"}},
		{math.MaxInt64, []string{"Fri, 31 Dec 9999 23:59:59 GMT"}},
	} {
		if c.want > 0 && c.want != math.MaxInt64 {
			c.want *= time.Second
		}
		got, ok := retryAfter(http.Header{"Retry-After": c.lines}, now)
		require.Equal(t, c.want >= 0, ok, c.lines)
		require.Equal(t, max(c.want, 0), got, c.lines)
	}
}

// TestLowest: of two members of one name the lower one holds.
func TestLowest(t *testing.T) {
	items := lowest(parseLimits([]string{`"api";r=8;t=10, "b";r=1;t=1`, `"api";r=4;t=20`, `"api";r=4;t=30, "api";q=1`}))
	require.Equal(t, []limitItem{{policy: "api", available: 4, window: 30, quota: -1}, {policy: "b", available: 1, window: 1, quota: -1}}, items)
}

func FuzzParseLimits(f *testing.F) {
	f.Add(`"default";r=50;t=30, b;q=1;pk=:aa:`)
	f.Fuzz(func(t *testing.T, s string) {
		for _, item := range parseLimits([]string{s, s}) {
			require.GreaterOrEqual(t, item.available, int64(-1))
		}
	})
}

// TestTransportIgnoresSlots: a client can't wait for a slot by a window.
func TestTransportIgnoresSlots(t *testing.T) {
	h := http.Header{field.Limit: {`"running";r=0`}, field.Policy: {`"running";q=20;qu="concurrent-requests"`}}
	items := parseLimits(h[field.Limit])
	require.Equal(t, []limitItem{{policy: "running", available: 0, window: -1, quota: -1}}, items)
	d := readDenial(&http.Response{StatusCode: 429, Header: h}, items, time.Time{})
	require.Equal(t, denied{is: true}, d)
	require.Len(t, parseLimits(h[field.Policy]), 1)
}
