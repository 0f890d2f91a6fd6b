package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// used returns what the four budgets of a spender have counted.
func (b *budgets) used(t testing.TB, s spender) (used [4]int64) {
	t.Helper()
	for i, p := range b.parts(s, 1) {
		d, err := p.Limiter.Peek(context.Background(), headgate.Call{Key: p.Call.Key})
		require.NoError(t, err)
		used[i] = d.Used
	}
	return used
}

// TestBudgets: callers of many processes spend from four budgets until none passes. Some
// die in a call. Spend is at most each budget, and a caller gets an event of each at 80 %.
func TestBudgets(t *testing.T) {
	redistest.Plain(t)
	const processes, callers = 200, 200
	server, spent := redistest.Start(t), map[string]*atomic.Int64{}
	l := limits{org: 100 * dollar, team: 40 * dollar, user: 15 * dollar, key: 9 * dollar}
	var mu sync.Mutex
	near := map[string]int{}
	var fleet []*budgets
	for range processes {
		store, err := standalone.Open("redis://"+server.Addr(), &standalone.Options{Budget: 10 * time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { _ = store.Close() })
		b, err := newBudgets(store, time.UTC, l, func(key string, used, limit int64) {
			require.GreaterOrEqual(t, used*10, limit*8)
			mu.Lock()
			near[key]++
			mu.Unlock()
		})
		require.NoError(t, err)
		fleet = append(fleet, b)
	}
	spenders := make([]spender, 36)
	for i := range spenders {
		s := spender{"o", fmt.Sprint(i / 12), fmt.Sprint(i / 3), fmt.Sprint(i), []string{"small", "large"}[i%2]}
		spenders[i] = s
		for _, p := range fleet[0].parts(s, 1) {
			if spent[p.Call.Key] == nil {
				spent[p.Call.Key] = new(atomic.Int64)
			}
		}
	}
	var all sync.WaitGroup
	var crashed atomic.Int64
	for i := range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			r, b := rand.New(rand.NewPCG(uint64(i), 1)), fleet[i%processes]
			for denied := 0; denied < 40; {
				s := spenders[r.IntN(len(spenders))]
				prompt, most := int64(r.IntN(30_000)), int64(1+r.IntN(30_000))
				made := r.Int64N(most + 1)
				cost, ran := prices[s.model].of(tokens{Input: prompt, Output: made}), false
				note := func() {
					ran = true
					for _, p := range b.parts(s, 1) {
						spent[p.Call.Key].Add(cost)
					}
				}
				if r.IntN(20) == 0 { // the process dies in the call: nothing settles it
					rs, d, err := headgate.ReserveAll(context.Background(), b.parts(s, prices[s.model].of(tokens{Input: prompt, Output: most}))...)
					if err == nil && d.Allowed && rs != nil {
						note()
						crashed.Add(1)
					}
				} else if _, err := b.spend(context.Background(), s, prompt, most, func(context.Context) tokens { note(); return tokens{Input: prompt, Output: made} }); err != nil {
					t.Error(err)
					return
				}
				if !ran {
					denied++
				}
			}
		}()
	}
	all.Wait()
	budget := map[byte]int64{'o': l.org, 't': l.team, 'u': l.user, 'k': l.key}
	for key, n := range spent {
		require.LessOrEqual(t, n.Load(), budget[key[0]], key)
	}
	counted := fleet[0].used(t, spenders[0])
	t.Logf("the organisation spent %d of %d micro-dollars, %d are counted; %d calls died", spent["org:o"].Load(), l.org, counted[3], crashed.Load())
	require.GreaterOrEqual(t, counted[3], spent["org:o"].Load())
	require.LessOrEqual(t, counted[3], l.org)
	require.Greater(t, spent["org:o"].Load(), l.org/2)
	require.Positive(t, crashed.Load())
	require.GreaterOrEqual(t, near["org:o"], 1)
}

