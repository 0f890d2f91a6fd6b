package peers

import (
	"context"
	"net/http"
	"sync"

	"github.com/go-chi/httprate"
	"github.com/headgate-go/headgate/bench/load"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

// Memory are the peers that count in this process. The first two can refill
// within 10 ms, so workloads with refilling buckets take only these.
func Memory() []Maker { return []Maker{GoLimiter, xRate, throttledMemory, ululeMemory, httpRate} }

// GoLimiter is sethvargo/go-limiter's memorystore. It refills by interval, so
// it has Burst tokens per Window.
var GoLimiter = Maker{"go-limiter", Peer, func(l Limit) (*Subject, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(l.Burst), Interval: l.Window})
	if err != nil {
		return nil, err
	}
	s := plain(func(ctx context.Context, key string) load.Answer {
		_, _, _, ok, err := store.Take(ctx, key)
		return answer(ok, err)
	})
	s.Close = func() { _ = store.Close(context.Background()) } // else its goroutine keeps every key
	return s, nil
}}

// xRate is golang.org/x/time/rate with a limiter per key in a sync.Map, which
// is what its users write. Load comes before LoadOrStore, or each call would
// make a limiter.
var xRate = Maker{"x/time/rate", Peer, func(l Limit) (*Subject, error) {
	var limiters sync.Map
	every := rate.Limit(float64(l.Rate) / l.Period.Seconds())
	of := func(key string) *rate.Limiter {
		v, ok := limiters.Load(key)
		if !ok {
			v, _ = limiters.LoadOrStore(key, rate.NewLimiter(every, l.Burst))
		}
		return v.(*rate.Limiter)
	}
	return plain(func(_ context.Context, key string) load.Answer { return answer(of(key).Allow(), nil) }), nil
}}

// throttledMemory has no bound on its keys (0). With a bound it evicts counts
// and takes an exclusive lock for every call, which would be no fair
// comparison.
var throttledMemory = Maker{"throttled", Peer, func(l Limit) (*Subject, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return nil, err
	}
	// "Bursts of up to n additional": n + 1 pass at once.
	quota := throttled.RateQuota{MaxRate: throttled.PerDuration(l.Rate, l.Period), MaxBurst: l.Burst - 1}
	t, err := throttled.NewGCRARateLimiterCtx(store, quota)
	if err != nil {
		return nil, err
	}
	take := func(ctx context.Context, key string, n int) load.Answer {
		limited, _, err := t.RateLimitCtx(ctx, key, n)
		return answer(!limited, err)
	}
	s := plain(func(ctx context.Context, key string) load.Answer { return take(ctx, key, 1) })
	s.Fill = func(ctx context.Context, key string) load.Answer { return take(ctx, key, l.Fill) }
	return s, nil
}}

// ululeMemory counts Burst calls in fixed windows: ulule/limiter has no other
// algorithm.
var ululeMemory = Maker{"ulule/limiter", Peer, func(l Limit) (*Subject, error) {
	u := limiter.New(ulule.NewStore(), limiter.Rate{Period: l.Window, Limit: int64(l.Burst)})
	return plain(func(ctx context.Context, key string) load.Answer {
		c, err := u.Get(ctx, key)
		return answer(!c.Reached, err)
	}), nil
}}

// httpRate is called as its middleware calls it. Its headers are turned off as
// its README shows, since the other subjects write none.
var httpRate = Maker{"httprate", Peer, func(l Limit) (*Subject, error) {
	h := httprate.NewRateLimiter(l.Burst, l.Window, httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	r, err := http.NewRequest(http.MethodGet, "/", nil)
	if err != nil {
		return nil, err
	}
	return plain(func(_ context.Context, key string) load.Answer { return answer(!h.OnLimit(nil, r, key), nil) }), nil
}}
