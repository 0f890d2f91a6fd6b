package httplimit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/stretchr/testify/require"
)

// TestHandlerWhoseClientLeft: a request has its slot until its handler returns, also if its
// client left a lease's length before. What it has used is charged then.
func TestHandlerWhoseClientLeft(t *testing.T) {
	t.Parallel()
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			l := limiter(t, s, policy("running", algo.InFlight(1)), policy("tokens", algo.FixedWindow(algo.Per(1000, algo.MaxPeriod))))
			limit, err := New(l, RemoteAddr(), &Options{Lease: time.Second, Settle: func(o *Outcome) []int64 { return o.Units("tokens", 500) }})
			require.NoError(t, err)
			work, ended := make(chan struct{}), make(chan struct{})
			h := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				<-work
			}))
			ctx, leave := context.WithCancel(context.Background())
			go func() {
				defer close(ended)
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
			}()
			each := make([]headgate.State, 2)
			look := headgate.Call{Key: "ip:192.0.2.1", Each: each}
			require.Eventually(t, func() bool {
				_, err := l.Peek(context.Background(), look)
				return err == nil && each[0].Used == 1
			}, 10*time.Second, time.Millisecond)
			leave()
			time.Sleep(1500 * time.Millisecond)
			d, err := l.Peek(context.Background(), look)
			require.NoError(t, err)
			require.False(t, d.Allowed, "the handler runs")
			close(work)
			<-ended
			_, err = l.Peek(context.Background(), look)
			require.NoError(t, err)
			require.Zero(t, each[0].Used)
			require.EqualValues(t, 500, each[1].Used)
		})
	}
}
