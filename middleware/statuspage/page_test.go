package statuspage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/middleware/statuspage"
	"github.com/stretchr/testify/require"
)

var ctx = context.Background()

func perDay(name string, n int64) headgate.Policy {
	return headgate.Policy{Name: name, Algorithm: algo.FixedWindow(algo.PerDay(n)), OnFailure: headgate.FailOpen}
}

func limiter(t *testing.T, s backend.Store, policies ...headgate.Policy) *headgate.Limiter {
	l, err := headgate.New(s, policies, nil)
	require.NoError(t, err)
	return l
}

func pageOf(t *testing.T, limiters ...*headgate.Limiter) *statuspage.Page {
	p := statuspage.New(limiters...)
	t.Cleanup(p.Close)
	p.Status() // the limiters count from here on
	return p
}

func allow(t *testing.T, l *headgate.Limiter, key string, calls int) {
	for range calls {
		_, err := l.Allow(ctx, key)
		require.NoError(t, err)
	}
}

func get(t *testing.T, p http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// TestStatus: what became of calls, by limit and by key; and the store in memory.
func TestStatus(t *testing.T) {
	l := limiter(t, memory.New(&memory.Options{MaxKeys: 500}), perDay("requests", 5))
	p := pageOf(t, l)
	p.Keys = true
	p.Origin = func() statuspage.Origin { return statuspage.Origin{Source: "limits.yaml", Version: "7"} }
	allow(t, l, "user:1", 8)
	s := p.Status()
	require.Equal(t, statuspage.Counts{Passed: 5, Denied: 3}, s.Limits[0].Minutes)
	require.Equal(t, "requests", s.Limits[0].Name)
	require.Equal(t, "FixedWindow(5 per 24h0m0s)", s.Limits[0].Rule)
	require.Positive(t, s.Limits[0].PerSecond.Denied)
	require.Equal(t, []statuspage.Key{{Key: "user:1", Count: 3}}, s.Denied)
	require.Equal(t, []statuspage.Key{{Key: "user:1", Count: 2}}, s.Near)
	require.Equal(t, &statuspage.Memory{Counts: 1, Max: 500}, s.Stores[0].Memory)
	require.NotEmpty(t, s.Build.Go)

	html := get(t, p, "/debug/limits/").Body.String()
	for _, text := range []string{"requests", "user:1", "FixedWindow(5 per 24h0m0s)", "limits.yaml", `class="denied" d="M0 `, "1 of 500"} {
		require.Contains(t, html, text)
	}
	var read statuspage.Status
	w := get(t, p, "/debug/limits/status.json")
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &read))
	require.Equal(t, s.Denied, read.Denied)
	require.Equal(t, s.Limits[0].Minutes, read.Limits[0].Minutes)
}

