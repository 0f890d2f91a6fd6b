package policyfile

import (
	"io/fs"
	"testing"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/internal/adapter"
	"github.com/stretchr/testify/require"
)

func parse(t *testing.T, text string, opts *Options) *File {
	t.Helper()
	f, err := Parse("limits.yaml", []byte(text), opts)
	require.NoError(t, err)
	return f
}

func window(limit int64) headgate.Policy {
	return headgate.Policy{Name: "requests", Algorithm: algo.SlidingWindow(algo.PerMinute(limit)), OnFailure: headgate.FailOpen}
}

func bucket(limit, burst int64) headgate.Policy {
	return headgate.Policy{Name: "tokens", Algorithm: algo.TokenBucket(algo.PerSecond(limit), burst), OnFailure: headgate.FailClosed}
}

const tenants = good + `tenants:
  acme: paid
  umbrella: {plan: paid, policies: {tokens: {burst: 9_000}, requests: {limit: 5000}}}
  42: {policies: {requests: {limit: 7}}}
`

func TestPlansAndTenants(t *testing.T) {
	f := parse(t, tenants, nil)
	free, paid := []headgate.Policy{window(100)}, []headgate.Policy{window(1000), bucket(1000, 5000)}
	require.Equal(t, []string{"free", "paid"}, f.Plans())
	require.Equal(t, []string{"42", "acme", "umbrella"}, f.Tenants())
	require.Equal(t, free, f.For("nobody the file knows").Policies)
	require.Equal(t, paid, f.For("acme").Policies)
	require.Equal(t, []headgate.Policy{window(5000), bucket(1000, 9000)}, f.For("umbrella").Policies, "in the order under policies")
	require.Equal(t, []headgate.Policy{window(7)}, f.For("42").Policies)

	for name, want := range map[string][]headgate.Policy{"": free, "free": free, "paid": paid} {
		got, ok := f.Plan(name)
		require.True(t, ok)
		require.Equal(t, List{Policies: want}, got)
	}
	_, ok := f.Plan("gold")
	require.False(t, ok)

	f.For("acme").Policies[0].Name = "changed"
	require.Equal(t, paid, f.For("acme").Policies, "a list is its caller's")
}

// TestEveryField: each algorithm with each of its fields.
func TestEveryField(t *testing.T) {
	minute := algo.PerMinute(10)
	for text, want := range map[string]headgate.Policy{
		"{algorithm: fixed-window, limit: 10, period: 1m, on-failure: open}":                {Algorithm: algo.FixedWindow(minute), OnFailure: headgate.FailOpen},
		"{algorithm: sliding-window, limit: 10, period: 60s, on-failure: closed}":           {Algorithm: algo.SlidingWindow(minute), OnFailure: headgate.FailClosed},
		"{algorithm: sliding-log, limit: 10, period: 60000ms, on-failure: local}":           {Algorithm: algo.SlidingLog(minute), OnFailure: headgate.FailLocal},
		"{algorithm: compact-log, limit: 10, period: 1m, on-failure: local}":                {Algorithm: algo.CompactLog(minute), OnFailure: headgate.FailLocal},
		"{algorithm: bucketed-window, buckets: 6, limit: 10, period: 1m, on-failure: open}": {Algorithm: algo.BucketedWindow(minute, 6), OnFailure: headgate.FailOpen},
		"{algorithm: token-bucket, burst: 20, limit: 10, period: 1m, on-failure: open}":     {Algorithm: algo.TokenBucket(minute, 20), OnFailure: headgate.FailOpen},
		"{algorithm: leaky-queue, burst: 2, max-delay: 30s, limit: 10, period: 1m, on-failure: open}": {
			Algorithm: algo.LeakyQueue(minute, 2, 30*time.Second), OnFailure: headgate.FailOpen},
		"{algorithm: in-flight, limit: 10, on-failure: closed}":                      {Algorithm: algo.InFlight(10), OnFailure: headgate.FailClosed},
		"{algorithm: calendar, limit: 10, period: day, zone: UTC, on-failure: open}": {Algorithm: algo.Calendar(10, algo.Day(), time.UTC), OnFailure: headgate.FailOpen},
		"{algorithm: calendar, limit: 10, period: week, week-start: Sunday, zone: UTC, on-failure: open}": {
			Algorithm: algo.Calendar(10, algo.Week(time.Sunday), time.UTC), OnFailure: headgate.FailOpen},
		"{algorithm: calendar, limit: 10, period: month, zone: UTC, on-failure: open}": {
			Algorithm: algo.Calendar(10, algo.Month(1), time.UTC), OnFailure: headgate.FailOpen},
		"{algorithm: calendar, limit: 10, period: month, anchor: 31, zone: UTC, on-failure: open}": {
			Algorithm: algo.Calendar(10, algo.Month(31), time.UTC), OnFailure: headgate.FailOpen},
		"{algorithm: fixed-window, limit: 10, period: 1m, on-failure: open, shadow: true}":  {Algorithm: algo.FixedWindow(minute), OnFailure: headgate.FailOpen, Shadow: true},
		"{algorithm: fixed-window, limit: 10, period: 1m, on-failure: open, shadow: false}": {Algorithm: algo.FixedWindow(minute), OnFailure: headgate.FailOpen},
		"{algorithm: fixed-window, limit: 1_000, period: 30d, on-failure: open}":            {Algorithm: algo.FixedWindow(algo.Per(1000, 30*24*time.Hour)), OnFailure: headgate.FailOpen},
	} {
		want.Name = "a"
		require.Equal(t, []headgate.Policy{want}, parse(t, "policies:\n  a: "+text, nil).For("any").Policies)
	}
}

