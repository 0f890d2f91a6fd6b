//go:build go1.25

// Package from compiles and runs the snippets of docs/from.md.
package from

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/didip/tollbooth/v7"
	"github.com/go-chi/httprate"
	"github.com/go-redis/redis_rate/v10"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit"
	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/middleware/grpclimit"
	"github.com/headgate-go/headgate/middleware/httplimit"
	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// tooMany is what a handler answers to a denied call.
type tooMany time.Duration

func (t tooMany) Error() string { return fmt.Sprint("too many, retry after ", time.Duration(t)) }

func serve() error { return nil }

type handler = func(ctx context.Context, key string) error

// headgateOn is the call that all of Headgate's snippets have in common.
func headgateOn(limiter *headgate.Limiter, err error) (handler, error) {
	handle := func(ctx context.Context, key string) error {
		d, err := limiter.Allow(ctx, key)
		if err != nil {
			return err // the call was wrong, or ctx had ended
		}
		if !d.Allowed {
			return tooMany(d.RetryAfter)
		}
		return serve()
	}
	return handle, err
}

func fromRedisRate(rdb *redis.Client) (handler, error) {
	limiter := redis_rate.NewLimiter(rdb)

	handle := func(ctx context.Context, key string) error {
		res, err := limiter.Allow(ctx, key, redis_rate.PerMinute(10))
		if err != nil {
			return err
		}
		if res.Allowed == 0 {
			return tooMany(res.RetryAfter)
		}
		return serve()
	}
	return handle, nil
}

func toTokenBucket(rdb *redis.Client) (handler, error) {
	limiter, err := headgate.New(standalone.New(rdb, nil), []headgate.Policy{{
		Name:      "api",
		Algorithm: algo.TokenBucket(algo.PerMinute(10), 10),
		OnFailure: headgate.FailOpen,
	}}, nil)
	return headgateOn(limiter, err)
}

func storeOf(rdb redis.UniversalClient) (backend.Store, error) {
	switch c := rdb.(type) {
	case *redis.Client: // one server, or Sentinel
		return standalone.New(c, nil), nil
	case *redis.ClusterClient:
		return cluster.New(c, nil), nil
	}
	return nil, fmt.Errorf("no store for a %T", rdb)
}

func fromThrottled(rdb *redis.Client) (handler, error) {
	store, err := goredisstore.NewCtx(rdb, "api:")
	if err != nil {
		return nil, err
	}
	quota := throttled.RateQuota{MaxRate: throttled.PerMin(10), MaxBurst: 9} // and one more: 10 at once
	limiter, err := throttled.NewGCRARateLimiterCtx(store, quota)

	handle := func(ctx context.Context, key string) error {
		limited, res, err := limiter.RateLimitCtx(ctx, key, 1)
		if err != nil {
			return err
		}
		if limited {
			return tooMany(res.RetryAfter)
		}
		return serve()
	}
	return handle, err
}

func fromUlule(rdb *redis.Client) (handler, error) {
	store, err := ululeredis.NewStore(rdb)
	if err != nil {
		return nil, err
	}
	limiter := limiter.New(store, limiter.Rate{Period: time.Minute, Limit: 10})

	handle := func(ctx context.Context, key string) error {
		c, err := limiter.Get(ctx, key)
		if err != nil {
			return err
		}
		if c.Reached {
			return tooMany(time.Until(time.Unix(c.Reset, 0)))
		}
		return serve()
	}
	return handle, err
}

func toSlidingWindow(rdb *redis.Client) (handler, error) {
	limiter, err := headgate.New(standalone.New(rdb, nil), []headgate.Policy{{
		Name:      "api",
		Algorithm: algo.SlidingWindow(algo.PerMinute(10)), // or FixedWindow
		OnFailure: headgate.FailOpen,
	}}, nil)
	return headgateOn(limiter, err)
}

func toLeakyQueue(store backend.Store) (*headgate.Limiter, error) {
	limiter, err := headgate.New(store, []headgate.Policy{{
		Name:      "api",
		Algorithm: algo.LeakyQueue(algo.PerSecond(10), 1, 2*time.Second),
		OnFailure: headgate.FailOpen,
	}}, nil)
	return limiter, err
}

// TestLimitReq: of calls that come at once one goes on, 20 wait, and the next one is denied, as
// with "rate=10r/s burst=20" of nginx.
func TestLimitReq(t *testing.T) {
	limiter, err := toLeakyQueue(memory.New(&memory.Options{Now: func() time.Time { return time.Unix(1745000145, 0) }}))
	require.NoError(t, err)
	for i := range 22 {
		d, err := limiter.Allow(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, i < 21, d.Allowed)
		require.Equal(t, time.Duration(i%21)*100*time.Millisecond, d.Delay)
	}
}

