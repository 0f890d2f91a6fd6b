package httplimit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestPatternLeavesTheMux what it does not match: 404 and 405.
func TestPatternLeavesTheMux(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", fine)
	limit, err := New(limiter(t, memory.New(nil), minute("p", 1)), Join(RemoteAddr(), Pattern(mux)), nil)
	require.NoError(t, err)
	h := limit(mux)
	for i, want := range map[*http.Request]int{
		httptest.NewRequest(http.MethodGet, "/nowhere", nil):  404,
		httptest.NewRequest(http.MethodPost, "/items/1", nil): 405,
		httptest.NewRequest(http.MethodGet, "/items/1", nil):  204,
	} {
		require.Equal(t, want, send(h, i).Code)
	}
	route := limiter(t, memory.New(nil), minute("p", 1))
	limit, err = NewAll(func(r *http.Request) ([]headgate.Part, error) {
		key, err := Pattern(mux).Of(r)
		if key == "" {
			return nil, err
		}
		return []headgate.Part{route.Part(key)}, err
	}, nil)
	require.NoError(t, err)
	for _, c := range []struct {
		method, path string
		want         int
	}{{http.MethodGet, "/nowhere", 404}, {http.MethodPost, "/items/1", 405}, {http.MethodGet, "/items/1", 204}, {http.MethodGet, "/items/1", 429}} {
		require.Equal(t, c.want, send(limit(mux), httptest.NewRequest(c.method, c.path, nil)).Code)
	}
}

// TestSeveralValues: a value that another reader may take another of is refused.
func TestSeveralValues(t *testing.T) {
	l := limiter(t, memory.New(nil), minute("p", 100))
	for _, c := range []struct {
		k Key
		r *http.Request
	}{
		{Header("X-Key"), requestWith("X-Key", "junk", "X-Key", "real")},
		{Cookie("session"), requestWith("Cookie", "session=junk; session=real")},
		{Authorization(), requestWith("Authorization", "Bearer a", "Authorization", "Bearer b")},
		{TrustedAddress("X-Real-IP", "192.0.2.1"), requestWith("X-Real-IP", "198.51.100.1", "X-Real-IP", "198.51.100.2")},
	} {
		require.Equal(t, 400, send(wrap(t, l, c.k, &Options{EmptyKey: EmptyPasses}), c.r).Code)
		_, err := c.k.Of(c.r)
		require.ErrorAs(t, err, new(*RequestError))
	}
}

// TestAuthorization: all spellings of one value have one key.
func TestAuthorization(t *testing.T) {
	k := Authorization()
	want, err := k.Of(requestWith("Authorization", "Bearer secret"))
	require.NoError(t, err)
	require.Regexp(t, `^authorization:[0-9a-f]{32}$`, want)
	for _, v := range []string{"bearer secret", "BEARER  secret", "bEaReR \t secret", " Bearer secret "} {
		got, err := k.Of(requestWith("Authorization", v))
		require.NoError(t, err)
		require.Equal(t, want, got, "%q", v)
	}
	for _, v := range []string{"Bearer Secret", "Basic secret", "secret"} {
		got, err := k.Of(requestWith("Authorization", v))
		require.NoError(t, err)
		require.NotEqual(t, want, got, "%q", v)
	}
	require.ErrorContains(t, Header("authorization").err, "Authorization()")
	keys := map[string]bool{}
	for _, v := range basicSpellings {
		got, err := k.Of(requestWith("Authorization", v))
		require.NoError(t, err)
		keys[got] = true
	}
	require.Len(t, keys, 1)
	for _, v := range []string{"Basic ann:secret", "Bearer YW5uOnNlY3JldA==", "Bearer YW5uOnNlY3JldB==", "Basic YW5uOnNlY3JldEE=", "Basic"} {
		got, err := k.Of(requestWith("Authorization", v))
		require.NoError(t, err)
		require.False(t, keys[got], v)
		keys[got] = true
	}
}

// basicSpellings are values of Authorization that r.BasicAuth, or a more lenient reader,
// takes for ann:secret.
var basicSpellings = func() (all []string) {
	for _, last := range "ABCDEFGHIJKLMNOP" {
		all = append(all, "Basic YW5uOnNlY3Jld"+string(last)+"==")
	}
	return append(all, "basic  YW5uOnNlY3JldA", "Basic YW5uOnNlY3JldA=", "Basic YW5uOnNlY3JldP")
}()

