//go:build !race

package httplimit

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// nothing is a ResponseWriter that keeps its header.
type nothing struct{ h http.Header }

func (w nothing) Header() http.Header         { return w.h }
func (w nothing) Write(b []byte) (int, error) { return len(b), nil }
func (w nothing) WriteHeader(int)             {}

// served returns what serves one request of one policy in memory.
func served(t testing.TB, all bool) func() {
	t.Helper()
	l := limiter(t, memory.New(nil), policy("p", algo.TokenBucket(algo.PerSecond(1<<30), 1<<30)))
	limit, err := New(l, RemoteAddr(), nil)
	if all {
		limit, err = NewAll(func(r *http.Request) ([]headgate.Part, error) {
			key, err := RemoteAddr().Of(r)
			return []headgate.Part{l.Part(key)}, err
		}, nil)
	}
	require.NoError(t, err)
	h := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	w := nothing{http.Header{}}
	for range 200 { // past the marks of the first requests
		h.ServeHTTP(w, r)
	}
	return func() {
		clear(w.h)
		h.ServeHTTP(w, r)
	}
}

// TestAllocations: a request of one policy in memory costs at most four.
func TestAllocations(t *testing.T) {
	require.LessOrEqual(t, testing.AllocsPerRun(500, served(t, false)), 4.0)
}

func BenchmarkNew(b *testing.B) {
	f := served(b, false)
	b.ReportAllocs()
	for b.Loop() {
		f()
	}
}

func BenchmarkNewAll(b *testing.B) {
	f := served(b, true)
	b.ReportAllocs()
	for b.Loop() {
		f()
	}
}