func fromGoLimiter() (handler, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: 10, Interval: time.Minute})

	handle := func(ctx context.Context, key string) error {
		_, _, reset, ok, err := store.Take(ctx, key)
		if err != nil {
			return err
		}
		if !ok {
			return tooMany(time.Until(time.Unix(0, int64(reset))))
		}
		return serve()
	}
	return handle, err
}

func toFixedWindow() (handler, error) {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name:      "api",
		Algorithm: algo.FixedWindow(algo.PerMinute(10)),
		OnFailure: headgate.FailOpen, // memory does not fail
	}}, nil)
	return headgateOn(limiter, err)
}

func fromXTimeRate() (handler, error) {
	var limiters sync.Map // one per key; nobody removes them

	handle := func(_ context.Context, key string) error {
		l, _ := limiters.LoadOrStore(key, rate.NewLimiter(rate.Every(time.Minute/10), 10))
		r := l.(*rate.Limiter).Reserve()
		if delay := r.Delay(); delay > 0 {
			r.Cancel()
			return tooMany(delay)
		}
		return serve()
	}
	return handle, nil
}

func toMemory() (handler, error) {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name:      "api",
		Algorithm: algo.TokenBucket(algo.PerMinute(10), 10),
		OnFailure: headgate.FailOpen, // memory does not fail
	}}, nil)
	return headgateOn(limiter, err)
}

// waits returns what stands for x/time/rate's Wait.
func waits(limiter *headgate.Limiter) handler {
	wait := func(ctx context.Context, key string) error {
		_, err := limiter.Wait(ctx, key)
		return err
	}
	return wait
}

func fromHTTPRate(next http.Handler) http.Handler {
	apiKey := func(r *http.Request) (string, error) { return r.Header.Get("X-API-Key"), nil }

	return httprate.LimitBy(10, time.Minute, apiKey)(next)
}

func toHeader(limiter *headgate.Limiter, next http.Handler) (http.Handler, error) {
	limit, err := httplimit.New(limiter, httplimit.Header("X-API-Key"), &httplimit.Options{
		EmptyKey:   httplimit.EmptyShared, // requests without a key share a count; the default is status 400
		XRateLimit: true,                  // X-RateLimit-*, beside RateLimit
		ResetEpoch: true,                  // X-RateLimit-Reset in seconds of the Unix epoch
	})
	if err != nil {
		return nil, err
	}
	return limit(next), nil
}

func fromTollbooth(next http.Handler) http.Handler {
	limit := tollbooth.NewLimiter(10.0/60, nil) // per second
	limit.SetBurst(10)
	limit.SetIPLookups([]string{"RemoteAddr"}) // X-Forwarded-For comes first otherwise, and any client can write it
	return tollbooth.LimitHandler(limit, next)
}

func toRemoteAddr(limiter *headgate.Limiter, next http.Handler) (http.Handler, error) {
	limit, err := httplimit.New(limiter, httplimit.RemoteAddr(), nil)
	if err != nil {
		return nil, err
	}
	return limit(next), nil
}

// perProcess is the Limiter of go-grpc-middleware.
type perProcess struct{ *rate.Limiter }

func (l perProcess) Limit(context.Context) error {
	if !l.Allow() {
		return errors.New("more than 10 calls per minute")
	}
	return nil
}

func fromGRPCMiddleware() grpc.UnaryServerInterceptor {
	limit := perProcess{rate.NewLimiter(10.0/60, 10)}
	return ratelimit.UnaryServerInterceptor(limit)
}

func toPeerAddress(limiter *headgate.Limiter) (grpc.UnaryServerInterceptor, error) {
	limit, err := grpclimit.New(limiter, grpclimit.PeerAddress(), nil)
	if err != nil {
		return nil, err
	}
	return limit.Unary, nil
}

// overGRPC calls a method per call, from one address.
func overGRPC(i grpc.UnaryServerInterceptor, err error) (handler, error) {
	return func(ctx context.Context, _ string) error {
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}})
		_, err := i(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/s/m"}, func(context.Context, any) (any, error) { return nil, nil })
		if status.Code(err) == codes.ResourceExhausted {
			after, _ := grpclimit.RetryDelay(err) // go-grpc-middleware sends none
			return tooMany(after)
		}
		return err
	}, err
}

