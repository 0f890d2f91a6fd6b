//go:build go1.25

package httpclient

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The server's clock in the table below: the client's is years behind.
const (
	serverDate  = "Thu, 26 Nov 2026 12:00:00 GMT"
	serverEpoch = 1795694400
)

// sources are denials as servers send them, by the documentation of each. want is when
// the next request is sent, in seconds.
var sources = []struct {
	name   string
	status int
	header string // lines of "Name: value"
	want   float64
}{
	{"GitHub, primary limit", 403, "X-RateLimit-Limit: 5000\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1795694417\nX-RateLimit-Used: 5000\nX-RateLimit-Resource: core", 17},
	{"GitHub, secondary limit", 403, "Retry-After: 60\nX-RateLimit-Remaining: 4990\nX-RateLimit-Reset: 1795698000", 60},
	{"GitHub, secondary limit as 429", 429, "Retry-After: 30", 30},
	{"GitLab", 429, "RateLimit-Limit: 60\nRateLimit-Observed: 61\nRateLimit-Remaining: 0\nRateLimit-Reset: 1795694430\nRetry-After: 30", 30},
	{"GitLab without Retry-After", 429, "RateLimit-Limit: 60\nRateLimit-Remaining: 0\nRateLimit-Reset: 1795694445", 45},
	{"Bitbucket", 429, "", 1},
	{"OpenAI, requests", 429, "X-RateLimit-Remaining-Requests: 0\nX-RateLimit-Reset-Requests: 12s\nX-RateLimit-Remaining-Tokens: 149984\nX-RateLimit-Reset-Tokens: 6m0s", 12},
	{"OpenAI, tokens", 429, "X-RateLimit-Remaining-Requests: 59\nX-RateLimit-Reset-Requests: 1s\nX-RateLimit-Remaining-Tokens: 0\nX-RateLimit-Reset-Tokens: 50.5s", 51},
	{"OpenAI, both", 429, "X-RateLimit-Remaining-Requests: 0\nX-RateLimit-Reset-Requests: 20ms\nX-RateLimit-Remaining-Tokens: 0\nX-RateLimit-Reset-Tokens: 0m55s", 55},
	{"OpenAI, more tokens than are left", 429, "X-RateLimit-Remaining-Requests: 59\nX-RateLimit-Reset-Requests: 1s\nX-RateLimit-Remaining-Tokens: 10\nX-RateLimit-Reset-Tokens: 2.4s", 3},
	{"OpenAI, tokens are left for long", 429, "X-RateLimit-Remaining-Requests: 59\nX-RateLimit-Reset-Requests: 1s\nX-RateLimit-Remaining-Tokens: 149984\nX-RateLimit-Reset-Tokens: 6m0s", 1},
	{"OpenAI, milliseconds", 429, "Retry-After-Ms: 7240", 8},
	{"Azure OpenAI", 429, "Retry-After: 9\nRetry-After-Ms: 8512\nX-RateLimit-Remaining-Requests: 0\nX-RateLimit-Reset-Requests: 9", 9},
	{"Groq", 429, "Retry-After: 2\nX-RateLimit-Remaining-Tokens: 0\nX-RateLimit-Reset-Tokens: 7.66s", 2},
	{"Anthropic", 429, "Retry-After: 14\nAnthropic-RateLimit-Requests-Remaining: 0\nAnthropic-RateLimit-Requests-Reset: 2026-11-26T12:00:14Z", 14},
	{"Anthropic, input tokens", 429, "Anthropic-RateLimit-Input-Tokens-Remaining: 0\nAnthropic-RateLimit-Input-Tokens-Reset: 2026-11-26T12:00:33Z\n" +
		"Anthropic-RateLimit-Output-Tokens-Remaining: 8000\nAnthropic-RateLimit-Output-Tokens-Reset: 2026-11-26T12:00:50Z", 33},
	{"Anthropic, more tokens than are left", 429, "Anthropic-RateLimit-Input-Tokens-Remaining: 500\nAnthropic-RateLimit-Input-Tokens-Reset: 2026-11-26T12:00:09Z\n" +
		"Anthropic-RateLimit-Output-Tokens-Remaining: 8000\nAnthropic-RateLimit-Output-Tokens-Reset: 2026-11-26T12:00:20Z", 9},
	{"Anthropic, overloaded", 529, "Retry-After: 5", 5},
	{"Mistral", 429, "RateLimitBySize-Remaining: 0\nX-RateLimit-Remaining-Req-Minute: 0", 1},
	{"Hugging Face", 429, "RateLimit: \"api\";r=0;t=48\nRateLimit-Policy: \"fixed window\";\"api\";q=500;w=300", 48},
	{"Stripe", 429, "Stripe-Should-Retry: true", 1},
	{"Slack", 429, "Retry-After: 30", 30},
	{"Discord", 429, "Retry-After: 55\nX-RateLimit-Limit: 10\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1795694454.621\nX-RateLimit-Reset-After: 54.621", 55},
	{"Discord, reset-after", 429, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1795694999.9\nX-RateLimit-Reset-After: 0.75\nX-RateLimit-Bucket: abcd", 1},
	{"X", 429, "x-rate-limit-limit: 900\nx-rate-limit-remaining: 0\nx-rate-limit-reset: 1795694458", 58},
	{"Reddit", 429, "X-Ratelimit-Used: 100\nX-Ratelimit-Remaining: 0.0\nX-Ratelimit-Reset: 42", 42},
	{"Twitch", 429, "Ratelimit-Limit: 800\nRatelimit-Remaining: 0\nRatelimit-Reset: 1795694411", 11},
	{"Spotify", 429, "retry-after: 22", 22},
	{"Shopify", 429, "Retry-After: 2.0\nX-Shopify-Shop-Api-Call-Limit: 40/40", 2},
	{"Okta", 429, "X-Rate-Limit-Limit: 600\nX-Rate-Limit-Remaining: 0\nX-Rate-Limit-Reset: 1795694440", 40},
	{"Auth0", 429, "X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1795694403", 3},
	{"Atlassian", 429, "Retry-After: 8\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 2026-11-26T12:00Z\nX-RateLimit-NearLimit: true", 8},
	{"Jira, by reset", 429, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 2026-11-26T12:01Z", 60},
	{"Vimeo", 429, "X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 2026-11-26T12:00:21+00:00", 21},
	{"Linear", 429, "X-RateLimit-Requests-Limit: 1500\nX-RateLimit-Requests-Remaining: 0\nX-RateLimit-Requests-Reset: 1795694434000", 34},
	{"Mailgun", 429, "X-RateLimit-Limit: 300\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1795694406500", 7},
	{"SendGrid", 429, "X-RateLimit-Limit: 500\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1795694452", 52},
	{"RapidAPI", 429, "X-RateLimit-Requests-Limit: 100\nX-RateLimit-Requests-Remaining: 0\nX-RateLimit-Requests-Reset: 37", 37},
	{"HubSpot", 429, "X-HubSpot-RateLimit-Interval-Milliseconds: 10000\nX-HubSpot-RateLimit-Remaining: 0", 1},
	{"Docker Hub", 429, "RateLimit-Limit: 100;w=21600\nRateLimit-Remaining: 0;w=21600", 1},
	{"Cloudflare", 429, "Retry-After: 34\nRateLimit: \"default\";r=0;t=34\nRateLimit-Policy: \"default\";q=1200;w=300", 34},
	{"Zendesk", 429, "Retry-After: 36\nX-Rate-Limit: 700\nX-Rate-Limit-Remaining: 0\nRateLimit-Limit: 700\nRateLimit-Remaining: 0\nRateLimit-Reset: 36", 36},
	{"Microsoft Graph", 429, "Retry-After: 10", 10},
	{"Azure Resource Manager", 429, "Retry-After: 17\nX-Ms-RateLimit-Remaining-Subscription-Reads: 0", 17},
	{"Azure Cosmos DB", 429, "X-Ms-Retry-After-Ms: 3100", 4},
	{"Google Cloud", 429, "", 1},
	{"Amazon API Gateway", 429, "x-amzn-ErrorType: TooManyRequestsException", 1},
	{"Wikipedia", 429, "Retry-After: 1", 1},
	{"Elastic, unavailable", 503, "Retry-After: 5", 5},
	{"Salesforce, a date", 503, "Retry-After: Thu, 26 Nov 2026 12:00:19 GMT", 19},
	{"express-rate-limit, draft 6", 429, "RateLimit-Limit: 5\nRateLimit-Remaining: 0\nRateLimit-Reset: 28\nRateLimit-Policy: 5;w=60", 28},
	{"express-rate-limit, draft 7", 429, "RateLimit: limit=5, remaining=0, reset=29\nRateLimit-Policy: 5;w=60", 29},
	{"express-rate-limit, draft 8", 429, "RateLimit: \"5-in-1min\"; r=0; t=26\nRateLimit-Policy: \"5-in-1min\"; q=5; w=60; pk=:NGQ0:", 26},
	{"Laravel", 429, "Retry-After: 43\nX-RateLimit-Limit: 60\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1795694443", 43},
	{"Kong", 429, "RateLimit-Limit: 10\nRateLimit-Remaining: 0\nRateLimit-Reset: 13\nX-RateLimit-Remaining-Minute: 0\nRetry-After: 13", 13},
	{"Envoy", 429, "x-ratelimit-limit: 10, 10;w=60\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 24", 24},
	{"headgate", 429, "RateLimit-Policy: \"burst\";q=100;w=60\nRateLimit: \"burst\";r=0;t=44\nRetry-After: 44", 44},
	{"a fraction", 429, "Retry-After: 29.997", 30}, {"a proxy's and its upstream's", 429, "Retry-After: 30, 30", 30},
	{"two lines", 429, "Retry-After: 12\nRetry-After: 31", 31}, {"a unit", 429, "Retry-After: 7s", 7},
	{"an ISO date", 429, "Retry-After: 2026-11-26T12:00:23Z", 23}, {"negative", 429, "Retry-After: -5", 1},
	{"zero", 429, "Retry-After: 0", 1}, {"junk", 429, "Retry-After: soon", 1}, {"a time that has passed", 429, "X-RateLimit-Reset: 1795690000", 1},
	{"two lines of remaining", 429, "X-RateLimit-Remaining: 5\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 40", 40},
	{"two lines of remaining, the lower first", 429, "X-RateLimit-Remaining: 0\nX-RateLimit-Remaining: 5\nX-RateLimit-Reset: 40", 40},
	{"two lines of reset", 429, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 4\nX-RateLimit-Reset: 1795694440\nX-RateLimit-Reset: soon", 40},
	{"two lines of reset-after", 429, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset-After: 4\nX-RateLimit-Reset-After: 7\nX-RateLimit-Reset: 90", 7},
	{"two spellings of a name", 429, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 4\nX-Rate-Limit-Reset: 40", 40},
	{"an empty Retry-After", 429, "Retry-After: \nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 40", 40}, {"an empty one alone", 429, "Retry-After: ", 1},
	{"an empty one of a 403", 403, "Retry-After: ", 1}, {"an empty one, and a reset", 503, "Retry-After: \nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 40", 40}, {"an empty one of a 503", 503, "Retry-After: ", 1}, {"an empty one of a 529", 529, "Retry-After: ", 1},
	{"microseconds", 429, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1795694420000000", 20},
	{"nanoseconds", 429, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1795694420500000000", 21},
	{"years ahead", 429, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 4102444800", 1}, {"years from now", 429, "X-RateLimit-Reset: 99999999", 1},
	{"a teapot", 418, "Retry-After: 6", 6}, {"calm", 420, "Retry-After: 6", 6}, {"throttled", 498, "Retry-After: 6", 6},
	{"units are left", 429, "X-RateLimit-Remaining: 3\nX-RateLimit-Reset: 600", 1},
}

// TestSources: a request is sent when the server said, and none at once after a denial.
func TestSources(t *testing.T) {
	require.EqualValues(t, serverEpoch, mustParse(t, serverDate).Unix())
	named := 0
	for _, c := range sources {
		named++
		synctest.Test(t, func(t *testing.T) {
			h := http.Header{"Date": {serverDate}}
			for _, line := range strings.Split(c.header, "\n") {
				if name, value, ok := strings.Cut(line, ": "); ok {
					h.Add(name, value)
				}
			}
			a := &answers{list: []answer{{c.status, h}, ok}}
			tr, begin := &Transport{Base: &wire{a, 0}, MaxWait: time.Hour}, time.Now()
			require.Equal(t, 200, do(t, tr, getRequest(t)).StatusCode, c.name)
			require.InDelta(t, c.want, time.Since(begin).Seconds(), 1e-6, c.name)
			require.EqualValues(t, 2, a.n.Load(), c.name)
		})
	}
	require.GreaterOrEqual(t, named, 40)
}

func mustParse(t *testing.T, s string) time.Time {
	at, err := http.ParseTime(s)
	require.NoError(t, err)
	return at
}

// TestNoDenial: what tells nothing of rates is the caller's, at once.
func TestNoDenial(t *testing.T) {
	for _, first := range []answer{
		{403, nil}, {403, http.Header{"X-Ratelimit-Remaining": {"7"}, "X-Ratelimit-Reset": {"9"}}}, {503, nil}, {529, nil},
		{503, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"9"}}}, {500, http.Header{"Retry-After": {"1"}}}, {404, nil}, {413, http.Header{"Retry-After": {""}}},
		{200, http.Header{"X-Ratelimit-Remaining-Tokens": {"0"}, "X-Ratelimit-Reset-Tokens": {"6m0s"}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &answers{list: []answer{first, ok}}
			tr, begin := &Transport{Base: &wire{a, 0}}, time.Now()
			require.Equal(t, first.status, do(t, tr, getRequest(t)).StatusCode)
			require.Equal(t, 200, do(t, tr, getRequest(t)).StatusCode)
			require.Zero(t, time.Since(begin))
		})
	}
}

// TestOther4xx: a 4xx with Retry-After is the caller's, also of a request that may be repeated.
// Later requests wait.
func TestOther4xx(t *testing.T) {
	for _, status := range []int{400, 409, 413, 451} {
		synctest.Test(t, func(t *testing.T) {
			a := &answers{list: []answer{refusal(status, "7"), ok}}
			tr, begin := &Transport{Base: &wire{a, 0}}, time.Now()
			require.Equal(t, status, do(t, tr, getRequest(t)).StatusCode)
			require.Zero(t, time.Since(begin))
			require.Equal(t, 200, do(t, tr, getRequest(t)).StatusCode)
			require.Equal(t, 7*time.Second, time.Since(begin))
		})
	}
}

// TestBackoff: denials that name no time hold for 1, 2, 4 … 30 s, and for 1 s again after
// a response that is none.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bare := answer{status: 429}
		a := &answers{list: []answer{bare, bare, bare, bare, bare, bare, bare, ok, bare, ok}}
		tr, begin := &Transport{Base: &wire{a, 0}, MaxWait: time.Hour}, time.Now()
		require.Equal(t, 200, do(t, tr, getRequest(t)).StatusCode)
		require.Equal(t, (1+2+4+8+16+30+30)*time.Second, time.Since(begin))
		begin = time.Now()
		require.Equal(t, 200, do(t, tr, getRequest(t)).StatusCode)
		require.Equal(t, time.Second, time.Since(begin))
	})
}

// TestHungProbe: a request that hangs after a denial does not stop its server: another
// one is sent after a second.
func TestHungProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{list: []answer{refusal(429, "1"), ok}}
		var n atomic.Int64
		hang := make(chan struct{})
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			if n.Add(1) == 2 {
				<-hang
			}
			return (&wire{a, 0}).RoundTrip(r)
		})
		tr, done := &Transport{Base: base, MaxWait: time.Minute}, make(chan struct{})
		go func() {
			defer close(done)
			resp, err := tr.RoundTrip(getRequest(t))
			if err == nil {
				_ = resp.Body.Close()
			}
		}()
		time.Sleep(1200 * time.Millisecond)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		resp, err := tr.RoundTrip(newRequest(t, ctx, ""))
		if err == nil { // the Transport's own denial
			require.Equal(t, 429, resp.StatusCode)
			require.NoError(t, resp.Body.Close())
		}
		require.Equal(t, 300*time.Millisecond, time.Since(begin), "it waits as long as it may, and sends nothing")
		begin = time.Now()
		for range 3 {
			require.Equal(t, 200, do(t, tr, getRequest(t)).StatusCode)
		}
		require.LessOrEqual(t, time.Since(begin), time.Second)
		close(hang)
		<-done
	})
}

