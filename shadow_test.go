package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var (
	shadowed = []headgate.Policy{
		{Name: "a", Algorithm: algo.TokenBucket(algo.PerMinute(600), 20), OnFailure: headgate.FailClosed},
		{Name: "tighter", Algorithm: algo.SlidingWindow(algo.PerMinute(90)), OnFailure: headgate.FailClosed, Shadow: true},
		{Name: "b", Algorithm: algo.SlidingLog(algo.PerMinute(150)), OnFailure: headgate.FailClosed},
		{Name: "other", Algorithm: algo.TokenBucket(algo.PerMinute(60), 3), OnFailure: headgate.FailClosed, Shadow: true},
	}
	enforced = []headgate.Policy{shadowed[0], shadowed[2]}
	shadows  = []headgate.Policy{plainly(shadowed[1]), plainly(shadowed[3])}
)

// plainly returns the policy without its Shadow.
func plainly(p headgate.Policy) headgate.Policy {
	p.Shadow = false
	return p
}

// TestShadow: the enforced policies decide what they decide without the shadows. A shadow
// is charged for the calls that pass and for which it has room, each by itself, and its
// state is that of a limiter of it alone.
func TestShadow(t *testing.T) {
	now := time.Unix(1700000000, 0)
	open := func() backend.Store {
		return memory.New(&memory.Options{Now: func() time.Time { return now }})
	}
	var seen headgate.Event
	l := limiter(t, open(), &headgate.Options{Observer: func(e headgate.Event) { seen = e }}, shadowed...)
	enforced := limiter(t, open(), nil, enforced...)
	alone := []*headgate.Limiter{limiter(t, open(), nil, shadows[0]), limiter(t, open(), nil, shadows[1])}
	ctx, r := context.Background(), rand.New(rand.NewPCG(1, 2))
	denied, lacked := 0, 0
	calls := redistest.Steps(4_000, 100_000)
	for range calls {
		now = now.Add(time.Duration(r.IntN(60)) * time.Millisecond)
		key := string(rune('a' + r.IntN(4)))
		costs := []int64{r.Int64N(4), r.Int64N(3), 1 + r.Int64N(3), 1 + r.Int64N(5)} // the last is above its limit at times
		each, one, want := make([]headgate.State, 4), make([]headgate.State, 2), make([]headgate.State, 4)
		ask := (*headgate.Limiter).Do
		switch r.IntN(20) {
		case 0:
			ask = (*headgate.Limiter).Peek
		case 1:
			ask = (*headgate.Limiter).Record
		}
		got, err := ask(l, ctx, headgate.Call{Key: key, Costs: costs, Each: each})
		require.NoError(t, err)
		d, err := ask(enforced, ctx, headgate.Call{Key: key, Costs: []int64{costs[0], costs[2]}, Each: one})
		require.NoError(t, err)
		require.Equal(t, d, got)
		want[0], want[2] = one[0], one[1]
		for i, s := range alone {
			at := 2*i + 1
			c := headgate.Call{Key: key, Costs: costs[at : at+1], Each: want[at : at+1]}
			verb := ask
			if !d.Allowed || costs[at] == 0 {
				verb = (*headgate.Limiter).Peek
			}
			_, err = verb(s, ctx, c)
			if errors.Is(err, headgate.ErrNeverAdmissible) {
				c.Costs = []int64{shadows[i].Algorithm.Max()}
				_, err = s.Peek(ctx, c)
				want[at].RetryAfter = each[at].RetryAfter
				require.Greater(t, each[at].RetryAfter, 24*365*time.Hour)
			}
			if seen.Op == backend.Record { // which charges it, room or not
				want[at].RetryAfter = 0
			}
			require.NoError(t, err)
		}
		require.Equal(t, exported(want), exported(each))
		want = each
		by := want[1]
		if want[3].RetryAfter > by.RetryAfter || want[3].RetryAfter == by.RetryAfter && want[3].RetryAfter == 0 && want[3].Remaining < by.Remaining {
			by = want[3]
		}
		require.Equal(t, &headgate.Decision{Allowed: by.RetryAfter == 0, State: by}, seen.Shadow)
		if !d.Allowed {
			denied++
		}
		if by.RetryAfter > 0 {
			lacked++
		}
	}
	require.Greater(t, denied, calls/100)
	require.Greater(t, lacked, denied)
}