// TestListFields: shards and borrow are fields of a list: of all, of some plans, of a tenant.
func TestListFields(t *testing.T) {
	const policies = "policies: {a: {algorithm: fixed-window, limit: 90, period: 1h, on-failure: open}}\n"
	all := parse(t, "borrow: 50ms\nshards: 1_6\n"+policies, nil).For("any")
	require.Equal(t, []any{16, 50 * time.Millisecond}, []any{all.Shards, all.Borrow})
	f := parse(t, policies+"plans: {x: [a], y: [a], z: [a]}\ndefault: y\nshards: {x: 4}\nborrow: {x: 20ms, y: 30ms}\n"+
		"tenants: {one: {plan: x, shards: 8}, two: {plan: z, borrow: 1s}, three: x, four: {policies: {a: {limit: 80}}}}\n", nil)
	for tenant, want := range map[string]List{
		"": {Borrow: 30 * time.Millisecond}, "one": {Shards: 8, Borrow: 20 * time.Millisecond}, "two": {Borrow: time.Second},
		"three": {Shards: 4, Borrow: 20 * time.Millisecond}, "four": {Borrow: 30 * time.Millisecond},
	} {
		got := f.For(tenant)
		got.Policies = nil
		require.Equal(t, want, got, tenant)
	}
	ls, err := f.Limiters(memory.New(nil), &headgate.Options{Shards: 3, Borrow: time.Second})
	require.NoError(t, err, "the file's are used")
	require.Equal(t, 8, adapter.Of(ls.For("one")).Shards)
	require.Equal(t, 20*time.Millisecond, adapter.Of(ls.For("one")).Borrow)
	require.Zero(t, adapter.Of(ls.For("")).Shards)
}

// TestZone: a zone of a name, and a plan that lets its shadow deny.
func TestZone(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	f := parse(t, `policies:
  billing: {algorithm: calendar, limit: 10, period: month, anchor: 15, zone: Europe/Berlin, on-failure: open, shadow: true}
plans:
  trial: [billing]
  paid: {billing: {shadow: false}}
default: trial
`, nil)
	policy := headgate.Policy{Name: "billing", Algorithm: algo.Calendar(10, algo.Month(15), berlin), OnFailure: headgate.FailOpen}
	paid, _ := f.Plan("paid")
	require.Equal(t, policy.Algorithm.Identity(), paid.Policies[0].Algorithm.Identity())
	require.Equal(t, policy.Algorithm.String(), paid.Policies[0].Algorithm.String())
	require.False(t, paid.Policies[0].Shadow)
	require.True(t, f.For("").Policies[0].Shadow)
}

// TestDirectives: the version that most tools write above a document is read, and
// underscores in the service's seconds.
func TestDirectives(t *testing.T) {
	const text = "rate-limiter: {use-algo: fixed-window-algo, window-size: 1_000, max-requests: 1_5}\n"
	want := []headgate.Policy{{Name: "rate-limiter", Algorithm: algo.FixedWindow(algo.Per(15, 1000*time.Second)), OnFailure: headgate.FailOpen}}
	for _, head := range []string{"", "---\n", "%YAML 1.1\n---\n", "%YAML 1.2\n---\n", "# limits\n\n%YAML  1.2 # x\r\n---\n"} {
		require.Equal(t, want, parse(t, head+text, &Options{OnFailure: headgate.FailOpen}).For("").Policies, "%q", head)
	}
}

func TestFailureModeOfTheLoader(t *testing.T) {
	const text = "policies:\n  a: {algorithm: fixed-window, limit: 1, period: 1s}\n  b: {algorithm: fixed-window, limit: 1, period: 1s, on-failure: open}\n"
	list := parse(t, text, &Options{OnFailure: headgate.FailClosed}).For("").Policies
	require.Equal(t, headgate.FailClosed, list[0].OnFailure)
	require.Equal(t, headgate.FailOpen, list[1].OnFailure, "the file's own goes first")
	_, err := Parse("limits.yaml", []byte(text), &Options{OnFailure: 99})
	require.Error(t, err)
}