// TestOtherUnits: a policy that counts another unit than requests paces none, and holds
// them back when nothing is left.
func TestOtherUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		few := answer{200, http.Header{"Ratelimit": {`"tokens";r=3;t=60`}, "Ratelimit-Policy": {`"tokens";q=5000;w=60;qu="tokens"`}}}
		none := answer{200, http.Header{"Ratelimit": {`"tokens";r=0;t=60`}, "Ratelimit-Policy": {`"tokens";q=5000;w=60;qu="tokens"`}}}
		a := &answers{list: []answer{few, few, few, few, none, ok}}
		tr, begin := &Transport{Base: &wire{a, 0}}, time.Now()
		for range 5 {
			require.Equal(t, 200, do(t, tr, getRequest(t)).StatusCode)
		}
		require.Zero(t, time.Since(begin))
		require.Equal(t, 200, do(t, tr, getRequest(t)).StatusCode)
		require.Equal(t, time.Minute, time.Since(begin))
	})
}

// TestBoundedScopes: of more servers than are kept the least restrictive leave first, and
// long names are hashed.
func TestBoundedScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{MaxScopes: 100, MaxWait: -1, Scope: func(r *http.Request) string { return r.URL.Path }}
		tr.Base = roundTrip(func(r *http.Request) (*http.Response, error) {
			a := &answers{list: []answer{refusal(429, strings.TrimPrefix(r.URL.Path, "/"))}}
			return (&wire{a, 0}).RoundTrip(r)
		})
		send := func(path string) {
			r := getRequest(t)
			r.URL.Path = path
			do(t, tr, r)
		}
		for i := range 1000 {
			send(fmt.Sprint("/", 1000-i))
		}
		require.LessOrEqual(t, len(tr.mu.scopes), 100)
		require.NotNil(t, tr.mu.scopes["/1000"], "the longest denial stays")
		require.Nil(t, tr.mu.scopes["/500"])
		send("/" + strings.Repeat("9", 8000))
		for name := range tr.mu.scopes {
			require.LessOrEqual(t, len(name), longestName)
		}
	})
}

