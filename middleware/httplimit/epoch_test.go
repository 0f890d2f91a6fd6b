//go:build go1.25

package httplimit

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// lateStore passes its answers on after a pause, as a store over a network does.
type lateStore struct {
	*memory.Store
	by time.Duration
}

func (s lateStore) Do(ctx context.Context, r *backend.Request, d *backend.Decision) error {
	err := s.Store.Do(ctx, r, d)
	time.Sleep(s.by)
	return err
}

// resetEpoch returns the status of a request, its X-RateLimit-Reset and the instant of
// its Retry-After.
func resetEpoch(t *testing.T, h http.Handler) (status int, reset, retry time.Time) {
	t.Helper()
	w := get(h)
	at, err := strconv.ParseInt(w.Header().Get("X-RateLimit-Reset"), 10, 64)
	require.NoError(t, err)
	in, _ := strconv.Atoi(w.Header().Get("Retry-After")) // of a denial only
	return w.Code, time.Unix(at, 0), time.Now().Add(time.Duration(in) * time.Second)
}

// TestResetEpochOfAWindow: a window that ends on a whole second is named by that second, also
// if the store's answer comes late.
func TestResetEpochOfAWindow(t *testing.T) {
	for name, a := range map[string]algo.Algorithm{
		"FixedWindow": algo.FixedWindow(algo.PerMinute(2)),
		"Calendar":    algo.Calendar(2, algo.Day(), time.UTC),
	} {
		for _, late := range []time.Duration{0, time.Microsecond, 90 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				end := time.Now().Add(time.Minute) // the clock begins at midnight
				if name == "Calendar" {
					end = time.Now().Add(24 * time.Hour)
				}
				opts := &Options{XRateLimit: true, ResetEpoch: true}
				h := wrap(t, limiter(t, lateStore{memory.New(nil), late}, policy("p", a)), RemoteAddr(), opts)
				for i := range 4 {
					time.Sleep(700 * time.Millisecond)
					status, reset, _ := resetEpoch(t, h)
					require.Equal(t, i >= 2, status == http.StatusTooManyRequests)
					require.Equal(t, end.Unix(), reset.Unix(), "%s, %v late", name, late)
				}
			})
		}
	}
}

// TestResetEpochPasses: a request in the second that a denial names passes, as one does after
// Retry-After, and one in the second before does not.
func TestResetEpochPasses(t *testing.T) {
	for _, a := range []algo.Algorithm{
		algo.FixedWindow(algo.Per(2, 10*time.Second)), algo.FixedWindow(algo.Per(2, 1500*time.Millisecond)),
		algo.SlidingWindow(algo.Per(2, 7*time.Second)), algo.SlidingLog(algo.Per(2, 10*time.Second)),
		algo.TokenBucket(algo.Per(1, 3300*time.Millisecond), 2), algo.BucketedWindow(algo.Per(2, 10*time.Second), 4),
	} {
		for _, late := range []time.Duration{0, 90 * time.Millisecond} {
			for begin := range 12 {
				synctest.Test(t, func(t *testing.T) {
					s := lateStore{memory.New(nil), late}
					h := wrap(t, limiter(t, s, policy("p", a)), RemoteAddr(), &Options{XRateLimit: true, ResetEpoch: true})
					time.Sleep(time.Duration(begin) * 730 * time.Millisecond)
					get(h)
					get(h)
					status, reset, retry := resetEpoch(t, h)
					if status != http.StatusTooManyRequests {
						return // a window ended meanwhile
					}
					require.Less(t, retry.Sub(reset).Abs(), time.Second+late, a.String())
					if before := time.Until(reset) - time.Second; late == 0 && before > 0 {
						time.Sleep(before)
						require.Equal(t, http.StatusTooManyRequests, get(h).Code, a.String())
					}
					time.Sleep(time.Until(reset))
					require.Equal(t, http.StatusNoContent, get(h).Code, a.String())
				})
			}
		}
	}
}

// TestResetEpochOfALease: units that a process holds come back at any instant, and then the
// field names the second after it.
func TestResetEpochOfALease(t *testing.T) {
	p := policy("p", algo.FixedWindow(algo.PerMinute(2)))
	l, err := limiter(t, memory.New(nil), p).WithBorrow(50 * time.Millisecond)
	require.NoError(t, err)
	part := l.Part("k")
	part.Call.Each = []headgate.State{{Policy: "p", Limit: 2, RetryAfter: time.Second, Known: backend.Exact}}
	h := http.Header{}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(50 * time.Millisecond)
		WriteFields(h, &Options{XRateLimit: true, ResetEpoch: true}, headgate.Decision{State: part.Call.Each[0]}, part)
		require.Equal(t, strconv.FormatInt(time.Now().Unix()+2, 10), h.Get("X-RateLimit-Reset"))
	})
}
