package httplimit

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// gzipped compresses what is written to it.
type gzipped struct {
	http.ResponseWriter
	to io.Writer
}

func (w gzipped) Write(b []byte) (int, error) { return w.to.Write(b) }

// TestDenialIsCompressed: an outer handler that compresses has set Content-Encoding before
// the answer.
func TestDenialIsCompressed(t *testing.T) {
	h := wrap(t, limiter(t, memory.New(nil), minute("p", 1)), RemoteAddr(), nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		to := gzip.NewWriter(w)
		defer func() { _ = to.Close() }()
		h.ServeHTTP(gzipped{w, to}, r)
	}))
	defer server.Close()
	for _, want := range []int{204, 429} {
		resp, err := http.Get(server.URL) // which decompresses
		require.NoError(t, err)
		require.Equal(t, want, resp.StatusCode)
		if want == 429 {
			require.True(t, resp.Uncompressed)
			require.NoError(t, json.NewDecoder(resp.Body).Decode(new(problem)))
		}
		require.NoError(t, resp.Body.Close())
	}
}