// overHTTP sends a request per call: its key is a header, and its address is the same.
func overHTTP(h http.Handler, err error) (handler, error) {
	return func(_ context.Context, key string) error {
		r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
		r.Header.Set("X-API-Key", key)
		h.ServeHTTP(w, r)
		switch w.Code {
		case http.StatusOK:
			return nil
		case http.StatusTooManyRequests:
			seconds, _ := strconv.Atoi(w.Header().Get("Retry-After")) // tollbooth sends none
			return tooMany(time.Duration(seconds) * time.Second)
		}
		return fmt.Errorf("status %d", w.Code)
	}, err
}

// inMemory returns a limiter of 10 calls per minute.
func inMemory() *headgate.Limiter {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name: "api", Algorithm: algo.TokenBucket(algo.PerMinute(10), 10), OnFailure: headgate.FailOpen,
	}}, nil)
	if err != nil {
		panic(err) // the policy is valid
	}
	return limiter
}

// TestTenOfEleven: each handler, the peer's and ours, serves 10 calls and denies
// the next, with a time that is not above the minute.
func TestTenOfEleven(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	on := func(f func(*redis.Client) (handler, error)) func() (handler, error) {
		return func() (handler, error) { return f(rdb) }
	}
	for name, f := range map[string]func() (handler, error){
		"redis_rate": on(fromRedisRate), "token bucket": on(toTokenBucket), "throttled": on(fromThrottled),
		"ulule": on(fromUlule), "sliding window": on(toSlidingWindow),
		"go-limiter": fromGoLimiter, "x/time/rate": fromXTimeRate, "memory": toMemory,
		"httprate":    func() (handler, error) { return overHTTP(fromHTTPRate(ok), nil) },
		"tollbooth":   func() (handler, error) { return overHTTP(fromTollbooth(ok), nil) },
		"header":      func() (handler, error) { return overHTTP(toHeader(inMemory(), ok)) },
		"remote addr": func() (handler, error) { return overHTTP(toRemoteAddr(inMemory(), ok)) },
		"grpc":        func() (handler, error) { return overGRPC(fromGRPCMiddleware(), nil) },
		"peer":        func() (handler, error) { return overGRPC(toPeerAddress(inMemory())) },
	} {
		t.Run(name, func(t *testing.T) { tenOfEleven(t, f) })
	}
	t.Run("fixed window", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { tenOfEleven(t, toFixedWindow) }) // where no minute ends meanwhile
	})
}

// tenOfEleven tries again with another key if a call of a snippet, whose budget is the
// default one, was late on a busy machine: it passes uncounted, and so does the eleventh.
func tenOfEleven(t *testing.T, f func() (handler, error)) {
	handle, err := f()
	require.NoError(t, err)
	for try := 1; ; try++ {
		key := fmt.Sprint(t.Name(), try)
		for range 10 {
			require.NoError(t, handle(context.Background(), key))
		}
		var denied tooMany
		err := handle(context.Background(), key)
		if err == nil && try < 5 {
			continue
		}
		require.ErrorAs(t, err, &denied)
		require.LessOrEqual(t, time.Duration(denied), time.Minute)
		return
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
			Name: "api", Algorithm: algo.TokenBucket(algo.PerSecond(1), 1), OnFailure: headgate.FailOpen,
		}}, nil)
		require.NoError(t, err)
		wait, begin := waits(limiter), time.Now()
		for range 4 {
			require.NoError(t, wait(context.Background(), "k"))
		}
		require.Equal(t, 3*time.Second, time.Since(begin).Round(time.Millisecond))
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		var late *headgate.DeadlineError
		require.ErrorAs(t, wait(ctx, "k"), &late)
	})
}

// TestALostReply: redis_rate charges a call again for each reply that is lost, by
// go-redis's default retries, and Headgate does not. docs/from.md says so.
func TestALostReply(t *testing.T) {
	server := redistest.Shared(t)
	p := redistest.NewProxy(t, server.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr()})
	defer rdb.Close()
	for name, of := range map[string]struct {
		f       func(*redis.Client) (handler, error)
		charged int
	}{
		"redis_rate": {fromRedisRate, 4}, "headgate": {toTokenBucket, 1},
	} {
		t.Run(name, func(t *testing.T) {
			lossy, err := of.f(rdb)
			require.NoError(t, err)
			direct, err := of.f(server.Client(t))
			require.NoError(t, err)
			require.NoError(t, lossy(context.Background(), "warm"))
			p.Set(redistest.ResetAfterRequest)
			_ = lossy(context.Background(), t.Name())
			p.Set(redistest.Pass)
			left := 0
			for direct(context.Background(), t.Name()) == nil {
				left++
			}
			require.Equal(t, of.charged, 10-left)
		})
	}
}