// TestShadowFails: a store that fails, and a cost that a shadow could never grant, are
// no error and no failure of a call.
func TestShadowFails(t *testing.T) {
	ctx, s := context.Background(), newLossy()
	only := &headgate.Policy{Name: "only", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: headgate.FailClosed, Shadow: true}
	alone := limiter(t, s, nil, *only)
	for range 3 {
		d, err := alone.Allow(ctx, "k")
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Zero(t, d.RetryAfter)
		require.EqualValues(t, 1, d.Used)
	}
	d, err := alone.AllowN(ctx, "k", 2)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	s.lose(onAll, 0)
	d, err = alone.Allow(ctx, "k")
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.ErrorIs(t, d.Err, headgate.ErrUnavailable)
	require.Zero(t, alone.Stats().FailClosed)

	open := perMinute
	open.OnFailure = headgate.FailOpen
	l := limiter(t, s, nil, open, *only)
	d, err = l.Allow(ctx, "k")
	require.NoError(t, err)
	require.True(t, d.Allowed, "the shadow fails closed, and does not count")
	require.Equal(t, headgate.FromFailOpen, d.Source)
	require.EqualValues(t, 1, l.Stats().FailOpen)
	s.lose(0, 0)
	_, err = l.Do(ctx, headgate.Call{Key: "k", Costs: []int64{1}})
	require.ErrorAs(t, err, new(*headgate.InvalidError))
	_, err = l.Do(ctx, headgate.Call{Key: "k", Costs: []int64{0, 1}})
	require.NoError(t, err, "only the shadow is charged")
	_, err = l.Allow(ctx, "")
	require.ErrorAs(t, err, new(*headgate.InvalidError))
	_, err = alone.Allow(ctx, "")
	require.ErrorAs(t, err, new(*headgate.InvalidError))
}

// TestShadowRecordOfOnePart: a Record that charges the shadow alone, or none of the
// shadow, charges that and passes.
func TestShadowRecordOfOnePart(t *testing.T) {
	l := limiter(t, memory.New(nil), nil,
		headgate.Policy{Name: "e", Algorithm: algo.SlidingLog(algo.PerDay(10)), OnFailure: headgate.FailClosed},
		headgate.Policy{Name: "s", Algorithm: algo.SlidingLog(algo.PerDay(10)), OnFailure: headgate.FailClosed, Shadow: true})
	ctx, each := context.Background(), make([]headgate.State, 2)
	for _, costs := range [][]int64{{10, 0}, {5, 0}, {0, 7}, {0, 4}} { // both above their limits
		d, err := l.Record(ctx, headgate.Call{Key: "k", Costs: costs})
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Zero(t, d.RetryAfter)
	}
	for _, ask := range []func(*headgate.Limiter, context.Context, headgate.Call) (headgate.Decision, error){(*headgate.Limiter).Record, (*headgate.Limiter).Do} {
		d, err := ask(l, ctx, headgate.Call{Key: "k", Costs: []int64{0, 0}})
		require.NoError(t, err)
		require.Equal(t, headgate.FromNone, d.Source)
	}
	_, err := l.Peek(ctx, headgate.Call{Key: "k", Costs: []int64{0, 0}, Each: each})
	require.NoError(t, err)
	require.EqualValues(t, []int64{15, 11}, []int64{each[0].Used, each[1].Used})
}

