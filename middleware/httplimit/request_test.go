package httplimit

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestUploadLeavesNoFile: the server removes the files of a form that a handler has read,
// and outer handlers see the pattern.
func TestUploadLeavesNoFile(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /up", func(_ http.ResponseWriter, r *http.Request) { require.NoError(t, r.ParseMultipartForm(1)) })
	for name, opts := range map[string]*Options{"plain": nil, "settled": {Settle: Reported}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			limit, err := New(limiter(t, memory.New(nil), minute("p", 10)), RemoteAddr(), opts)
			require.NoError(t, err)
			limited, pattern := limit(mux), ""
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				limited.ServeHTTP(w, r)
				pattern = r.Pattern
			}))
			var body bytes.Buffer
			form := multipart.NewWriter(&body)
			part, err := form.CreateFormFile("f", "f")
			require.NoError(t, err)
			_, err = part.Write(make([]byte, 11<<20)) // above what a form keeps in memory
			require.NoError(t, err)
			require.NoError(t, form.Close())
			resp, err := http.Post(s.URL+"/up", form.FormDataContentType(), &body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			s.Close() // waits until the request has ended
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
			require.Equal(t, "POST /up", pattern)
		})
	}
}