// TestRemote: circuits, round trips and their sizes of a store on Redis, and what no store decided.
func TestRemote(t *testing.T) {
	server := redistest.Start(t)
	store, err := standalone.Open("redis://"+server.Addr(), &standalone.Options{Budget: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	l := limiter(t, store, perDay("requests", 5))
	p := pageOf(t, l)
	allow(t, l, "k", 3)
	require.Eventually(t, func() bool { return p.Status().Stores[0].RoundTrips.Total == 3 }, 10*time.Second, time.Millisecond, "the last one is counted after its answer")
	s := p.Status().Stores[0]
	require.Equal(t, "remote", s.Kind)
	require.Equal(t, []statuspage.Circuit{{Node: server.Addr(), State: "closed"}}, s.Circuits)
	require.EqualValues(t, 3, s.RoundTrips.Sizes[0])
	require.InDelta(t, 1, s.RoundTrips.CallsPerTrip, 0)
	require.Nil(t, s.Memory)
	require.Contains(t, get(t, p, "/").Body.String(), server.Addr())
	require.NoError(t, store.Close())
	dead, err := standalone.Open("redis://127.0.0.1:1", nil)
	require.NoError(t, err)
	l = limiter(t, dead, perDay("requests", 5))
	p = pageOf(t, l)
	allow(t, l, "k", 3)
	require.Equal(t, statuspage.Counts{Undecided: 3}, p.Status().Limits[0].Minutes)
	require.EqualValues(t, 3, p.Status().Stores[0].FailOpen)
}

// TestNoKeys: neither the page nor its JSON has a key, unless the option shows them. Equal keys have
// equal hashes, and keys that differ beyond what is kept have not.
func TestNoKeys(t *testing.T) {
	l := limiter(t, memory.New(nil), perDay("requests", 5))
	p := pageOf(t, l)
	long := strings.Repeat("secret", 600)
	allow(t, l, "secret-token", 9)
	allow(t, l, long+"a", 8)
	allow(t, l, long+"b", 7)
	for _, path := range []string{"/", "/status.json"} {
		require.NotContains(t, get(t, p, path).Body.String(), "secret")
	}
	all := p.Status().Denied
	require.Len(t, all, 3)
	require.NotEqual(t, all[1].Hash, all[2].Hash)
	require.Equal(t, all, p.Status().Denied)
	p.Keys = true
	require.Contains(t, get(t, p, "/").Body.String(), "secret-token")
}

// TestHostileKeys: whatever a client's key is, the page has the same elements, and no control
// character.
func TestHostileKeys(t *testing.T) {
	elements := func(keys ...string) (tags []string, text string) {
		t.Helper()
		l := limiter(t, memory.New(nil), perDay("requests", 5))
		p := pageOf(t, l)
		p.Keys = true
		for i, key := range keys {
			allow(t, l, key, 20-i)
		}
		for _, k := range p.Status().Denied {
			require.LessOrEqual(t, len(k.Key), 124)
		}
		text = get(t, p, "/").Body.String()
		return regexp.MustCompile(`<[^>]*?[ >]`).FindAllString(text, -1), text
	}
	want, _ := elements("a", "b", "c", "d", "e")
	got, text := elements("<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "\x00\x1b[2J\r\n\u202e\u2066", "\xff\xfe</table>", strings.Repeat("<b>", 4096/3))
	require.Equal(t, want, got)
	require.NotRegexp(t, "[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", text)
}

// TestListedTwice: a limiter that is listed twice counts once, and a nil or zero one shows nothing.
func TestListedTwice(t *testing.T) {
	l := limiter(t, memory.New(nil), perDay("requests", 5))
	p := pageOf(t, l, nil, new(headgate.Limiter), l)
	allow(t, l, "k", 2)
	s := p.Status()
	require.Len(t, s.Limits, 1)
	require.EqualValues(t, 2, s.Limits[0].Minutes.Passed)
	require.Len(t, s.Stores, 1)
	var zero statuspage.Page
	zero.Close()
	require.Empty(t, zero.Status().Limits)
	require.Equal(t, http.StatusOK, get(t, &zero, "/").Code)
}

// TestHeaders: the page forbids scripts but its own, frames and guesses of a type, and is not kept.
func TestHeaders(t *testing.T) {
	p := pageOf(t, limiter(t, memory.New(nil), perDay("requests", 5)))
	w := get(t, p, "/")
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "script-src 'self';")
	require.NotContains(t, w.Header().Get("Content-Security-Policy"), "unsafe")
	require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.NotRegexp(t, `<script>|style=|javascript:| on[a-z]+=|https?://[^w]`, w.Body.String())
	for path, kind := range map[string]string{"/page.js": "text/javascript; charset=utf-8", "/page.css": "text/css; charset=utf-8", "/icon.svg": "image/svg+xml"} {
		require.Equal(t, kind, get(t, p, path).Header().Get("Content-Type"))
	}
	require.Equal(t, http.StatusNotFound, get(t, p, "/page.html").Code)
	require.Equal(t, http.StatusNotFound, get(t, p, "/debug/limits").Code)
}

// TestReadOnly: no method but GET and HEAD is served.
func TestReadOnly(t *testing.T) {
	p := pageOf(t, limiter(t, memory.New(nil), perDay("requests", 5)))
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
		require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	}
}

// TestFloodShows: a flood on three of many keys, at full length of a million, is on the page within
// two seconds, in the right order, with each store.
func TestFloodShows(t *testing.T) {
	keys, length := redistest.Steps(20_000, 1_000_000), time.Duration(redistest.Steps(500, 1500))*time.Millisecond
	redis, err := standalone.Open("redis://"+redistest.Start(t).Addr(), &standalone.Options{Budget: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = redis.Close() })
	for name, store := range map[string]backend.Store{"memory": memory.New(&memory.Options{MaxKeys: 2 * keys}), "redis": redis} {
		t.Run(name, func(t *testing.T) {
			l := limiter(t, store, perDay("requests", 1))
			p := pageOf(t, l)
			p.Keys = true
			others := keys
			if name == "redis" {
				others /= 50 // each is a round trip
			}
			for i := range 2 * others {
				allow(t, l, fmt.Sprint("user:", i%others), 1) // the second time is denied
			}
			begin := time.Now()
			for time.Since(begin) < length {
				allow(t, l, "flood:1", 3)
				allow(t, l, "flood:2", 2)
				allow(t, l, "flood:3", 1)
			}
			var order []string
			for _, m := range regexp.MustCompile(`flood:\d`).FindAllStringSubmatch(get(t, p, "/").Body.String(), -1) {
				order = append(order, m[0])
			}
			require.Less(t, time.Since(begin), 2*time.Second)
			require.Equal(t, []string{"flood:1", "flood:2", "flood:3"}, order[:3])
		})
	}
}

// TestLimits: rows of limits that come and go, and counts that begin anew.
func TestLimits(t *testing.T) {
	p, counts := statuspage.New(), int64(100)
	defer p.Close()
	row := func(name string) statuspage.Limit {
		return statuspage.Limit{Name: name, Rule: "10 per minute", Counts: func() (int64, int64, int64) { return counts, 0, 0 }}
	}
	all := []statuspage.Limit{row("a")}
	p.Limits = func() []statuspage.Limit { return all }
	require.EqualValues(t, 100, p.Status().Limits[0].Minutes.Passed)
	counts = 130
	require.EqualValues(t, 130, p.Status().Limits[0].Minutes.Passed)
	counts = 7 // of the limiter of a new file
	require.EqualValues(t, 137, p.Status().Limits[0].Minutes.Passed)
	all = nil
	for i := range 1200 {
		all = append(all, row(fmt.Sprint(i)))
	}
	s := p.Status()
	require.Len(t, s.Limits, 100)
	require.Equal(t, 1100, s.MoreLimits)
	all = nil
	require.Empty(t, p.Status().Limits)
}
