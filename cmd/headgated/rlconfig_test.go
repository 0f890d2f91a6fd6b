package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/cmd/headgated/internal/limits"
	"github.com/stretchr/testify/require"

	limitpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
)

// rlconfig returns what is in force.
func (s *testServer) rlconfig(t testing.TB) (o limits.Origin, all []limitInForce) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, s.httpURL()+"/rlconfig", nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "application/json")
	resp, err := http.DefaultClient.Do(req)
	code, body := read(t, resp, err)
	require.Equal(t, 200, code, body)
	got := struct {
		*limits.Origin
		Limits *[]limitInForce `json:"limits"`
	}{&o, &all}
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	return o, all
}

// The limits in force, from which files and since when. A mistake changes nothing.
func TestRLConfig(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits)
	first, all := s.rlconfig(t)
	require.Equal(t, []string{s.file}, first.Files)
	require.Equal(t, "files", first.Source)
	require.WithinDuration(t, time.Now(), first.Since, time.Minute)
	require.Equal(t, "d.user", all[0].Descriptor)
	require.EqualValues(t, 2, all[0].RequestsPerUnit)
	require.Equal(t, s.file, all[0].File)
	resp, err := http.Get(s.httpURL() + "/rlconfig")
	_, text := read(t, resp, err)
	require.Contains(t, text, "# files, version "+first.Version+", since ")
	require.Contains(t, text, "\nd.user: unit=DAY requests_per_unit=2, unlimited: false, shadow_mode: false, quota_mode: false, algorithm: fixed-window, on_failure: unavailable # "+s.file+":")

	resp, err = http.Get("http://" + s.listeners["metrics"].Addr().String() + "/rlconfig")
	code, _ := read(t, resp, err)
	require.Equal(t, 200, code)

	replaceFile(t, s.file, "domain: d\ndescriptors: [{key: user, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 9, on_failure: open}}]")
	require.Eventually(t, func() bool { o, _ := s.rlconfig(t); return o.Version != first.Version }, 20*time.Second, 5*time.Millisecond)
	second, all := s.rlconfig(t)
	require.Equal(t, "9 HOUR open true", fmt.Sprint(all[0].RequestsPerUnit, " ", all[0].Unit, " ", all[0].OnFailure, " ", all[0].Shadow))
	replaceFile(t, s.file, "domain: ")
	require.Eventually(t, func() bool {
		return strings.Contains(scrape(t, s), `headgated_config_refused{files="limits"} 1`)
	}, 20*time.Second, 5*time.Millisecond)
	third, _ := s.rlconfig(t)
	require.Equal(t, second, third)
}

// A limit of the calendar is shown with its zone and its first day.
func TestRLConfigOfTheCalendar(t *testing.T) {
	t.Parallel()
	s := startServer(t, "domain: d\ndescriptors: [{key: user, rate_limit: {unit: month, requests_per_unit: 9, algorithm: calendar, zone: Europe/Berlin, anchor: 15}}]")
	_, all := s.rlconfig(t)
	require.Equal(t, "calendar month from 15, Europe/Berlin", all[0].Algorithm+" "+all[0].Period)
	resp, err := http.Get(s.httpURL() + "/rlconfig")
	_, text := read(t, resp, err)
	require.Contains(t, text, "algorithm: calendar (month from 15, Europe/Berlin), on_failure")
}

// What a new stream sends again is in force since it came first, also after a refusal. Another
// version of the same content is another.
func TestXDSSentAgain(t *testing.T) {
	t.Parallel()
	c, address := startControl(t)
	v, log := logged(t, "", "-config", "", "-xds", address)
	s := &testServer{server: v}
	c.next(t)
	send := func(version string, limit uint32) limits.Origin {
		domain := "d"
		if limit == 0 {
			domain = "" // refused
		}
		c.send <- resources(t, version, perHour(domain, limit), perHour("e", 1))
		c.next(t)
		o, _ := s.rlconfig(t)
		return o
	}
	first := send("41", 7)
	c.send <- nil
	c.next(t)
	require.Equal(t, first, send("41", 7))
	require.Equal(t, first, send("42", 0))
	require.Contains(t, scrape(t, s), `headgated_config_refused{files="limits"} 1`)
	require.Equal(t, first, send("41", 7))
	require.Contains(t, scrape(t, s), `headgated_config_refused{files="limits"} 0`)
	require.Equal(t, 1, strings.Count(log.String(), "limits: loaded"), log.String())
	second := send("42", 7)
	require.Equal(t, "42", second.Version)
	require.True(t, second.Since.After(first.Since))
	send("42", 8)
	require.EqualValues(t, 8, v.watcher.now.Load().Rules()[0].Max())
}

// Over xDS the version is that of the discovery service, and only of what is in force.
func TestRLConfigOverXDS(t *testing.T) {
	t.Parallel()
	c, address := startControl(t)
	s := startServer(t, "", "-config", "", "-xds", address)
	require.Equal(t, 503, s.status(t, "/rlconfig"))
	c.next(t)
	c.send <- resources(t, "41", perHour("d", 7))
	c.next(t)
	o, _ := s.rlconfig(t)
	require.Equal(t, "xds 41 [xds:d]", fmt.Sprint(o.Source, " ", o.Version, " ", o.Files))
	c.send <- resources(t, "42", perHour("", 7))
	c.next(t)
	o, _ = s.rlconfig(t)
	require.Equal(t, "xds 41 [xds:d]", fmt.Sprint(o.Source, " ", o.Version, " ", o.Files))
}

// Discovery services may have one version for different limits, and several for the same.
func TestDigestOverXDS(t *testing.T) {
	t.Parallel()
	digest := func(version string, r ...*limitpb.RateLimitConfig) string {
		c, address := startControl(t)
		s := startServer(t, "", "-config", "", "-xds", address)
		c.next(t)
		c.send <- resources(t, version, r...)
		c.next(t)
		resp, err := http.Get(s.httpURL() + "/rlconfig")
		_, text := read(t, resp, err)
		o, _ := s.rlconfig(t)
		require.Contains(t, text, ", digest "+o.Digest+"\n")
		return o.Digest
	}
	one := digest("1", perHour("d", 7), perHour("e", 1))
	require.Equal(t, one, digest("9", perHour("e", 1), perHour("d", 7)))
	require.NotEqual(t, one, digest("1", perHour("d", 8), perHour("e", 1)))
}

// The digest of resources is the same in every build: protojson adds spaces in some.
func TestResourceAsFile(t *testing.T) {
	t.Parallel()
	r := (&xdsClient{}).read(resources(t, "1", perHour("d", 7)))
	require.NoError(t, r.err)
	require.NotRegexp(t, `[,:] `, string(r.files[0].Data))
}

// TestViewsAreMadeOnce: a stranger who asks often spends no processor on it.
func TestViewsAreMadeOnce(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits)
	shown := s.watcher.views.Load()
	require.Same(t, &shown.text()[0], &shown.text()[0])
	require.Same(t, &shown.json()[0], &shown.json()[0])
}