// TestShadowBudget: a call with shadows has one budget, whether they passed what was denied
// or the key is spread.
func TestShadowBudget(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	const budget = time.Second
	s := standalone.New(server.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), &standalone.Options{Budget: budget})
	for _, shards := range []int{0, 4} {
		a, b := daily("a", 4), dailyShadow("b", 400)
		a.OnFailure = headgate.FailClosed
		l := limiter(t, s, &headgate.Options{Shards: shards, DenyCacheTTL: -1}, a, b)
		for range 5 {
			_, err := l.Allow(context.Background(), "k")
			require.NoError(t, err)
		}
		proxy.Set(redistest.Delay(600 * time.Millisecond)) // one answer comes in time, a second does not
		late, begin := redistest.Lateness(t, budget), time.Now()
		d, err := l.Allow(context.Background(), "k")
		took := time.Since(begin)
		proxy.Set(redistest.Pass)
		require.NoError(t, err)
		require.False(t, d.Allowed)
		require.Less(t, took, budget+90*time.Millisecond+late.Max(), "%d shards", shards)
	}
}

// TestShadowSpread: a spread key has shadows too.
func TestShadowSpread(t *testing.T) {
	ctx := context.Background()
	l := limiter(t, memory.New(nil), &headgate.Options{Shards: 4},
		headgate.Policy{Name: "a", Algorithm: algo.FixedWindow(algo.PerDay(40)), OnFailure: headgate.FailClosed},
		headgate.Policy{Name: "b", Algorithm: algo.FixedWindow(algo.PerDay(20)), OnFailure: headgate.FailClosed, Shadow: true})
	passed := 0
	for range 60 {
		d, err := l.Allow(ctx, "k")
		require.NoError(t, err)
		if d.Allowed {
			passed++
		}
	}
	require.Equal(t, 40, passed)
	requireUsed(t, l, 40, 20)
	d, err := l.AllowN(ctx, "other", 6)
	require.NoError(t, err)
	require.True(t, d.Allowed, "of the shadow it is above the smallest share")
	alone, err := l.With(l.Policies()[0])
	require.NoError(t, err)
	requireUsed(t, alone, 40)
}

// TestShadowOfWait: a waiter does not wait for a shadow.
func TestShadowOfWait(t *testing.T) {
	l := limiter(t, memory.New(nil), nil,
		headgate.Policy{Name: "a", Algorithm: algo.FixedWindow(algo.PerDay(40)), OnFailure: headgate.FailClosed},
		headgate.Policy{Name: "b", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: headgate.FailClosed, Shadow: true})
	for range 3 {
		d, err := l.WaitCall(context.Background(), headgate.Call{Key: "k", Costs: []int64{2, 2}})
		require.NoError(t, err)
		require.Equal(t, "a", d.Policy)
	}
	requireUsed(t, l, 6, 0)
}

// TestShadowOfRedis: a call with a shadow is one call of a batch, and a flood on a key that
// is denied stays in the process, without a state of the shadow.
func TestShadowOfRedis(t *testing.T) {
	server := redistest.Start(t)
	store := standalone.New(server.Client(t), &standalone.Options{Budget: 10 * time.Second})
	seen := &events{}
	l := limiter(t, store, &headgate.Options{Observer: seen.observe},
		headgate.Policy{Name: "a", Algorithm: algo.FixedWindow(algo.PerDay(10)), OnFailure: headgate.FailClosed},
		headgate.Policy{Name: "b", Algorithm: algo.FixedWindow(algo.PerDay(5)), OnFailure: headgate.FailClosed, Shadow: true})
	for i := range 20 {
		d, err := l.Allow(context.Background(), "k")
		require.NoError(t, err)
		require.Equal(t, i < 10, d.Allowed)
	}
	for i, e := range seen.of(headgate.EventDecision) {
		if i > 10 {
			require.Nil(t, e.Shadow, "nobody counted it")
		} else {
			require.Equal(t, i < 5, e.Shadow.Allowed)
		}
	}
	require.Eventually(t, func() bool { return len(seen.of(headgate.EventBatch)) >= 11 }, 10*time.Second, time.Millisecond)
	calls := 0
	for _, e := range seen.of(headgate.EventBatch) {
		calls += e.Batch.Calls
	}
	require.Len(t, seen.of(headgate.EventBatch), 11, "ten that passed, and the first denial")
	require.Equal(t, 11, calls)
}

