package httplimit

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/stretchr/testify/require"
)

func requestWith(header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func TestHeaderAndCookieAreHashed(t *testing.T) {
	h, c := Header("x-api-key"), Cookie("session")
	key := keyOf(h, requestWith("X-Api-Key", "secret"))
	require.Equal(t, "header:X-Api-Key:2bb80d537b1da3e38bd30361aa855686", key) // sha256sum, cut
	require.Equal(t, "cookie:session:2bb80d537b1da3e38bd30361aa855686", keyOf(c, requestWith("Cookie", "a=b; session=secret")))
	require.NotEqual(t, key, keyOf(h, requestWith("X-Api-Key", "Secret")))
	require.NotEqual(t, key, keyOf(Header("X-Other"), requestWith("X-Other", "secret")))
	require.Len(t, keyOf(h, requestWith("X-Api-Key", strings.Repeat("z", 64<<10))), len(key))
	for _, r := range []*http.Request{requestWith(), requestWith("X-Api-Key", ""), requestWith("X-Api-Key", "", "X-Api-Key", "late")} {
		require.Empty(t, keyOf(h, r))
	}
	for _, cookies := range []string{"", "session=", "sessions=x", ";;;", "session"} {
		require.Empty(t, keyOf(c, requestWith("Cookie", cookies)), cookies)
	}
}

func TestPattern(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", http.NotFoundHandler())
	outer := Pattern(mux)
	for path, want := range map[string]string{"/items/1": "pattern:GET /items/{id}", "/items/2": "pattern:GET /items/{id}", "/x": "", "/items/": ""} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		require.Equal(t, want, keyOf(outer, r), path)
		require.Empty(t, keyOf(Pattern(nil), r), "before the mux has matched")
	}
	require.Empty(t, keyOf(outer, httptest.NewRequest(http.MethodPost, "/items/1", nil)), "no pattern of that method")

	var got string
	inner := http.NewServeMux()
	inner.HandleFunc("/b/", func(_ http.ResponseWriter, r *http.Request) { got = keyOf(Pattern(nil), r) })
	inner.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/b/c", nil))
	require.Equal(t, "pattern:/b/", got)
}

func TestJoin(t *testing.T) {
	k := Join(RemoteAddr(), Header("X-Api-Key"))
	require.Equal(t, "ip:192.0.2.1|header:X-Api-Key:2bb80d537b1da3e38bd30361aa855686", keyOf(k, requestWith("X-Api-Key", "secret")))
	require.Empty(t, keyOf(k, requestWith()), "without one of them it has no key")
}

// TestFirstNested: a First or a Join inside of First counts as its keys would.
func TestFirstNested(t *testing.T) {
	edge, balancer := TrustedAddress("CF-Connecting-IP", "198.51.100.0/24"), TrustedProxies("10.0.0.0/8")
	api, route := Header("X-Api-Key"), Pattern(nil)
	for name, c := range map[string]struct {
		key  string
		want Key
		is   Key
	}{
		"First of no proxies": {"secret", First(api, Cookie("s"), balancer), First(First(api, Cookie("s")), balancer)},
		"First with a proxy":  {"secret", First(api, edge, balancer), First(First(api, edge), balancer)},
		"without a key":       {"", First(api, edge, balancer), First(First(api, edge), balancer)},
		"Joins of proxies":    {"", Join(First(edge, balancer), route), First(Join(edge, route), Join(balancer, route))},
	} {
		t.Run(name, func(t *testing.T) {
			r := requestWith("X-Forwarded-For", "203.0.113.7", "X-Api-Key", c.key)
			r.RemoteAddr, r.Pattern = "10.1.2.3:80", "GET /"
			require.NotEmpty(t, keyOf(c.want, r))
			require.Equal(t, keyOf(c.want, r), keyOf(c.is, r))
		})
	}
}

