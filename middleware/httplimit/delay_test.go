//go:build go1.25

package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/middleware/httplimit"
	"github.com/stretchr/testify/require"
)

// TestDelayed: requests wait for their Delay, at most so many at once, with and without a
// settlement. One whose client leaves does not get to the handler.
func TestDelayed(t *testing.T) {
	settle := func(*httplimit.Outcome) []int64 { return nil }
	for name, opts := range map[string]httplimit.Options{"two": {Delayed: 2}, "settled": {Delayed: 2, Settle: settle}, "many": {}, "none": {Delayed: -1}} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { delayed(t, &opts) }) })
	}
}

func delayed(t *testing.T, opts *httplimit.Options) {
	l, err := headgate.New(memory.New(nil), []headgate.Policy{
		{Name: "queue", Algorithm: algo.LeakyQueue(algo.PerSecond(10), 1, time.Minute), OnFailure: headgate.FailClosed},
	}, nil)
	require.NoError(t, err)
	limit, err := httplimit.New(l, httplimit.Header("Client"), opts)
	require.NoError(t, err)
	begin := time.Now()
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("After", time.Since(begin).String())
	}))
	serve := func(ctx context.Context) <-chan *httptest.ResponseRecorder {
		done := make(chan *httptest.ResponseRecorder, 1)
		go func() {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx)
			r.Header.Set("Client", "a")
			h.ServeHTTP(w, r)
			done <- w
		}()
		synctest.Wait()
		return done
	}
	ctx, leave := context.WithCancel(t.Context())
	first, second, left, third := serve(t.Context()), serve(t.Context()), serve(ctx), serve(t.Context())
	time.Sleep(time.Second / 20)
	leave()
	synctest.Wait()
	require.Equal(t, "0s", (<-first).Header().Get("After"))
	if opts.Delayed < 0 {
		require.Equal(t, "0s", (<-third).Header().Get("After"))
		return
	}
	w := <-left
	require.Equal(t, 499, w.Code)
	require.Empty(t, w.Header().Get("After"))
	require.Equal(t, "100ms", (<-second).Header().Get("After"))
	if w = <-third; opts.Delayed == 0 {
		require.Equal(t, "300ms", w.Header().Get("After"))
		return
	}
	require.Equal(t, []any{503, "1", ""}, []any{w.Code, w.Header().Get("Retry-After"), w.Header().Get("After")})
	require.Contains(t, w.Body.String(), "temporary-reduced-capacity")
	w = <-serve(t.Context()) // there is a place again
	require.Equal(t, http.StatusOK, w.Code)
}