// besideShadow returns a limit of 10 beside a shadow of 100, and that one alone.
func besideShadow(t *testing.T) (l, shadow *headgate.Limiter) {
	day := func(name string, n int64, shadow bool) headgate.Policy {
		return headgate.Policy{Name: name, Algorithm: algo.FixedWindow(algo.Per(n, 24*time.Hour)), OnFailure: headgate.FailOpen, Shadow: shadow}
	}
	l, err := headgate.New(memory.New(nil), []headgate.Policy{day("a", 10, false), day("s", 100, true)}, nil)
	require.NoError(t, err)
	shadow, err = l.With(day("s", 100, true))
	require.NoError(t, err)
	return l, shadow
}

// TestShadowOfRefusedCall: a call that is refused with an error changes no count.
func TestShadowOfRefusedCall(t *testing.T) {
	ctx, negative := context.Background(), headgate.Call{Key: "k", Costs: []int64{7, -1}}
	for name, wrong := range map[string]func(l *headgate.Limiter) error{
		"above": func(l *headgate.Limiter) error { _, err := l.AllowN(ctx, "k", 50); return err },
		"negative": func(l *headgate.Limiter) error {
			_, err := l.Do(ctx, headgate.Call{Key: "k", Costs: []int64{-1, 7}})
			return err
		},
		"record": func(l *headgate.Limiter) error {
			_, err := l.Record(ctx, headgate.Call{Key: "k", Costs: []int64{-1, 7}})
			return err
		},
		"negative of the shadow": func(l *headgate.Limiter) error { _, err := l.Do(ctx, negative); return err },
		"its record":             func(l *headgate.Limiter) error { _, err := l.Record(ctx, negative); return err },
		"its reserve":            func(l *headgate.Limiter) error { _, _, err := l.Reserve(ctx, negative); return err },
		"its peek":               func(l *headgate.Limiter) error { _, err := l.Peek(ctx, negative); return err },
		"its part": func(l *headgate.Limiter) error {
			_, err := headgate.All(ctx, l.Part("k", 7, -1), l.Part("other", 1, 1))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, shadow := besideShadow(t)
			require.Error(t, wrong(l))
			for _, of := range []*headgate.Limiter{l, shadow} {
				d, err := of.Peek(ctx, headgate.Call{Key: "k"})
				require.NoError(t, err)
				require.Zero(t, d.Used)
			}
		})
	}
}

// everyVerb are the verbs that admit a call of one unit.
var everyVerb = map[string]func(*headgate.Limiter, string) (headgate.Decision, error){
	"Allow": func(l *headgate.Limiter, key string) (headgate.Decision, error) {
		return l.Allow(context.Background(), key)
	},
	"Do": func(l *headgate.Limiter, key string) (headgate.Decision, error) {
		return l.Do(context.Background(), headgate.Call{Key: key})
	},
	"AllowAtMost": func(l *headgate.Limiter, key string) (headgate.Decision, error) {
		return l.AllowAtMost(context.Background(), key, 1)
	},
	"Reserve": func(l *headgate.Limiter, key string) (headgate.Decision, error) {
		_, d, err := l.Reserve(context.Background(), headgate.Call{Key: key})
		return d, err
	},
	"All": func(l *headgate.Limiter, key string) (headgate.Decision, error) {
		return headgate.All(context.Background(), l.Part(key), l.Part("beside "+key))
	},
	"ReserveAll": func(l *headgate.Limiter, key string) (headgate.Decision, error) {
		_, d, err := headgate.ReserveAll(context.Background(), l.Part(key), l.Part("beside "+key))
		return d, err
	},
	"Wait": func(l *headgate.Limiter, key string) (headgate.Decision, error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		d, err := l.Wait(ctx, key)
		if errors.As(err, new(*headgate.DeadlineError)) {
			err = nil
		}
		return d, err
	},
}

