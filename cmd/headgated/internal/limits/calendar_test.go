package limits_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

func oneLimit(fields string) string {
	return "domain: d\ndescriptors: [{key: k, rate_limit: {" + fields + "}}]"
}

// Civil periods in a zone. Without algorithm a month is 30 days, as with envoyproxy/ratelimit.
func TestCalendar(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for fields, want := range map[string]algo.Algorithm{
		"unit: month, requests_per_unit: 5, algorithm: calendar":                                        algo.Calendar(5, algo.Month(1), time.UTC),
		"unit: MONTH, requests_per_unit: 5, algorithm: calendar, zone: Europe/Berlin, anchor: 15":       algo.Calendar(5, algo.Month(15), berlin),
		"unit: week, requests_per_unit: 5, algorithm: calendar, zone: Europe/Berlin":                    algo.Calendar(5, algo.Week(time.Monday), berlin),
		"unit: week, requests_per_unit: 5, algorithm: calendar, anchor: Sunday":                         algo.Calendar(5, algo.Week(time.Sunday), time.UTC),
		"unit: day, requests_per_unit: 5, algorithm: calendar, zone: Europe/Berlin, unit_multiplier: 1": algo.Calendar(5, algo.Day(), berlin),
		"unit: month, requests_per_unit: 5":                                                             algo.FixedWindow(algo.Per(5, 30*24*time.Hour)),
	} {
		c, err := parse(t, oneLimit(fields))
		require.NoError(t, err, fields)
		got := find(t, c, "k=1").Rule.Policy.Algorithm
		require.Equal(t, want.Identity(), got.Identity(), fields)
		require.Equal(t, want.Max(), got.Max())
	}
	for fields, want := range map[string]string{
		"unit: hour, requests_per_unit: 5, algorithm: calendar":                     "rate_limit: algorithm: calendar has the units day, week and month, not HOUR",
		"unit: hour, requests_per_unit: 0, algorithm: calendar":                     "rate_limit: algorithm: calendar has the units day, week and month, not HOUR",
		"unit: month, requests_per_unit: 0, algorithm: calendar, anchor: 32":        `rate_limit: the anchor of a month is "32"; want a day from 1 to 31`,
		"unit: day, requests_per_unit: 0, unit_multiplier: 401":                     "rate_limit: ",
		"unit: day, requests_per_unit: 5, algorithm: calendar, anchor: 3":           "rate_limit: a day has no anchor",
		"unit: month, requests_per_unit: 5, algorithm: calendar, anchor: 32":        `rate_limit: the anchor of a month is "32"; want a day from 1 to 31`,
		"unit: week, requests_per_unit: 5, algorithm: calendar, anchor: 1":          `rate_limit: the anchor of a week is "1"; want a weekday such as monday`,
		"unit: day, requests_per_unit: 5, algorithm: calendar, zone: Mars/Base":     "zone: unknown time zone Mars/Base; want a name such as Europe/Berlin",
		"unit: day, requests_per_unit: 5, algorithm: calendar, zone: Local":         "Local",
		"unit: day, requests_per_unit: 5, algorithm: calendar, unit_multiplier: 2":  "rate_limit: algorithm: calendar has no unit_multiplier",
		"unit: day, requests_per_unit: 5, zone: UTC":                                "zone: only algorithm: calendar has a zone",
		"unit: day, requests_per_unit: 5, anchor: 1":                                "anchor: only algorithm: calendar has an anchor",
		"unit: day, requests_per_unit: 5, unit_multiplier: 0":                       "unit_multiplier: want at least 1",
		"unit: day, requests_per_unit: 5, unit_multiplier: 401":                     "rate_limit: ",
		"unit: year, requests_per_unit: 5, unit_multiplier: 4294967295":             "rate_limit: ",
		"unit: month, requests_per_unit: 5, algorithm: token-bucket, zone: Etc/UTC": "zone: only algorithm: calendar has a zone",
	} {
		_, err := parse(t, oneLimit(fields))
		require.ErrorContains(t, err, want, fields)
		require.ErrorContains(t, err, "limits.yaml:2: ", fields)
	}
}

// The reset of a rule that nothing is counted for is the boundary of its period.
func TestUntilReset(t *testing.T) {
	now := time.Date(2026, 2, 27, 22, 0, 0, 0, time.UTC) // 23:00 in Berlin, a Friday
	for fields, want := range map[string]time.Duration{
		"unit: month, requests_per_unit: 5, algorithm: calendar, zone: Europe/Berlin": 25 * time.Hour,
		"unit: day, requests_per_unit: 5, algorithm: calendar, zone: Europe/Berlin":   time.Hour,
		"unit: week, requests_per_unit: 5, algorithm: calendar":                       50 * time.Hour,
		"unit: month, requests_per_unit: 0, algorithm: calendar, zone: Europe/Berlin": 25 * time.Hour,
		"unit: day, requests_per_unit: 5":                                             2 * time.Hour,
		"unit: hour, requests_per_unit: 0":                                            time.Hour,
		"unit: minute, requests_per_unit: 5, unit_multiplier: 10":                     10 * time.Minute,
	} {
		c, err := parse(t, oneLimit(fields))
		require.NoError(t, err)
		require.Equal(t, want, find(t, c, "k=1").Rule.UntilReset(now), fields)
	}
}

// unit_multiplier is the period's factor, in a file and in a limit of a request.
func TestUnitMultiplier(t *testing.T) {
	c, err := parse(t, oneLimit("unit: second, requests_per_unit: 3, unit_multiplier: 30"))
	require.NoError(t, err)
	fromFile := find(t, c, "k=1").Rule
	require.Equal(t, 30*time.Second, fromFile.Policy.Algorithm.Limit().Period)
	require.EqualValues(t, 30, fromFile.Limit.GetUnitMultiplier().GetValue(), "a proxy shows w=30")
	d := withLimit(3, 1, 30)
	m, err := c.Find("d", d)
	require.NoError(t, err)
	require.Equal(t, fromFile.Policy.Algorithm.Identity(), m.Rule.Policy.Algorithm.Identity())
	require.EqualValues(t, 30, m.Rule.Limit.GetUnitMultiplier().GetValue())
	m, err = c.Find("d", withLimit(3, 1, 1))
	require.NoError(t, err)
	require.Nil(t, m.Rule.Limit.UnitMultiplier)
	m, err = c.Find("d", withLimit(0, 4, 4_000_000_000))
	require.NoError(t, err, "no request passes, whatever the period")
	require.Nil(t, m.Rule.Limiter)
	for _, bad := range [][3]uint32{{3, 0, 1}, {3, 1, 0}, {3, 4, 4_000_000_000}, {3, 9, 1}} {
		_, err = c.Find("d", withLimit(bad[0], bad[1], bad[2]))
		require.Error(t, err, fmt.Sprint(bad))
	}
}

// withLimit is a descriptor that brings its own limit.
func withLimit(requests, unit, times uint32) *common.RateLimitDescriptor {
	d := descriptor("k=1")
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: typev3.RateLimitUnit(unit)}
	if times != 1 {
		d.Limit.UnitMultiplier = wrapperspb.UInt32(times)
	}
	return d
}
