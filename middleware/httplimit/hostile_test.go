package httplimit

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

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

// TestTransportOfAStalledBody: a server that stalls in the body of its denial
// keeps nobody.
func TestTransportOfAStalledBody(t *testing.T) {
	done, calls := make(chan struct{}), 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls++; calls > 1 {
			return
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		w.(http.Flusher).Flush()
		<-done
	}))
	defer server.Close()
	defer close(done)
	begin := time.Now()
	resp, err := (&http.Client{Transport: &Transport{MaxWait: 5 * time.Second}}).Get(server.URL)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Less(t, time.Since(begin), 4*time.Second)
}