// TestShadowOfDeniedCalls: a denied call charges no shadow, by no verb, and one that
// passes charges it once.
func TestShadowOfDeniedCalls(t *testing.T) {
	server := redistest.Start(t)
	one := standalone.New(server.Client(t), &standalone.Options{Budget: 10 * time.Second})
	for name, s := range map[string]backend.Store{"memory": memory.New(nil), "standalone": one} {
		for verb, allow := range everyVerb {
			t.Run(name+verb, func(t *testing.T) {
				l := limiter(t, s, &headgate.Options{DenyCacheTTL: -1}, daily("a", 5), dailyShadow("b", 1000))
				for i := range 50 {
					d, err := allow(l, verb)
					require.NoError(t, err)
					require.Equal(t, i < 5, d.Allowed)
				}
				requireEach(t, l, verb, 5, 5)
			})
		}
	}
}

// TestShadowOfAll: a call of several keys that one of them denies takes nothing of the
// others at any time, also beside shadows: it is one request.
func TestShadowOfAll(t *testing.T) {
	server := redistest.Start(t)
	one := standalone.New(server.Client(t), &standalone.Options{Budget: 10 * time.Second})
	for name, s := range map[string]backend.Store{"memory": memory.New(nil), "standalone": one} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			user := limiter(t, s, nil, daily("user", 1), dailyShadow("tight", 1))
			org := limiter(t, s, nil, daily("org", 1))
			_, err := org.Allow(ctx, "o")
			require.NoError(t, err)
			for i := range 200 {
				key := fmt.Sprint("u", i)
				d, err := headgate.All(ctx, user.Part(key), org.Part("o"))
				require.NoError(t, err)
				require.False(t, d.Allowed)
				d, err = user.Allow(ctx, key)
				require.NoError(t, err)
				require.True(t, d.Allowed)
			}
		})
	}
}

// TestShadowKeyOfAll: a key with shadows alone does not bind beside another, whether the
// store decides at once or key by key.
func TestShadowKeyOfAll(t *testing.T) {
	for _, s := range []backend.Store{memory.New(nil), oneKey(memory.New(nil))} {
		shadow, other := limiter(t, s, nil, dailyShadow("s", 2)), limiter(t, s, nil, daily("a", 10))
		d, err := headgate.All(context.Background(), shadow.Part("u"), other.Part("o"))
		require.NoError(t, err)
		require.Equal(t, "o", d.Key)
		require.Equal(t, "a", d.Policy)
	}
}

func dailyShadow(name string, n int64) headgate.Policy {
	p := daily(name, n)
	p.Shadow = true
	return p
}

// TestShadowAlone: a cost above a shadow's limit passes, by each verb.
func TestShadowAlone(t *testing.T) {
	ctx := context.Background()
	l, err := headgate.New(memory.New(nil), []headgate.Policy{dailyShadow("s", 5)}, nil)
	require.NoError(t, err)
	other, err := headgate.New(memory.New(nil), []headgate.Policy{daily("o", 100)}, nil)
	require.NoError(t, err)
	c := headgate.Call{Key: "k", Costs: []int64{50}}
	for name, ask := range map[string]func() (headgate.Decision, error){
		"do":          func() (headgate.Decision, error) { return l.Do(ctx, c) },
		"reserve":     func() (headgate.Decision, error) { _, d, err := l.Reserve(ctx, c); return d, err },
		"wait":        func() (headgate.Decision, error) { return l.WaitCall(ctx, c) },
		"waitreserve": func() (headgate.Decision, error) { _, d, err := l.WaitReserve(ctx, c); return d, err },
		"all":         func() (headgate.Decision, error) { return headgate.All(ctx, other.Part("o", 1), l.Part("k", 50)) },
	} {
		t.Run(name, func(t *testing.T) {
			d, err := ask()
			require.NoError(t, err)
			require.True(t, d.Allowed)
		})
	}
}

// exported returns states without what only layers read.
func exported(states []headgate.State) (all []string) {
	for _, s := range states {
		all = append(all, fmt.Sprint(s.Policy, s.Known, s.Limit, s.Used, s.Lent, s.Remaining, s.RetryAfter, s.ResetAfter))
	}
	return all
}
