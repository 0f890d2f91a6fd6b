package httplimit

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
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