// TestBasicSpellings: all with padding are those of r.BasicAuth.
func TestBasicSpellings(t *testing.T) {
	for _, v := range basicSpellings[:16] {
		user, password, ok := requestWith("Authorization", v).BasicAuth()
		require.True(t, ok, v)
		require.Equal(t, "ann:secret", user+":"+password)
	}
}

// TestTrustedAddress: the header counts only from the proxies, by the /64 rule.
func TestTrustedAddress(t *testing.T) {
	k := TrustedAddress("CF-Connecting-IP", "173.245.48.0/20", "unix")
	for _, c := range []struct{ remote, header, want string }{
		{"173.245.48.9:80", "203.0.113.7", "ip:203.0.113.7"},
		{"173.245.48.9:80", " 2001:db8:1:2:3::4 ", "ip:2001:db8:1:2::/64"},
		{"173.245.48.9:80", "::ffff:203.0.113.7", "ip:203.0.113.7"},
		{"173.245.48.9:80", "junk", "ip:173.245.48.9"},
		{"173.245.48.9:80", "", "ip:173.245.48.9"},
		{"198.51.100.1:80", "203.0.113.7", "ip:198.51.100.1"},
	} {
		r := requestWith("CF-Connecting-IP", c.header)
		r.RemoteAddr = c.remote
		got, err := k.Of(r)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%v", c)
	}
	for _, bad := range []Key{TrustedAddress("CF-Connecting-IP"), TrustedAddress("X-Forwarded-For", "10.0.0.0/8"),
		TrustedAddress("", "10.0.0.0/8"), TrustedAddress("a b", "10.0.0.0/8"), TrustedAddress("X", "::/0")} {
		require.Error(t, bad.err)
	}
}

// TestFirstByNetwork: of keys of proxies, a request has that of the proxy that it comes
// from. A client that no key trusts counts by its own address, whatever it sends.
func TestFirstByNetwork(t *testing.T) {
	cloudflare, balancer := TrustedAddress("CF-Connecting-IP", "173.245.48.0/20"), TrustedProxies("10.0.0.0/8")
	for _, c := range []struct {
		remote, want string
		keys         []Key
	}{
		{"173.245.48.9:80", "ip:203.0.113.1", []Key{cloudflare, balancer}},
		{"10.1.2.3:80", "ip:203.0.113.2", []Key{cloudflare, balancer}},
		{"10.1.2.3:80", "ip:203.0.113.2", []Key{First(cloudflare, cloudflare), First(Cookie("session"), balancer)}},
		{"198.51.100.1:80", "ip:198.51.100.1", []Key{cloudflare, balancer}},
		{"198.51.100.1:80", "ip:198.51.100.1", []Key{cloudflare, Header("X-Key"), balancer}},
		{"198.51.100.1:80", "ip:198.51.100.1", []Key{cloudflare, Header("X-Key")}},
		{"173.245.48.9:80", "ip:173.245.48.9", []Key{TrustedAddress("Fly-Client-IP", "173.245.48.0/20"), TrustedProxies("173.245.48.0/20")}},
	} {
		r := requestWith("CF-Connecting-IP", "203.0.113.1", "X-Forwarded-For", "203.0.113.2", "X-Key", "chosen")
		r.RemoteAddr = c.remote
		got, err := First(c.keys...).Of(r)
		require.NoError(t, err)
		require.Equal(t, c.want, got, c.remote)
	}
}