// TestServiceFile: the file of a rate limiter service. Its sliding window is a
// sorted set.
func TestServiceFile(t *testing.T) {
	for text, want := range map[string]algo.Algorithm{
		"rate-limiter: {use-algo: sliding-window-algo, window-size: 60, max-requests: 5}":         algo.SlidingLog(algo.PerMinute(5)),
		"rate-limiter:\n  use-algo: fixed-window-algo\n  window-size: 1\n  max-requests: 1000000": algo.FixedWindow(algo.PerSecond(1_000_000)),
	} {
		require.Equal(t, []headgate.Policy{{Name: "rate-limiter", Algorithm: want, OnFailure: headgate.FailOpen}},
			parse(t, text, &Options{OnFailure: headgate.FailOpen}).For("any").Policies)
	}
	_, err := Parse("limits.yaml", []byte("rate-limiter: {use-algo: fixed-window-algo, window-size: 1, max-requests: 1}"), nil)
	require.ErrorContains(t, err, "limits.yaml:1:15: rate-limiter: no failure mode; want Options.OnFailure")
}

func TestJSON(t *testing.T) {
	const text = "{\n\t\"policies\": {\n\t\t\"a\": {\"algorithm\": \"fixed-window\", \"limit\": 3, \"period\": \"1s\", \"on-failure\": \"open\"}\n\t},\n\t\"tenants\": {\"b\\u00e9\": {\"policies\": {\"a\": {\"limit\": 4}}}}\n}\n"
	f := parse(t, text, nil)
	require.Equal(t, int64(3), f.For("").Policies[0].Algorithm.Limit().Events)
	require.Equal(t, int64(4), f.For("bé").Policies[0].Algorithm.Limit().Events)
}

func TestAnchors(t *testing.T) {
	f := parse(t, "policies:\n  a: &a {algorithm: fixed-window, limit: &n 3, period: 1s, on-failure: open}\n  b: *a\ntenants:\n  t: {policies: {a: {limit: *n}, b: {limit: 9}}}\n", nil)
	require.Equal(t, f.For("").Policies[0].Algorithm, f.For("").Policies[1].Algorithm)
	require.Equal(t, int64(9), f.For("t").Policies[1].Algorithm.Limit().Events)
	_, err := Parse("limits.yaml", []byte("policies:\n  a: &a {b: *a}\n"), nil)
	require.Error(t, err, "an anchor within itself")
}

func TestLoad(t *testing.T) {
	_, err := Load("no/such/file.yaml", nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Watch("no/such/file.yaml", memory.New(nil), nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestLimitersShareCounts(t *testing.T) {
	f := parse(t, tenants, nil)
	l, err := f.Limiters(memory.New(nil), nil)
	require.NoError(t, err)
	d, err := l.For("acme").AllowN(t.Context(), "acme", 600)
	require.NoError(t, err)
	require.Equal(t, int64(600), d.Used)
	require.Equal(t, int64(1000), d.Limit)
	free, ok := l.Plan("free")
	require.True(t, ok)
	d, err = free.Allow(t.Context(), "acme")
	require.NoError(t, err)
	require.False(t, d.Allowed, "600 are above the free plan's 100")
	require.Same(t, l.For("nobody"), l.For(""))
	paid, _ := l.Plan("paid")
	require.Same(t, paid, l.For("acme"), "no limiter of its own for a tenant that changes nothing")
}

func TestZeroValues(t *testing.T) {
	var f File
	require.Empty(t, f.Plans())
	require.Empty(t, f.For("a").Policies)
	_, err := f.Limiters(memory.New(nil), nil)
	require.Error(t, err)
	var l Limiters
	_, err = l.For("a").Allow(t.Context(), "a")
	require.Error(t, err)
	var w Watcher
	_, err = w.Limiters().For("a").Allow(t.Context(), "a")
	require.Error(t, err)
	require.Error(t, w.Err())
	require.NoError(t, w.Close())
	_, err = Watch("file_test.go", nil, nil)
	require.Error(t, err)
	_, err = Watch("file_test.go", memory.New(nil), &Options{Interval: -1})
	require.ErrorContains(t, err, "Interval")
}

// FuzzParse: whatever the file holds, an error or a list that a limiter takes.
func FuzzParse(f *testing.F) {
	for _, c := range broken {
		f.Add([]byte(c.text))
	}
	f.Add([]byte(tenants))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("f", data, nil)
		if err != nil {
			return
		}
		if _, err := file.Limiters(memory.New(nil), &headgate.Options{Instances: 1}); err != nil {
			t.Fatal(err)
		}
	})
}
