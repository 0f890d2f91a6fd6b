//go:build go1.25

package headgate_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// TestStreamsAreCut: 32 streams take a token at a time of one budget, from units that their
// processes hold in advance. Lengths are those of a public trace of a model's replies. No token
// passes above the budget, and one process uses all of it, by few round trips.
func TestStreamsAreCut(t *testing.T) {
	const streams = 32
	for rate, most := range map[int]float64{200: 1.0 / 1000, 30: 3.0 / (30 * streams)} { // round trips per token
		for _, processes := range []int{1, 4} {
			t.Run(fmt.Sprint(rate, " ", processes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := cutStreams{t: t, rate: rate}
					counts := memory.New(nil)
					for i := range processes {
						tokens := c.process(counts)
						for j := range streams / processes {
							c.all.Go(func() { c.stream(tokens, rand.New(rand.NewPCG(uint64(i), uint64(j)))) })
						}
					}
					c.all.Wait()
					passed, per := c.passed.Load(), float64(c.trips.Load())/cutBudget
					t.Logf("%d tokens per second and stream, %d processes: %d of %d tokens, %d round trips: %.2f per 1,000 tokens, %.2f per second",
						rate, processes, passed, cutBudget, c.trips.Load(), 1000*per, per*float64(rate*streams))
					require.LessOrEqual(t, passed, int64(cutBudget))
					require.GreaterOrEqual(t, passed, int64(cutBudget*99/100))
					if processes == 1 {
						require.LessOrEqual(t, per, most)
					}
				})
			})
		}
	}
}

const cutBudget = 50_000

// cutStreams are streams until their budget is gone.
type cutStreams struct {
	t             *testing.T
	rate          int
	all           sync.WaitGroup
	trips, passed atomic.Int64
}

// process returns the limiter of a process that is 1 ms away from its store.
func (c *cutStreams) process(counts backend.Store) *headgate.Limiter {
	s := remote(counts)
	s.shared.Budget = 100 * time.Millisecond
	s.do = func(ctx context.Context, next backend.Store, r *backend.Request, d *backend.Decision) error {
		c.trips.Add(1)
		time.Sleep(2 * time.Millisecond)
		return next.Do(ctx, r, d)
	}
	tokens, err := limiter(c.t, s, nil, perDayOf("tokens", cutBudget, headgate.FailClosed)).WithBorrow(time.Second)
	require.NoError(c.t, err)
	return tokens
}

// stream makes replies, one after the other, until one is cut.
func (c *cutStreams) stream(tokens *headgate.Limiter, r *rand.Rand) {
	for {
		length := int(129 * math.Exp(0.661*r.NormFloat64())) // p50 129, p99 601
		for range max(1, length) {
			time.Sleep(time.Second / time.Duration(c.rate))
			d, err := tokens.Allow(context.Background(), "tenant")
			require.NoError(c.t, err)
			if !d.Allowed {
				return
			}
			c.passed.Add(1)
		}
	}
}

// TestLockOut: of 50 guesses at once five are checked. A good password is not charged, and ends
// the count.
func TestLockOut(t *testing.T) {
	now := time.Unix(1_745_000_000, 0)
	s := memory.New(&memory.Options{Now: func() time.Time { return now }})
	guesses, err := headgate.New(s, lockOut, nil)
	require.NoError(t, err)
	var checked, denied atomic.Int64
	var waiting sync.WaitGroup
	waiting.Add(50)
	guess := func(good bool) {
		passes, err := logIn(context.Background(), guesses, "ann", func() bool {
			checked.Add(1)
			waiting.Wait()
			return good
		})
		require.NoError(t, err)
		if !passes && !good {
			denied.Add(1)
		}
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { waiting.Done(); guess(false) })
	}
	all.Wait()
	require.EqualValues(t, 5, checked.Load())
	require.EqualValues(t, 50, denied.Load())
	for _, minutes := range []int{1, 1, 59, 1, 60, 1, 1} { // 5 per minute, 10 per hour, 20 per day
		now = now.Add(time.Duration(minutes) * time.Minute)
		for range 9 {
			guess(false)
		}
	}
	require.EqualValues(t, 20, checked.Load())
	now = now.Add(24 * time.Hour)
	for range 30 {
		for range 4 {
			guess(false)
		}
		guess(true) // or nobody could log in so often
	}
	require.EqualValues(t, 20+150, checked.Load())
	d, err := guesses.Peek(context.Background(), headgate.Call{Key: headgate.Key("login", "ann")})
	require.NoError(t, err)
	require.Zero(t, d.Used)
}

// TestLoginsAtOnce: a good login ends the count, also of logins under way. None of them fails for
// it, and a client that leaves does not keep it from being counted.
func TestLoginsAtOnce(t *testing.T) {
	forms(t, func(t *testing.T, s backend.Store) {
		guesses, err := headgate.New(s, lockOut, nil)
		require.NoError(t, err)
		logs := func(ctx context.Context, check func() bool) bool {
			passes, err := logIn(ctx, guesses, "ann", check)
			require.NoError(t, err)
			return passes
		}
		for _, good := range []bool{true, false} { // the login under way
			require.Equal(t, good, logs(t.Context(), func() bool {
				require.True(t, logs(t.Context(), func() bool { return true }))
				return good
			}))
			requireCount(t, guesses, headgate.Key("login", "ann"), 0)
		}
		for _, good := range []bool{false, true} {
			ctx, leave := context.WithCancel(t.Context())
			require.Equal(t, good, logs(ctx, func() bool { leave(); return good }))
			requireCount(t, guesses, headgate.Key("login", "ann"), map[bool]int64{false: 1}[good])
		}
	})
}

// TestAgent: a tool that is denied costs neither the session nor the tenant.
func TestAgent(t *testing.T) {
	a, err := newAgents(memory.New(nil))
	require.NoError(t, err)
	ctx := context.Background()
	for i := range 9 {
		d, err := a.call(ctx, "acme", "s1", "search")
		require.NoError(t, err)
		require.Equal(t, i < 3, d.Allowed)
	}
	d, err := a.call(ctx, "acme", "s1", "read")
	require.NoError(t, err)
	require.True(t, d.Allowed, "the session has units left")
	d, err = a.call(ctx, "acme", "s2", "search")
	require.NoError(t, err)
	require.True(t, d.Allowed, "a session of its own")
	requireCount(t, a.tenants, headgate.Key("tenant", "acme"), 5)
}

// TestShares: a tenant's share is its own, and all have the pool.
func TestShares(t *testing.T) {
	s, err := newShares(memory.New(nil), 100, map[string]int64{"a": 30, "b": 20})
	require.NoError(t, err)
	count := func(tenant string, n int) (passed int) {
		for range n {
			d, err := s.allow(context.Background(), tenant)
			require.NoError(t, err)
			if d.Allowed {
				passed++
			}
		}
		return passed
	}
	require.Equal(t, 80, count("a", 200))
	require.Equal(t, 20, count("b", 200))
	require.Zero(t, count("c", 9), "a tenant without a share has the pool only")
	_, err = newShares(memory.New(nil), 50, map[string]int64{"a": 30, "b": 20})
	require.Error(t, err, "no units are left for the pool")
}
