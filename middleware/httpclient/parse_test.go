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
	const none = -1
	for _, c := range []struct {
		lines []string
		want  []limitItem
	}{
		{nil, nil},
		{[]string{""}, nil},
		{[]string{`"default";r=50;t=30`}, []limitItem{{"default", 50, 30, none}}},
		{[]string{`"burst";r=0;t=0,"daily";r=7;t=86400`}, []limitItem{{"burst", 0, 0, none}, {"daily", 7, 86400, none}}},
		{[]string{`"burst";a=80;w=45`}, []limitItem{{"burst", 80, 45, none}}}, // as the draft may rename them
		{[]string{`"a";r=1;t=2`, `"b";r=3;t=4`}, []limitItem{{"a", 1, 2, none}, {"b", 3, 4, none}}},
		{[]string{`default;r=50;t=30`}, []limitItem{{"default", 50, 30, none}}}, // a token, by earlier drafts
		{[]string{`"p"; r=5; t=6`}, []limitItem{{"p", 5, 6, none}}},
		{[]string{` "p";r=5;t=6 , "q";r=1;t=1 `}, []limitItem{{"p", 5, 6, none}, {"q", 1, 1, none}}},
		{[]string{`"p";r=5`}, []limitItem{{"p", 5, none, none}}},
		{[]string{`"p"`}, []limitItem{{"p", none, none, none}}},
		{[]string{`"p";q=100;w=60;qu="content-bytes";pk=:cHNsZ2s=:`}, []limitItem{{"p", none, 60, 100}}},
		{[]string{`"p";x;r=1;y=?1;t=2;z=1.5`}, []limitItem{{"p", 1, 2, none}}},
		{[]string{`"a\"b\\c,;";r=1;t=2`}, []limitItem{{`a"b\c,;`, 1, 2, none}}},
		{[]string{`"p";r=1;r=3;t=2`}, []limitItem{{"p", 3, 2, none}}}, // the last of equal parameters counts
		{[]string{`"p";r=-1;t=-5`}, []limitItem{{"p", none, none, none}}},
		{[]string{`"p";r=1.5;t=99999999999999999999`}, []limitItem{{"p", none, none, none}}},
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
		value, date string
		want        time.Duration // negative: none
	}{
		{"", "", -1}, {"0", "", 0}, {"7", "", 7 * time.Second}, {" 7\t", "", 7 * time.Second}, {"007", "", 7 * time.Second},
		{"99999999999999999999999", "", math.MaxInt64}, {"9223372037", "", math.MaxInt64},
		{"-1", "", -1}, {"+1", "", -1}, {"1.5", "", -1}, {"soon", "", -1}, {"7, 8", "", -1}, {"1e3", "", -1},
		{"Tue, 24 Nov 2026 12:01:00 GMT", "", time.Minute},
		{"Tuesday, 24-Nov-26 12:01:00 GMT", "", time.Minute},
		{"Tue Nov 24 12:01:00 2026", "", time.Minute},
		{"Tue, 24 Nov 2026 11:59:00 GMT", "", 0},
		{"Tue, 24 Nov 2026 12:01:00 GMT", "Tue, 24 Nov 2026 12:00:30 GMT", 30 * time.Second}, // the server's clock is 30 s ahead
		{"Tue, 24 Nov 2026 12:01:00 GMT", "junk", time.Minute},
		{"Fri, 31 Dec 9999 23:59:59 GMT", "", math.MaxInt64},
	} {
		h := http.Header{"Retry-After": {c.value}, "Date": {c.date}}
		got, ok := retryAfter(h, now)
		require.Equal(t, c.want >= 0, ok, c.value)
		require.Equal(t, max(c.want, 0), got, c.value)
	}
	_, ok := retryAfter(http.Header{}, now)
	require.False(t, ok)
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
	require.Equal(t, time.Duration(0), spent(items))
	require.Len(t, parseLimits(h[field.Policy]), 1)
}
