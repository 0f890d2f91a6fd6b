package httplimit

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// panics returns a reader that panics behind the text. It has no WriteTo.
func panics(text string) io.Reader {
	return struct{ io.Reader }{io.MultiReader(strings.NewReader(text), panicking{})}
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic(http.ErrAbortHandler) }

// TestPanicInACopy: a client that got the header of a 200 is recorded with that status,
// where the handler panicked in the midst of a copy.
func TestPanicInACopy(t *testing.T) {
	outcomes := make(chan Outcome, 1)
	h, _ := metered(t, func(o *Outcome) []int64 { outcomes <- *o; return nil }, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, panics(strings.Repeat("x", 64<<10)))
	})
	server := httptest.NewServer(h)
	defer server.Close()
	resp, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	_, err = io.Copy(io.Discard, resp.Body)
	require.Error(t, err)
	require.NoError(t, resp.Body.Close())
	o := <-outcomes
	require.True(t, o.Panicked)
	require.Equal(t, http.StatusOK, o.Status)
	require.Positive(t, o.Written)
}

// readFrom notes what a ResponseWriter is to copy.
type readFrom struct {
	http.ResponseWriter
	from *io.Reader
}

func (w readFrom) ReadFrom(r io.Reader) (int64, error) {
	*w.from = r
	return io.Copy(w.ResponseWriter, r)
}

// TestCopyOfAFile: the ResponseWriter gets the file itself, which it may send by sendfile,
// and the body is whole.
func TestCopyOfAFile(t *testing.T) {
	name, body := filepath.Join(t.TempDir(), "f"), bytes.Repeat([]byte("0123456789"), 10_000)
	require.NoError(t, os.WriteFile(name, body, 0o600))
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	var from io.Reader
	outcomes := make(chan Outcome, 1)
	h, _ := metered(t, func(o *Outcome) []int64 { outcomes <- *o; return nil }, func(w http.ResponseWriter, _ *http.Request) {
		n, err := io.CopyN(w, file, int64(len(body))) // as http.ServeContent does
		require.NoError(t, err)
		require.EqualValues(t, len(body), n)
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(readFrom{w, &from}, r)
	}))
	defer server.Close()
	resp, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.True(t, bytes.Equal(body, got))
	require.EqualValues(t, len(body), (<-outcomes).Written)
	limited, ok := from.(*io.LimitedReader)
	require.True(t, ok, "%T", from)
	require.Same(t, file, limited.R)
}