// TestWithoutAKey: requests without the header share one count, as with httprate, and have
// the X-RateLimit fields. docs/from.md says so.
func TestWithoutAKey(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	ours, err := toHeader(inMemory(), ok)
	require.NoError(t, err)
	for name, h := range map[string]http.Handler{"httprate": fromHTTPRate(ok), "headgate": ours} {
		for i := range 11 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			require.Equal(t, i < 10, w.Code == http.StatusOK, name)
			for _, field := range []string{"Limit", "Remaining", "Reset"} {
				require.NotEmpty(t, w.Header().Get("X-RateLimit-"+field), name)
			}
			reset, err := strconv.ParseInt(w.Header().Get("X-RateLimit-Reset"), 10, 64)
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), time.Unix(reset, 0), 3*time.Minute, name)
		}
	}
}

// TestStoreOf: each client that has a store gets its own, and a Ring an error.
func TestStoreOf(t *testing.T) {
	one := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}})
	many := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}, IsClusterMode: true})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	for _, c := range []redis.UniversalClient{one, many, ring} {
		defer c.Close()
	}
	s, err := storeOf(one)
	require.NoError(t, err)
	require.IsType(t, (*standalone.Store)(nil), s)
	s, err = storeOf(many)
	require.NoError(t, err)
	require.IsType(t, (*cluster.Store)(nil), s)
	require.NoError(t, s.Close())
	_, err = storeOf(ring)
	require.Error(t, err)
}

// TestChangedBurst: what is used stays, not the tokens that are left. docs/from.md says so.
func TestChangedBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := func(period time.Duration, burst int64) headgate.Policy {
			return headgate.Policy{Name: "api", Algorithm: algo.TokenBucket(algo.Per(1, period), burst), OnFailure: headgate.FailOpen}
		}
		ctx, second := context.Background(), time.Second
		five, err := headgate.New(memory.New(nil), []headgate.Policy{of(second, 5)}, nil)
		require.NoError(t, err)
		_, err = five.AllowN(ctx, "k", 1)
		require.NoError(t, err)
		twenty, err := five.With(of(second, 20))
		require.NoError(t, err)
		d, err := twenty.AllowN(ctx, "k", 19)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		d, err = five.Allow(ctx, "k")
		require.NoError(t, err)
		require.Equal(t, 16*second, d.RetryAfter)
		faster, err := five.With(of(second/4, 20))
		require.NoError(t, err)
		d, err = faster.Allow(ctx, "k")
		require.NoError(t, err)
		require.EqualValues(t, 20, d.Used)
		require.Equal(t, second/4, d.RetryAfter)
	})
}

// TestChangedRate: a new rate applies from the last charge on. docs/from.md says so.
func TestChangedRate(t *testing.T) {
	fast, slow := algo.TokenBucket(algo.PerSecond(10), 100), algo.TokenBucket(algo.PerHour(1), 100)
	for _, c := range []struct {
		from, to      algo.Algorithm
		idle          time.Duration
		before, after int64 // units that are left
		retry         time.Duration
	}{
		{fast, slow, 9 * time.Second, 90, 0, time.Hour - 9*time.Second},
		{slow, fast, 10 * time.Second, 0, 100, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := headgate.Policy{Name: "api", Algorithm: c.from, OnFailure: headgate.FailOpen}
			old, err := headgate.New(memory.New(nil), []headgate.Policy{p}, nil)
			require.NoError(t, err)
			p.Algorithm = c.to
			changed, err := old.With(p)
			require.NoError(t, err)
			_, err = old.AllowN(context.Background(), "k", 100)
			require.NoError(t, err)
			time.Sleep(c.idle)
			d, err := old.Peek(context.Background(), headgate.Call{Key: "k"})
			require.NoError(t, err)
			require.Equal(t, c.before, d.Remaining)
			d, err = changed.Peek(context.Background(), headgate.Call{Key: "k"})
			require.NoError(t, err)
			require.Equal(t, c.after, d.Remaining)
			require.Equal(t, c.retry, d.RetryAfter)
		})
	}
}

// TestZero: x/time/rate, throttled and Headgate pass a call of no units. A limit of 0
// with a burst passes the burst. docs/from.md says so.
func TestZero(t *testing.T) {
	d, err := inMemory().AllowN(context.Background(), "k", 0)
	require.NoError(t, err)
	require.Equal(t, []any{true, headgate.FromNone}, []any{d.Allowed, d.Source})
	d, err = inMemory().Peek(context.Background(), headgate.Call{Key: "k", Costs: []int64{0}})
	require.NoError(t, err)
	require.EqualValues(t, 10, d.Remaining)
	require.True(t, rate.NewLimiter(1, 1).AllowN(time.Now(), 0))
	never := rate.NewLimiter(0, 3)
	for i := range 5 {
		require.Equal(t, i < 3, never.Allow())
	}
	store, err := goredisstore.NewCtx(redistest.Shared(t).Client(t), t.Name())
	require.NoError(t, err)
	throttle, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerMin(10), MaxBurst: 2})
	require.NoError(t, err)
	limited, _, err := throttle.RateLimitCtx(context.Background(), "k", 0)
	require.NoError(t, err)
	require.False(t, limited)
}

