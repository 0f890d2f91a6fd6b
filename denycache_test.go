package headgate_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var hourly = headgate.Policy{Name: "hourly", Algorithm: algo.TokenBucket(algo.PerHour(10), 10), OnFailure: headgate.FailClosed}

// unhurried is a store on a server, whose budget is not the subject.
func unhurried(t *testing.T, server *redistest.Server) *standalone.Store {
	return standalone.New(server.Client(t), &standalone.Options{Budget: 20 * time.Second})
}

func limiter(t *testing.T, s backend.Store, o *headgate.Options, policies ...headgate.Policy) *headgate.Limiter {
	t.Helper()
	l, err := headgate.New(s, policies, o)
	require.NoError(t, err)
	return l
}

// flood has callers ask for the key for so long, with a pause after each call.
func flood(t *testing.T, l *headgate.Limiter, key string, callers int, d, pause time.Duration) (asked, passed int) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for end := time.Now().Add(d); callers > 0; callers-- {
		all.Add(1)
		go func() {
			defer all.Done()
			n, let := 0, 0
			for ; time.Now().Before(end); n++ {
				d, err := l.Allow(context.Background(), key)
				if err != nil || d.Err != nil {
					t.Error(err, d.Err)
					return
				}
				if d.Allowed {
					let++
				}
				if pause > 0 {
					time.Sleep(pause)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			asked, passed = asked+n, passed+let
		}()
	}
	all.Wait()
	return asked, passed
}

// TestFloodOnASpentKey: 64 callers without a pause cost the server at most two
// commands per second.
func TestFloodOnASpentKey(t *testing.T) {
	server := redistest.Start(t)
	l := limiter(t, unhurried(t, server), nil, hourly)
	_, err := l.AllowN(context.Background(), "k", 10)
	require.NoError(t, err)
	d, err := l.Allow(context.Background(), "k")
	require.NoError(t, err)
	require.Equal(t, headgate.FromStore, d.Source)
	server.ResetStats(t)
	asked, passed := flood(t, l, "k", 64, time.Second, 0)
	sent := server.CommandStats(t)["evalsha"].Calls
	t.Logf("%d calls in 1 s, %d commands", asked, sent)
	require.LessOrEqual(t, sent, int64(2*2))
	require.Greater(t, asked, 1000)
	require.Zero(t, passed)
}

// TestFloodWithinTheBudget: the flood leaves the processor to the caller that asks.
// Otherwise that call misses the default budget, the denial ends unrefreshed, and
// every caller asks at once. A second try is for a machine that is busy elsewhere.
func TestFloodWithinTheBudget(t *testing.T) {
	if !redistest.Long() {
		t.Skip("it judges the default budget, which a busy machine misses: run by make test-long")
	}
	const seconds = 5
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	proxy.Set(redistest.Delay(20 * time.Millisecond))
	var sent, undecided int64
	for try := range 2 {
		store := standalone.New(server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), nil)
		seen := &metrics{}
		l := limiter(t, store, &headgate.Options{Observer: seen.observe}, hourly)
		key := fmt.Sprint("k", try)
		_, err := l.AllowN(t.Context(), key, 10)
		require.NoError(t, err)
		_, err = l.Allow(t.Context(), key)
		require.NoError(t, err)
		server.ResetStats(t)
		spin(t, l, key, 256, seconds*time.Second)
		sent, undecided = server.CommandStats(t)["evalsha"].Calls, seen.decisions[headgate.FromFailClosed].Load()
		t.Log(sent, "commands,", undecided, "answers by failure mode")
		if sent <= 2*seconds && undecided == 0 {
			return
		}
	}
	t.Errorf("%d commands in %d s, %d answers by failure mode", sent, seconds, undecided)
}

// spin has callers call without a pause, with a context that can end.
func spin(t *testing.T, l *headgate.Limiter, key string, callers int, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for end := time.Now().Add(d); callers > 0; callers-- {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Now().Before(end) {
				_, _ = l.Allow(ctx, key)
			}
		}()
	}
	all.Wait()
}