// TestLowEstimates: where a call may cost more than was reserved, spend exceeds a budget at
// most by what the calls under way cost above their estimates when it was reached.
func TestLowEstimates(t *testing.T) {
	redistest.Plain(t)
	type call struct {
		rs               headgate.Reservations
		estimate, actual int64
	}
	crossed := 0
	for seed := range uint64(50) {
		r, ctx := rand.New(rand.NewPCG(seed, 2)), context.Background()
		b, err := newBudgets(memory.New(nil), time.UTC, limits{org: 10_000, team: 9_000, user: 8_000, key: 7_000}, nil)
		require.NoError(t, err)
		s := spender{"o", "t", "u", "k", "small"}
		var running []call
		spend, most, reached := int64(0), int64(7_000), false
		for step := 0; step < 2000 && (!reached || len(running) > 0); step++ {
			if r.IntN(2) == 0 {
				c := call{estimate: 1 + r.Int64N(200)}
				c.actual = r.Int64N(2*c.estimate + 1)
				rs, d, err := headgate.ReserveAll(ctx, b.parts(s, c.estimate)...)
				require.NoError(t, err)
				if c.rs = rs; d.Allowed {
					running = append(running, c)
				}
				continue
			}
			if len(running) == 0 {
				continue
			}
			excess := int64(0)
			for _, c := range running {
				excess += max(0, c.actual-c.estimate)
			}
			i := r.IntN(len(running))
			c := running[i]
			running = append(running[:i], running[i+1:]...)
			require.NoError(t, c.rs.Commit(ctx, []int64{c.actual}, []int64{c.actual}, []int64{c.actual}, []int64{c.actual}))
			spend += c.actual
			now := b.used(t, s)[0] >= 7_000
			if now && !reached { // again, if calls cost less than their estimates meanwhile
				most = 7_000 + excess
			}
			reached = now
		}
		if require.LessOrEqual(t, spend, most, "seed %d", seed); spend > 7_000 {
			crossed++
		}
	}
	require.Greater(t, crossed, 10, "estimates were too low")
}

// TestMonthEnds: in each zone the budget of the old month counts until its last microsecond,
// and that of the new one is whole from its first.
func TestMonthEnds(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "America/Sao_Paulo",
		"Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kiritimati"} {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		for month := time.January; month <= time.December; month++ {
			end := time.Date(2026, month+1, 1, 0, 0, 0, 0, zone)
			now := end.Add(-time.Hour)
			store := memory.New(&memory.Options{Now: func() time.Time { return now }})
			const all = 999_999_999 * dollar
			b, err := newBudgets(store, zone, limits{all, all, all, all}, nil)
			require.NoError(t, err)
			s := spender{"o", "t", "u", "k", "large"}
			pay := func(n int64) bool {
				_, d, err := headgate.ReserveAll(context.Background(), b.parts(s, n)...)
				require.NoError(t, err)
				return d.Allowed
			}
			require.True(t, pay(all))
			now = end.Add(-time.Microsecond)
			require.False(t, pay(1), "%s %v", name, end)
			now = end
			require.True(t, pay(all), "%s %v", name, end)
			require.False(t, pay(1))
		}
	}
}

// TestPrices: a model without a price makes no call, and a call that panics pays its prompt.
func TestPrices(t *testing.T) {
	b, err := newBudgets(memory.New(nil), time.UTC, limits{dollar, dollar, dollar, dollar}, nil)
	require.NoError(t, err)
	s := spender{"o", "t", "u", "k", "unknown"}
	_, err = b.spend(context.Background(), s, 1, 1, nil)
	require.ErrorIs(t, err, errUnpriced)
	s.model = "large"
	require.Panics(t, func() {
		_, _ = b.spend(context.Background(), s, 1000, 1000, func(context.Context) tokens { panic("model") })
	})
	require.Equal(t, [4]int64{3000, 3000, 3000, 3000}, b.used(t, s))
	require.EqualValues(t, 1, prices["small"].of(tokens{Cached: 1}), "rounded up")
	require.EqualValues(t, 3*dollar, prices["large"].of(tokens{Input: 1_000_000}))
	require.EqualValues(t, 15*dollar+300_000, prices["large"].of(tokens{Cached: 1_000_000, Output: 1_000_000}))
	for _, file := range []string{`{"m": {"input": 1, "output": 2}}`, `{"m": {"input": -1, "cached": 1, "output": 2}}`, `{"m": 1}`} {
		_, err := readPrices([]byte(file))
		require.Error(t, err)
	}
}
