package advise

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/cmd/headgate/internal/logs"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// logged is one call of a log.
type logged struct {
	key  string
	at   int64
	cost int64
}

// random is a log of keys that call steadily, in bursts and once, for some minutes.
func random(r *rand.Rand, n int, most int64) (all []logged) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMicro() + r.Int64N(7e6)
	keys, gap := 1+r.IntN(8), 1+r.Int64N(200_000)
	for len(all) < n {
		key, burst := fmt.Sprint("k", r.IntN(1+r.IntN(keys))), 1
		switch r.IntN(30) {
		case 0:
			burst = 1 + r.IntN(40)
		case 1:
			at += r.Int64N(12_000_000)
		}
		for range burst {
			at += r.Int64N(gap) * int64(r.IntN(3))
			all = append(all, logged{key, at, 1 + r.Int64N(most)})
		}
	}
	return all
}

// stream returns the log as a stream.
func stream(t *testing.T, all []logged) *logs.Stream {
	t.Helper()
	var b strings.Builder
	for _, c := range all {
		fmt.Fprintf(&b, "{\"ts\":%d,\"remote\":%q,\"cost\":%d}\n", c.at, c.key, c.cost)
	}
	s, err := logs.Open(logs.Options{In: strings.NewReader(b.String()), Key: "remote", Within: "second", MaxKeys: 1000, Costs: []string{"cost"}})
	require.NoError(t, err)
	return s
}

// limited returns a function for how many calls and keys a limiter in memory denies.
func limited(t testing.TB, all []logged) func(a algo.Algorithm) (denied, keys int64) {
	var now time.Time
	store, tries := memory.New(&memory.Options{Now: func() time.Time { return now }, MaxKeys: 1 << 30}), 0
	return func(a algo.Algorithm) (denied, keys int64) {
		l, err := headgate.New(store, []headgate.Policy{{Name: "p", Algorithm: a, OnFailure: headgate.FailClosed}}, nil)
		require.NoError(t, err)
		by := map[string]bool{}
		tries++ // each has keys of its own
		for _, c := range all {
			now = time.UnixMicro(c.at)
			d, err := l.Do(t.Context(), headgate.Call{Key: strconv.Itoa(tries) + c.key, Costs: []int64{c.cost}})
			if err == nil && !d.Allowed || c.cost > a.Max() {
				denied++
				by[c.key] = true
			}
		}
		return denied, int64(len(by))
	}
}

// made are the algorithms by name. fixed is the fixed window's limit, which is the bucket's rate.
func made(name string, limit, fixed int64, per time.Duration) algo.Algorithm {
	switch name {
	case "fixed-window":
		return algo.FixedWindow(algo.Per(limit, per))
	case "sliding-window":
		return algo.SlidingWindow(algo.Per(limit, per))
	case "sliding-log":
		return algo.SlidingLog(algo.Per(limit, per))
	}
	return algo.TokenBucket(algo.Per(fixed, per), limit)
}

// TestBruteForce: of 50 random logs the limits are those that a limiter in memory finds by trying
// all, as calls and as keys.
func TestBruteForce(t *testing.T) {
	r, least := rand.New(rand.NewPCG(67, 2)), 50
	if redistest.Long() {
		least = 200
	}
	for i := range 50 {
		all := random(r, least+r.IntN(least), 1)
		opts := Options{Per: []time.Duration{10 * time.Second, time.Second}, Keys: -1, Percent: []float64{0, 0.1, 2, 10, 40}[r.IntN(5)]}
		if i%3 == 0 {
			opts.Keys, opts.Percent = r.Int64N(4), -1
		}
		report, err := Run(t.Context(), stream(t, all), opts)
		require.NoError(t, err)
		require.False(t, report.Scanned)
		decided := limited(t, all)
		fixed, most := int64(0), int64(0) // calls of a key: all pass
		for _, list := range byKey(all) {
			most = max(most, int64(len(list)))
		}
		for _, got := range report.Advice {
			per, err := time.ParseDuration(got.Period)
			require.NoError(t, err)
			fits := func(denied, keys int64) bool {
				if opts.Keys >= 0 {
					return keys <= opts.Keys
				}
				return float64(denied) <= opts.Percent/100*float64(len(all))
			}
			want, wantDenied, wantKeys := int64(0), int64(0), int64(0)
			for limit := most; limit > 0; limit-- {
				denied, keys := decided(made(got.Algorithm, limit, fixed, per))
				if !fits(denied, keys) {
					break
				}
				want, wantDenied, wantKeys = limit, denied, keys
			}
			found := got.Limit
			if got.Algorithm == "token-bucket" {
				require.Equal(t, fixed, got.Limit)
				found = got.Burst
			}
			require.Equal(t, want, found, "log %d: %+v", i, got)
			require.Equal(t, []int64{wantDenied, wantKeys}, []int64{got.Denied, got.Keys}, "log %d: %+v", i, got)
			if got.Keys > 0 {
				_, keys := decided(made(got.Algorithm, got.Same, cmp.Or(fixed, want), per))
				_, next := decided(made(got.Algorithm, got.Same+1, cmp.Or(fixed, want), per))
				require.True(t, keys == got.Keys && next < keys, "log %d: %+v", i, got)
			}
			if got.Algorithm == "fixed-window" {
				fixed = want
			}
		}
	}
}