// TestScopeMemory: what one server costs, with 32 policies of long names at worst.
func TestScopeMemory(t *testing.T) {
	for name, header := range map[string]http.Header{
		"a denial": {"Retry-After": {"3600"}},
		"a policy": {"Ratelimit": {`"default";r=0;t=3600`}},
	} {
		tr := &Transport{MaxWait: -1, Scope: func(r *http.Request) string { return r.URL.Path }}
		tr.Base = roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 429, Header: header, Body: http.NoBody}, nil
		})
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range 5000 {
			r := getRequest(t)
			r.URL.Path = fmt.Sprint("/", i)
			do(t, tr, r)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / 5000
		t.Logf("%s: %d bytes per server", name, each)
		require.Less(t, each, int64(2000))
		runtime.KeepAlive(tr)
	}
}

// TestDenialWithoutABody: a base that returns no body, as a test double may, is asked again.
func TestDenialWithoutABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		client := &http.Client{Transport: &Transport{Base: roundTrip(func(*http.Request) (*http.Response, error) {
			asked++
			return &http.Response{StatusCode: map[bool]int{true: http.StatusTooManyRequests, false: http.StatusNoContent}[asked == 1]}, nil
		})}}
		resp, err := client.Get("http://example.com/")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusNoContent, resp.StatusCode)
	})
}
