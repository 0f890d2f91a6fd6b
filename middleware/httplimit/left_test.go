//go:build go1.25

package httplimit

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
	"github.com/stretchr/testify/require"
)

// TestHandlerWhoseClientLeft: a request has its slot until its handler returns, also if its
// client left many leases' lengths before. What it has used is charged then.
func TestHandlerWhoseClientLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, memory.New(&memory.Options{Now: time.Now}), policy("running", algo.InFlight(1)), policy("tokens", algo.FixedWindow(algo.PerDay(1000))))
		limit, err := New(l, RemoteAddr(), &Options{Settle: func(o *Outcome) []int64 { return o.Units("tokens", 500) }})
		require.NoError(t, err)
		ended := make(chan struct{})
		h := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			time.Sleep(time.Hour)
		}))
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			defer close(ended)
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
		}()
		synctest.Wait()
		leave()
		time.Sleep(30 * time.Minute)
		each := make([]headgate.State, 2)
		look := headgate.Call{Key: "ip:192.0.2.1", Each: each}
		d, err := l.Peek(t.Context(), look)
		require.NoError(t, err)
		require.False(t, d.Allowed, "the handler runs")
		<-ended
		_, err = l.Peek(t.Context(), look)
		require.NoError(t, err)
		require.Zero(t, each[0].Used)
		require.EqualValues(t, 500, each[1].Used)
	})
}
