package httpclient

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/middleware/httplimit"
	"github.com/stretchr/testify/require"
)

const (
	fleetRate   = 200 // a second, at the server
	fleetSize   = 8   // processes
	fleetLength = 5 * time.Second
)

// TestFleet: eight processes that want twice what a server grants, through
// Transports that share a TokenBucket at 0.95 of the server's, meet no 429
// after the first second. The shared burst is half of the server's, so that
// requests which a busy machine delays together still fit.
func TestFleet(t *testing.T) {
	redistest.Plain(t)
	if _, ok := redistest.Child(); ok {
		fleetMember(t)
		return
	}
	redis := redistest.Start(t)
	store, err := standalone.Open("redis://"+redis.Addr(), &standalone.Options{Budget: 10 * time.Second}) // a failure mode denies too
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	var passed, early, late atomic.Int64
	var begin time.Time
	var first sync.Once
	bucket := policy("server", algo.TokenBucket(algo.PerSecond(fleetRate), fleetRate))
	limit, err := httplimit.New(limiter(t, store, bucket), httplimit.RemoteAddr(), &httplimit.Options{
		OnDenied: func(w http.ResponseWriter, _ *http.Request, d httplimit.Denial) {
			if time.Since(begin) > time.Second {
				late.Add(1)
			} else {
				early.Add(1)
			}
			d.Write(w)
		},
	})
	require.NoError(t, err)
	h := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed.Add(1) }))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first.Do(func() { begin = time.Now() })
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	redistest.Processes(t, fleetSize, "TestFleet", "HEADGATE_FLEET_SERVER="+server.URL, "HEADGATE_FLEET_REDIS=redis://"+redis.Addr())
	t.Logf("%d passed, %d denied in the first second, %d after", passed.Load(), early.Load(), late.Load())
	require.Zero(t, late.Load())
	require.Greater(t, passed.Load(), int64(0.7*0.95*fleetRate*fleetLength.Seconds()), "the fleet uses what it may")
}

// fleetMember sends as much as it may, over 8 connections.
func fleetMember(t *testing.T) {
	store, err := standalone.Open(os.Getenv("HEADGATE_FLEET_REDIS"), &standalone.Options{Budget: time.Second})
	require.NoError(t, err)
	shared, err := headgate.New(store, []headgate.Policy{{
		Name: "fleet", Algorithm: algo.TokenBucket(algo.PerSecond(fleetRate*95/100), fleetRate/2), OnFailure: headgate.FailClosed,
	}}, nil)
	require.NoError(t, err)
	const connections = 8
	tr := &Transport{Base: &http.Transport{MaxIdleConnsPerHost: connections}, Limiter: shared, Key: "server"}
	redistest.Ready()
	ctx, cancel := context.WithTimeout(context.Background(), fleetLength)
	defer cancel()
	var all sync.WaitGroup
	for range connections {
		all.Add(1)
		go func() {
			defer all.Done()
			for ctx.Err() == nil {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, os.Getenv("HEADGATE_FLEET_SERVER"), nil)
				if err != nil {
					t.Error(err)
					return
				}
				if resp, err := tr.RoundTrip(r); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
		}()
	}
	all.Wait()
}
