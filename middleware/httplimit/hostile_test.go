package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestPatternOfConnect: the mux redirects a CONNECT to a path that the client
// chooses, which must not become a key.
func TestPatternOfConnect(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/items/{id}/", func(http.ResponseWriter, *http.Request) {})
	limit, err := New(limiter(t, memory.New(nil), headgate.Policy{Name: "p", Algorithm: algo.FixedWindow(algo.PerMinute(1)), OnFailure: headgate.FailOpen}), Pattern(mux), nil)
	require.NoError(t, err)
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodConnect, "http://host/items/random", nil)
	r.URL.Path = "/items/random"
	limit(mux).ServeHTTP(w, r)
	require.Equal(t, http.StatusBadRequest, w.Code)
}

// olderMux is a ServeMux as before Go 1.26, which names a redirect's path where
// the pattern belongs.
type olderMux struct{ *http.ServeMux }

func (m olderMux) Handler(r *http.Request) (http.Handler, string) {
	h, pattern := m.ServeMux.Handler(r)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if to, err := w.Result().Location(); err == nil && strings.HasSuffix(to.Path, "/") && !strings.HasSuffix(r.URL.EscapedPath(), "/") {
		return h, to.Path
	}
	return h, pattern
}

// TestPatternOfARedirect: a path that lacks its slash does not become a key.
func TestPatternOfARedirect(t *testing.T) {
	mux := http.NewServeMux()
	for _, pattern := range []string{"/", "/items/{id}/", "/tree/", "/tree/{a}/{b}/{$}", "GET /own/{id}/", "host.test/at/{id}/"} {
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	for target, want := range map[string]string{
		"http://h/": "/", "http://h/x": "/", "http://h/items": "/",
		"http://h/items/a": "/items/{id}/", "http://h/items/b?q": "/items/{id}/", "http://h/items/a/b": "/items/{id}/",
		"http://h//items//a": "/items/{id}/", "http://h/items/a%2Fb": "/items/{id}/", "http://h/items/a%2F": "/items/{id}/",
		"http://h/items/%7Bid%7D": "/items/{id}/", "http://h/x/../items/a": "/items/{id}/",
		"http://h/tree": "/tree/", "http://h/tree/a": "/tree/", "http://h/tree/a/b": "/tree/{a}/{b}/{$}",
		"http://h/tree/a/b/c": "/tree/", "http://h/own/a": "GET /own/{id}/", "http://host.test/at/a": "host.test/at/{id}/",
	} {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		require.Equal(t, want, matched(mux, r), target)
		require.Equal(t, want, matched(olderMux{mux}, r), "before Go 1.26: %s", target)
		require.Equal(t, "pattern:"+want, keyOf(Pattern(mux), r), target)
	}
}

// TestEqualKeys: parts whose keys a request makes equal, and more of them than a call can
// have, are no fault of the server. A key may be listed again by another policy.
func TestEqualKeys(t *testing.T) {
	s := memory.New(nil)
	l, other := limiter(t, s, minute("p", 100)), limiter(t, s, minute("other", 100))
	var list []headgate.Policy
	for i := range backend.MaxPolicies {
		list = append(list, minute(fmt.Sprint("p", i), 100))
	}
	wide := limiter(t, s, list...)
	most := "/?k=0"
	for i := range backend.MaxKeys - 1 {
		most += fmt.Sprint("&k=", i+1)
	}
	for _, opts := range []Options{{}, {Settle: Reported}} {
		var got error
		opts.OnError = func(w http.ResponseWriter, r *http.Request, err error) { got = err; WriteError(w, r, err) }
		limit, err := NewAll(func(r *http.Request) (list []headgate.Part, _ error) {
			for _, k := range r.URL.Query()["k"] {
				list = append(list, l.Part(k))
			}
			for _, k := range r.URL.Query()["other"] {
				list = append(list, other.Part(k))
			}
			for _, k := range r.URL.Query()["wide"] {
				list = append(list, wide.Part(k))
			}
			return list, nil
		}, &opts)
		require.NoError(t, err)
		for target, want := range map[string]int{"/?k=a&k=b": 204, "/?k=a&other=a": 204, "/?k=a&k=a": 400, "/?k=a&k=b&other=b&k=a": 400,
			most: 204, most + "&k=more": 400, "/?wide=a&wide=b&wide=c&wide=d": 204, "/?wide=a&wide=b&wide=c&wide=d&wide=e": 400} {
			got = nil
			require.Equal(t, want, send(limit(fine), httptest.NewRequest(http.MethodGet, target, nil)).Code, target)
			require.Equal(t, want == 400, errors.As(got, new(*RequestError)), target)
		}
	}
	zero := (&headgate.Limiter{}).Part("k")
	require.Equal(t, 500, get(all(t, nil, zero, zero)).Code)
}