// TestFirst: the first key that a request has, as its own text. An error ends the search.
func TestFirst(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/items", http.NotFoundHandler())
	k := First(Header("X-Api-Key"), Cookie("session"), RemoteAddr())
	with := requestWith("X-Api-Key", "secret", "Cookie", "session=secret")
	require.Equal(t, keyOf(Header("X-Api-Key"), with), keyOf(k, with))
	require.Equal(t, "cookie:session:2bb80d537b1da3e38bd30361aa855686", keyOf(k, requestWith("Cookie", "session=secret")))
	require.Equal(t, "ip:192.0.2.1", keyOf(k, requestWith()))
	require.Equal(t, "ip:192.0.2.1|ip:192.0.2.1", keyOf(Join(k, First(Join(RemoteAddr(), Header("X-Other")), RemoteAddr())), requestWith()),
		"what a Join has begun is left out")
	require.Equal(t, "ip:192.0.2.1", keyOf(First(Pattern(mux), RemoteAddr()), requestWith()), "of what the mux does not match too")
	require.Empty(t, keyOf(First(Header("X-Api-Key"), Cookie("session")), requestWith()))
	_, err := k.Of(requestWith("X-Api-Key", "a", "X-Api-Key", "b"))
	require.ErrorAs(t, err, new(*RequestError))
	f := Func(func(*http.Request) (headgate.Call, error) { return headgate.Call{}, nil })
	for want, wrong := range map[string]Key{"in First": First(f, RemoteAddr()), "10.0.0.0/33": First(RemoteAddr(), TrustedProxies("10.0.0.0/33"))} {
		_, err := New(limiter(t, newClock().store(), minute("p", 1)), wrong, nil)
		require.ErrorAs(t, err, new(*headgate.InvalidError))
		require.ErrorContains(t, err, want)
	}
}

func TestIPv6Prefix(t *testing.T) {
	l := limiter(t, newClock().store(), policy("p", algo.FixedWindow(algo.PerMinute(1))))
	from := func(h http.Handler, addr string) int {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = addr
		return send(h, r).Code
	}
	h := wrap(t, l, RemoteAddr(), &Options{IPv6Prefix: 48})
	require.Equal(t, 204, from(h, "[2001:db8:1:2::1]:80"))
	require.Equal(t, 429, from(h, "[2001:db8:1:3::1]:80"))
	require.Equal(t, 204, from(h, "[2001:db8:2:3::1]:80"))
	require.Equal(t, 204, from(h, "[::ffff:192.0.2.1]:80"))
	require.Equal(t, 204, from(h, "[::ffff:192.0.2.2]:80"), "no IPv6 prefix over mapped addresses")
	require.Equal(t, 429, from(h, "192.0.2.2:80"))
}

func TestEmptyKey(t *testing.T) {
	for choice, want := range map[EmptyKey][]int{EmptyRefused: {400, 400}, EmptyShared: {204, 429}, EmptyPasses: {204, 204}} {
		l := limiter(t, newClock().store(), policy("p", algo.FixedWindow(algo.PerMinute(1))))
		h := wrap(t, l, Header("X-Api-Key"), &Options{EmptyKey: choice})
		first, second := get(h), get(h)
		require.Equal(t, want, []int{first.Code, second.Code}, choice)
		require.Equal(t, choice == EmptyShared, second.Header().Get("RateLimit") != "", "numbers only of what is counted")
	}
	l := limiter(t, newClock().store(), policy("p", algo.FixedWindow(algo.PerMinute(1))))
	k := Func(func(*http.Request) (headgate.Call, error) { return headgate.Call{}, nil })
	require.Equal(t, 400, get(wrap(t, l, k, nil)).Code, "of a function too")
}

func TestFunc(t *testing.T) {
	l := limiter(t, newClock().store(), policy("p", algo.FixedWindow(algo.PerMinute(10))))
	k := Func(func(r *http.Request) (headgate.Call, error) {
		return headgate.Call{Key: "user:" + r.Header.Get("X-User"), Costs: []int64{3}}, nil
	})
	h := wrap(t, l, k, nil)
	require.Equal(t, `"p";r=7;t=40`, send(h, requestWith("X-User", "ann")).Header().Get("RateLimit"))
	require.Equal(t, `"p";r=4;t=40`, send(h, requestWith("X-User", "ann")).Header().Get("RateLimit"))
	require.Equal(t, `"p";r=7;t=40`, send(h, requestWith("X-User", "bob")).Header().Get("RateLimit"))
}