// TestRules: by any limit and costs of any size, each call is decided as a limiter in memory does.
func TestRules(t *testing.T) {
	r := rand.New(rand.NewPCG(67, 3))
	for range 200 {
		all := random(r, 200, []int64{1, 1, 3, 30}[r.IntN(4)])
		per := []time.Duration{time.Second, 7 * time.Second, time.Minute}[r.IntN(3)]
		decided := limited(t, all)
		limit, fixed := 1+r.Int64N(60), 1+r.Int64N(60)
		for _, k := range kinds {
			rule := k.rule(per.Microseconds(), fixed)
			want, _ := decided(made(k.name, limit, fixed, per))
			got := int64(0)
			for _, list := range byKey(all) {
				denied, _ := rule(list, limit)
				got += denied
				if k.name == "sliding-window" && list[0].cost == 1 {
					ones := make([]call, len(list))
					for i := range list {
						ones[i] = call{list[i].at, 1}
					}
					denied, _ = rule(ones, limit)
					require.Equal(t, denied, deniedOf(windows(ones, per.Microseconds()), per.Microseconds(), limit))
				}
				all, peak := rule(list, math.MaxInt64)
				require.Zero(t, all)
				denied, _ = rule(list, peak)
				require.Zero(t, denied)
				denied, _ = rule(list, peak-1)
				require.Positive(t, denied)
			}
			require.Equal(t, want, got, "%s: %d per %v, rate %d", k.name, limit, per, fixed)
		}
	}
}

func byKey(all []logged) map[string][]call {
	of := map[string][]call{}
	for _, c := range all {
		of[c.key] = append(of[c.key], call{c.at, c.cost})
	}
	return of
}

// TestCosts: with costs above 1 no limit above the advised one, of those that were tried, denies more
// than is wanted, and the report has that limits were scanned.
func TestCosts(t *testing.T) {
	r := rand.New(rand.NewPCG(67, 4))
	for range 20 {
		all := random(r, 200, 50)
		report, err := Run(t.Context(), stream(t, all), Options{Per: []time.Duration{5 * time.Second}, Keys: -1, Percent: 3})
		require.NoError(t, err)
		require.True(t, report.Scanned)
		decided := limited(t, all)
		fixed := report.Advice[0].Limit
		for _, got := range report.Advice {
			found := got.Limit
			if got.Algorithm == "token-bucket" {
				found = got.Burst
			}
			denied, keys := decided(made(got.Algorithm, found, fixed, 5*time.Second))
			require.Equal(t, []int64{denied, keys}, []int64{got.Denied, got.Keys})
			require.LessOrEqual(t, denied, int64(len(all))*3/100)
			below, _ := decided(made(got.Algorithm, found-max(1, found/100), fixed, 5*time.Second))
			require.Greater(t, below, int64(len(all))*3/100, "%+v", got)
		}
	}
}

// TestCallsAreKept: calls of any distance and cost are what was added.
func TestCallsAreKept(t *testing.T) {
	r := rand.New(rand.NewPCG(67, 5))
	c, want, at := calls{costs: true}, map[uint32][]call{}, int64(0)
	for range 5000 {
		at += r.Int64N(1 << r.IntN(40))
		key, one := r.Uint32N(40), call{at, 1 + r.Int64N(1<<r.IntN(62))}
		c.add(key, one)
		want[key] = append(want[key], one)
	}
	var list []call
	for key := range want {
		list = c.of(key, list)
		require.Equal(t, want[key], list)
	}
}