// TestThrottledFields: the fields of a response that passes are throttled's. On a denial
// Reset differs. docs/from.md says so.
func TestThrottledFields(t *testing.T) {
	rdb, ok := redistest.Shared(t).Client(t), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	ours, err := headgate.New(standalone.New(rdb, &standalone.Options{Budget: 10 * time.Second}), []headgate.Policy{{
		Name: "api", Algorithm: algo.TokenBucket(algo.PerMinute(10), 3), OnFailure: headgate.FailClosed,
	}}, nil)
	require.NoError(t, err)
	limit, err := httplimit.New(ours, httplimit.RemoteAddr(), &httplimit.Options{XRateLimit: true})
	require.NoError(t, err)
	store, err := goredisstore.NewCtx(rdb, t.Name())
	require.NoError(t, err)
	theirs, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerMin(10), MaxBurst: 2})
	require.NoError(t, err)
	throttle := throttled.HTTPRateLimiterCtx{RateLimiter: theirs, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
	fields := func(h http.Handler, try int) (got []string) {
		r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
		r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", try)
		h.ServeHTTP(w, r)
		for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"} {
			got = append(got, w.Header().Get(name))
		}
		return got
	}
	for try := range 50 {
		begin := time.Now()
		var old, now [][]string
		for range 4 {
			old, now = append(old, fields(throttle.RateLimit(ok), try)), append(now, fields(limit(ok), try))
		}
		if time.Since(begin) > 900*time.Millisecond {
			continue // a second has passed in between
		}
		require.Equal(t, old[:3], now[:3])
		require.Equal(t, []string{"3", "0", "18", "6"}, old[3])
		require.Equal(t, []string{"3", "0", "6", "6"}, now[3])
		return
	}
	t.Fatal("the machine was too busy, 50 times in a row")
}

// TestHTTPRateInAHandler holds what docs/from.md's table says of increments, of Status and
// of what Allow returns.
func TestHTTPRateInAHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := httprate.NewRateLimiter(2, time.Minute)
		limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
			Name: "api", Algorithm: algo.SlidingWindow(algo.PerMinute(2)), OnFailure: headgate.FailOpen,
		}}, nil)
		require.NoError(t, err)
		opts := &httplimit.Options{XRateLimit: true}
		call := func(cost int, key string) (was, is *httptest.ResponseRecorder) {
			was, is = httptest.NewRecorder(), httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			denied := old.RespondOnLimit(was, r.WithContext(httprate.WithIncrement(r.Context(), cost)), key)
			require.Equal(t, denied, !httplimit.Allow(is, r, opts, limiter.Part(key, int64(cost))))
			return was, is
		}
		was, is := call(3, "above")
		require.Equal(t, []int{429, 403}, []int{was.Code, is.Code})
		require.Equal(t, []string{"2", ""}, []string{was.Header().Get("X-RateLimit-Limit"), is.Header().Get("X-RateLimit-Limit")})
		was, is = call(0, "none")
		require.Equal(t, []string{"2", ""}, []string{was.Header().Get("X-RateLimit-Limit"), is.Header().Get("X-RateLimit-Limit")})
		was, is = call(2, "k")
		require.Equal(t, []string{"2", ""}, []string{was.Header().Get("X-RateLimit-Increment"), is.Header().Get("X-RateLimit-Increment")})
		within, _, err := old.Status("k")
		require.NoError(t, err)
		d, err := limiter.Peek(context.Background(), headgate.Call{Key: "k"})
		require.NoError(t, err)
		require.Equal(t, []bool{true, false}, []bool{within, d.Allowed})
		call(1, "k")
	})
}

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// TestSnippetsAreCompiled: each Go snippet of docs/from.md stands in this file.
func TestSnippetsAreCompiled(t *testing.T) {
	doc, err := os.ReadFile("../from.md")
	require.NoError(t, err)
	source, err := os.ReadFile("from_test.go")
	require.NoError(t, err)
	normal := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	blocks := goBlock.FindAllStringSubmatch(string(doc), -1)
	require.Len(t, blocks, 19)
	for _, b := range blocks {
		require.Contains(t, normal(string(source)), normal(b[1]))
	}
}