// TestWrongHeader: a proxy that does not send the header of the key has a line in the log, at
// most once per second. A client that is no proxy has none.
func TestWrongHeader(t *testing.T) {
	for _, c := range []struct {
		key                   Key
		remote, header, value string
		want                  string // "": no line
	}{
		{TrustedAddress("X-Real-IP", "10.0.0.0/8"), "10.1.2.3:80", "X-Forwarded-For", "203.0.113.7", "X-Real-Ip is absent, from the proxy 10.1.2.3:80"},
		{TrustedAddress("X-Real-IP", "10.0.0.0/8"), "10.1.2.3:80", "X-Real-IP", "a, b", "X-Real-Ip is no address, from the proxy 10.1.2.3:80"},
		{TrustedAddress("X-Real-IP", "10.0.0.0/8"), "10.1.2.3:80", "X-Real-IP", "203.0.113.7", ""},
		{TrustedAddress("X-Real-IP", "10.0.0.0/8"), "192.0.2.1:80", "X-Real-IP", "junk", ""},
		{TrustedProxies("10.0.0.0/8"), "10.1.2.3:80", "X-Real-IP", "203.0.113.7", "X-Forwarded-For is absent, from the proxy 10.1.2.3:80"},
		{TrustedProxies("10.0.0.0/8"), "10.1.2.3:80", "X-Forwarded-For", "203.0.113.7, unknown", "X-Forwarded-For is no address"},
		{TrustedProxies("10.0.0.0/8"), "10.1.2.3:80", "X-Forwarded-For", "junk, 203.0.113.7", ""},
		{TrustedProxies("10.0.0.0/8"), "10.1.2.3:80", "X-Forwarded-For", "10.0.0.9", ""},
		{TrustedProxies("10.0.0.0/8"), "192.0.2.1:80", "X-Forwarded-For", "junk", ""},
		{Join(First(Cookie("c"), TrustedForwarders("10.0.0.0/8")), Pattern(nil)), "10.1.2.3:80", "X-Real-IP", "203.0.113.7", "Forwarded is absent"},
	} {
		r := requestWith(c.header, c.value)
		r.RemoteAddr, r.Pattern = c.remote, "/"
		l, logger := logged(t, newClock(), minute("p", 9))
		h := wrap(t, l, c.key, nil)
		require.Equal(t, 204, send(h, r).Code)
		require.Equal(t, 204, send(h, r).Code)
		if c.want == "" {
			require.Empty(t, logger.String(), "%v", c)
			continue
		}
		require.Equal(t, 1, strings.Count(logger.String(), "\n"), logger)
		require.Contains(t, logger.String(), c.want)
	}
}

// TestWrongHeaderWithoutALimiter: Of has no limiter, so the server's ErrorLog has the line.
func TestWrongHeaderWithoutALimiter(t *testing.T) {
	lines := new(bytes.Buffer)
	r := requestWith()
	r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{ErrorLog: log.New(lines, "", 0)}))
	k := TrustedAddress("X-Real-IP", "192.0.2.1")
	for range 2 {
		key, err := k.Of(r)
		require.NoError(t, err)
		require.Equal(t, "ip:192.0.2.1", key)
	}
	require.Equal(t, "headgate: a trusted proxy sent no client address: header X-Real-Ip is absent, from the proxy 192.0.2.1:1234\n", lines.String())
}

// TestUnixSocket: a proxy that connects by a Unix socket is trusted where it is named.
func TestUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "sock") // a socket's path is short
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", path)
	require.NoError(t, err)
	keys := map[string]Key{
		"/named": TrustedProxies("10.0.0.0/8", "unix"), "/single": TrustedAddress("X-Real-IP", "unix"), "/not": TrustedProxies("10.0.0.0/8"),
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := keys[r.URL.Path].Of(r)
		fmt.Fprint(w, key, err)
	})}
	go func() { _ = server.Serve(ln) }()
	defer func() { _ = server.Close() }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", path)
	}}}
	for path, want := range map[string]string{"/named": "ip:203.0.113.7<nil>", "/single": "ip:203.0.113.8<nil>", "/not": "<nil>"} {
		r, err := http.NewRequest(http.MethodGet, "http://unix"+path, nil)
		require.NoError(t, err)
		r.Header = http.Header{"X-Forwarded-For": {"6.6.6.6, 203.0.113.7"}, "X-Real-Ip": {"203.0.113.8"}}
		resp, err := client.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, string(body), path)
	}
}

// TestUpstream: a proxy drops or renames the fields of what it calls.
func TestUpstream(t *testing.T) {
	upstream := httptest.NewServer(wrap(t, limiter(t, newClock().store(), minute("api", 5)), RemoteAddr(), &Options{XRateLimit: true}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	require.NoError(t, err)
	for _, c := range []struct {
		modify  func(*http.Response) error
		own, up []string
	}{
		{nil, []string{`"api";r=8;t=40`, `"api";r=4;t=40`}, nil},
		{Upstream(""), []string{`"api";r=8;t=40`}, nil},
		{Upstream("Upstream-"), []string{`"api";r=8;t=40`}, []string{`"api";r=2;t=40`}},
	} {
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.ModifyResponse = c.modify
		limit, err := New(limiter(t, newClock().store(), minute("api", 9)), RemoteAddr(), nil)
		require.NoError(t, err)
		h := get(limit(proxy)).Header()
		require.Equal(t, c.own, h.Values("RateLimit"))
		require.Equal(t, c.up, h.Values("Upstream-RateLimit"))
	}
}