// TestFloodOnALimit: where units come free meanwhile, the callers that ask for
// each merge into a few commands.
func TestFloodOnALimit(t *testing.T) {
	server := redistest.Start(t)
	drip := headgate.Policy{Name: "drip", Algorithm: algo.TokenBucket(algo.PerSecond(10), 1), OnFailure: headgate.FailClosed}
	l := limiter(t, unhurried(t, server), nil, drip)
	_, err := l.Allow(context.Background(), "k")
	require.NoError(t, err)
	_, err = l.Allow(context.Background(), "k")
	require.NoError(t, err)
	// A unit that comes free while the process has no processor is lost, also for a lone
	// caller in memory.
	alone, lone := limiter(t, memory.New(nil), &headgate.Options{DenyCacheTTL: -1}, drip), make(chan int, 1)
	_, err = alone.Allow(context.Background(), "k")
	require.NoError(t, err)
	server.ResetStats(t)
	go func() {
		_, passed := flood(t, alone, "k", 1, 2*time.Second, time.Millisecond)
		lone <- passed
	}()
	asked, passed := flood(t, l, "k", 64, 2*time.Second, time.Millisecond)
	most := <-lone
	sent := server.CommandStats(t)["evalsha"].Calls
	t.Logf("%d calls in 2 s, %d passed and %d of a lone caller, %d commands", asked, passed, most, sent)
	require.InDelta(t, most, passed, 3, "a caller that waits keeps nobody's unit from them")
	require.Less(t, sent, int64(64*passed/4), "were all let go by one that passes, each would cost 64")
}

// TestLimitersShareDenials: those on one store, by the same policies.
func TestLimitersShareDenials(t *testing.T) {
	ctx := context.Background()
	store, seen := unhurried(t, redistest.Start(t)), &metrics{}
	l := limiter(t, store, &headgate.Options{Observer: seen.observe}, hourly)
	open, err := l.OnFailure(headgate.FailOpen)
	require.NoError(t, err)
	raised, err := l.With(headgate.Policy{Name: "hourly", Algorithm: algo.TokenBucket(algo.PerHour(10), 11), OnFailure: headgate.FailOpen})
	require.NoError(t, err)
	off := limiter(t, store, &headgate.Options{DenyCacheTTL: -1}, hourly)
	source := func(l *headgate.Limiter, n int64) string {
		d, err := l.AllowN(ctx, "k", n)
		require.NoError(t, err)
		require.NoError(t, d.Err)
		return fmt.Sprint(d.Source, " ", d.Allowed)
	}
	require.Equal(t, "store true", source(l, 10))
	require.Equal(t, "store false", source(l, 2))
	require.Equal(t, "deny_cache false", source(l, 2))
	require.Equal(t, "deny_cache false", source(open, 3))
	require.Equal(t, "deny_cache false", source(limiter(t, store, nil, hourly), 2))
	require.Equal(t, "store false", source(l, 1), "costs less")
	require.Equal(t, "store false", source(off, 2))
	require.Equal(t, "store true", source(raised, 1), "another limit")
	require.NoError(t, off.Reset(ctx, "k"))
	require.Equal(t, "store true", source(l, 10), "reset by whichever limiter")
	require.Equal(t, "store false", source(l, 2))
	require.EqualValues(t, 2, l.Stats().DenyCache)
	require.Zero(t, off.Stats().DenyCache)
	require.EqualValues(t, 2, seen.decisions[headgate.FromDenyCache].Load(), "told once each")
	require.EqualValues(t, 6, seen.decisions[headgate.FromStore].Load())
	require.NoError(t, store.Close())
	_, err = l.AllowN(ctx, "k", 2)
	require.ErrorIs(t, err, headgate.ErrClosed)
}

// TestDenialOfAnotherCount: an All of two counts of one key, which are decided one by one, gives
// back what it took of the first, and the second is still known to be denied.
func TestDenialOfAnotherCount(t *testing.T) {
	s := oneKey(memory.New(nil))
	s.shared = new(layer.Shared)
	first, second := limiter(t, s, nil, level("first", 1000)), limiter(t, s, nil, level("second", 1))
	d, err := second.Allow(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.Eventually(t, func() bool { // what is given back before the denial is noted ends it
		d, err := headgate.All(context.Background(), first.Part("k"), second.Part("k"))
		for headgate.Cancelling(first) > 0 {
			time.Sleep(time.Millisecond)
		}
		return err == nil && !d.Allowed && d.Source == headgate.FromDenyCache
	}, 20*time.Second, time.Millisecond)
}

func TestDenyCacheTTLIsChecked(t *testing.T) {
	for _, d := range []time.Duration{time.Second + 1, time.Hour} {
		_, err := headgate.New(memory.New(nil), []headgate.Policy{perMinute}, &headgate.Options{DenyCacheTTL: d})
		var invalid *headgate.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, d, invalid.Value)
	}
	for _, d := range []time.Duration{-time.Hour, -1, 0, 1, time.Second} {
		_, err := headgate.New(memory.New(nil), []headgate.Policy{perMinute}, &headgate.Options{DenyCacheTTL: d})
		require.NoError(t, err)
	}
}

// TestMemoryHasNoDenyCache: it answers in less time than a look would take.
func TestMemoryHasNoDenyCache(t *testing.T) {
	l := limiter(t, memory.New(nil), nil, hourly)
	for range 3 {
		d, err := l.AllowN(context.Background(), "k", 6)
		require.NoError(t, err)
		require.Equal(t, headgate.FromStore, d.Source)
	}
}
