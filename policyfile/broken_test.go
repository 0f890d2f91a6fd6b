package policyfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/stretchr/testify/require"
)

// broken are files with one mistake each, and where it is.
var broken = []struct {
	name, text string
	line       int
	field      string
	says       string
}{
	{"empty", "", 0, "", "empty"},
	{"only a comment", "# limits\n", 0, "", "empty"},
	{"not closed", "policies:\n  a: {limit: 1\n", 3, "", "did not find expected"},
	{"a tab", "policies:\n\ta: 1\n", 2, "", "cannot start any token"},
	{"not UTF-8", "policies: \xff\n", 0, "", "UTF-8"},
	{"an anchor that is not there", "policies:\n  a: *base\n", 2, "", "unknown anchor"},
	{"JSON cut off", "{\"policies\": {\n", 2, "", "did not find expected"},
	{"two documents", good + "---\n" + good, 9, "", "second document"},
	{"a list", "- a\n", 1, "", "a list; want fields"},
	{"a word", "policies\n", 1, "", "want fields"},
	{"no policies", "policies:\n", 1, "policies", "missing"},
	{"unknown section", good + "limits: {}\n", 9, "limits", `unknown field "limits"; want rate-limiter, policies`},
	{"section twice", good + "plans: {}\n", 9, "plans", "given twice"},
	{"merge key", "policies:\n  a: &a {algorithm: fixed-window, limit: 1, period: 1s, on-failure: open}\n  b:\n    <<: *a\n", 4, "policies.b.<<", "merge key"},
	{"no algorithm", "policies:\n  a: {limit: 1, period: 1s, on-failure: open}\n", 2, "policies.a.algorithm", "missing"},
	{"unknown algorithm", "policies:\n  a: {algorithm: leaky, limit: 1, period: 1s}\n", 2, "policies.a.algorithm", `unknown algorithm "leaky"`},
	{"no limit", "policies:\n  a:\n    algorithm: fixed-window\n    period: 1s\n", 3, "policies.a.limit", "missing"},
	{"a limit of zero", "policies:\n  a:\n    algorithm: fixed-window\n    limit: 0\n    period: 1s\n    on-failure: open\n", 4, "policies.a.limit", "limit 0: want 1 to"},
	{"a limit of zero names the words", "policies:\n  a: {algorithm: fixed-window, period: 1s, on-failure: open,\n    limit: 0}\n", 3, "policies.a.limit", ", or unlimited or blocked"},
	{"a negative limit", "policies:\n  a: {algorithm: fixed-window, period: 1s, on-failure: open,\n    limit: -1}\n", 3, "policies.a.limit", ", or unlimited or blocked"},
	{"a limit of null", "policies:\n  a: {algorithm: fixed-window, period: 1s, on-failure: open,\n    limit: null}\n", 3, "policies.a.limit", "want a whole number, unlimited or blocked"},
	{"a limit in quotes", "policies:\n  a:\n    algorithm: fixed-window\n    limit: \"5\"\n", 4, "policies.a.limit", "whole number"},
	{"a fraction", "policies:\n  a:\n    algorithm: fixed-window\n    limit: 1.5\n", 4, "policies.a.limit", "whole number"},
	{"octal", "policies:\n  a:\n    algorithm: fixed-window\n    limit: 010\n", 4, "policies.a.limit", "whole number"},
	{"above any number", "policies:\n  a:\n    algorithm: fixed-window\n    limit: 99999999999999999999\n", 4, "policies.a.limit", "whole number"},
	{"a period without a unit", "policies:\n  a:\n    algorithm: fixed-window\n    limit: 1\n    period: 60\n", 5, "policies.a.period", "with its unit"},
	{"a period too long", "policies:\n  a:\n    algorithm: fixed-window\n    limit: 1\n    period: 401d\n    on-failure: open\n", 5, "policies.a.period", "1ms to 9600h"},
	{"no burst", "policies:\n  a: {algorithm: token-bucket, limit: 1, period: 1s, on-failure: open}\n", 2, "policies.a.burst", "missing"},
	{"no delay", "policies:\n  a: {algorithm: leaky-queue, limit: 1, period: 1s, burst: 1, on-failure: open}\n", 2, "policies.a.max-delay", "missing"},
	{"a delay of a bucket", "policies:\n  a: {algorithm: token-bucket, limit: 1, period: 1s, burst: 1,\n    max-delay: 1s, on-failure: open}\n", 3, "policies.a.max-delay", "has none"},
	{"a delay too short", "policies:\n  a: {algorithm: leaky-queue, limit: 1, period: 1s, burst: 1, on-failure: open,\n    max-delay: 100us}\n", 3, "policies.a.max-delay", "max delay 100µs: want 1ms to"},
	{"shards of a queue", "shards: 2\npolicies: {a: {algorithm: leaky-queue, limit: 9, period: 1s, burst: 9, max-delay: 1s, on-failure: open}}\n", 1, "shards", "is not spread"},
	{"a queue that borrows", "borrow: 50ms\npolicies: {a: {algorithm: leaky-queue, limit: 9, period: 1s, burst: 9, max-delay: 1s, on-failure: open}}\n", 1, "borrow", "are not lent"},
	{"a burst of a window", "policies:\n  a: {algorithm: fixed-window, limit: 1, period: 1s,\n    burst: 2, on-failure: open}\n", 3, "policies.a.burst", "has none"},
	{"one bucket", "policies:\n  a: {algorithm: bucketed-window, limit: 1, period: 1s,\n    buckets: 1, on-failure: open}\n", 3, "policies.a.buckets", "buckets 1: want 2 to"},
	{"a period of calls in flight", "policies:\n  a: {algorithm: in-flight, limit: 1,\n    period: 1s, on-failure: open}\n", 3, "policies.a.period", "the algorithm in-flight has none"},
	{"too many calls in flight", "policies:\n  a: {algorithm: in-flight, on-failure: open,\n    limit: 1000001}\n", 3, "policies.a.limit", "limit 1000001"},
	{"a compact-log too large", "policies:\n  a: {algorithm: compact-log, period: 1m, on-failure: open,\n    limit: 1000001}\n", 3, "policies.a.limit", "limit 1000001"},
	{"a calendar without a period", "policies:\n  a: {algorithm: calendar, limit: 1, zone: UTC, on-failure: open}\n", 2, "policies.a.period", "missing; want day, week or month"},
	{"a calendar's duration", "policies:\n  a: {algorithm: calendar, limit: 1, zone: UTC, on-failure: open,\n    period: 24h}\n", 3, "policies.a.period", `unknown period "24h"; want day, week or month`},
	{"a window's civil period", "policies:\n  a: {algorithm: fixed-window, limit: 1, on-failure: open,\n    period: day}\n", 3, "policies.a.period", "want a duration"},
	{"a calendar without a zone", "policies:\n  a: {algorithm: calendar, limit: 1, period: day, on-failure: open}\n", 2, "policies.a.zone", "missing; want UTC"},
	{"an unknown zone", "policies:\n  a: {algorithm: calendar, limit: 1, period: day, on-failure: open,\n    zone: Europe/Atlantis}\n", 3, "policies.a.zone", "unknown time zone Europe/Atlantis"},
	{"the local zone", "policies:\n  a: {algorithm: calendar, limit: 1, period: day, on-failure: open,\n    zone: Local}\n", 3, "policies.a.zone", "the same on every host"},
	{"a zone of a window", "policies:\n  a: {algorithm: fixed-window, limit: 1, period: 1s, on-failure: open,\n    zone: UTC}\n", 3, "policies.a.zone", "the algorithm fixed-window has none"},
	{"a week without its first day", "policies:\n  a: {algorithm: calendar, limit: 1, period: week, zone: UTC, on-failure: open}\n", 2, "policies.a.week-start", "missing; want sunday, monday"},
	{"an unknown first day", "policies:\n  a: {algorithm: calendar, limit: 1, period: week, zone: UTC, on-failure: open,\n    week-start: mon}\n", 3, "policies.a.week-start", `unknown day "mon"; want sunday`},
	{"the first day of a month", "policies:\n  a: {algorithm: calendar, limit: 1, period: month, zone: UTC, on-failure: open,\n    week-start: monday}\n", 3, "policies.a.week-start", "a month has none"},
	{"the anchor of a week", "policies:\n  a: {algorithm: calendar, limit: 1, period: week, week-start: monday, zone: UTC, on-failure: open,\n    anchor: 1}\n", 3, "policies.a.anchor", "a week has none"},
	{"an anchor of 0", "policies:\n  a: {algorithm: calendar, limit: 1, period: month, zone: UTC, on-failure: open,\n    anchor: 0}\n", 3, "policies.a.anchor", "month from 0: want Day(), Week(a weekday) or Month(1 to 31)"},
	{"an anchor of 32", "policies:\n  a: {algorithm: calendar, limit: 1, period: month, zone: UTC, on-failure: open,\n    anchor: 32}\n", 3, "policies.a.anchor", "month from 32"},
	{"an anchor of 2^32 + 1", "policies:\n  a: {algorithm: calendar, limit: 1, period: month, zone: UTC, on-failure: open,\n    anchor: 4294967297}\n", 3, "policies.a.anchor", "month from 4294967297"},
	{"a negative anchor", "policies:\n  a: {algorithm: calendar, limit: 1, period: month, zone: UTC, on-failure: open,\n    anchor: -7}\n", 3, "policies.a.anchor", "month from -7"},
	{"a shadow of yes", "policies:\n  a: {algorithm: fixed-window, limit: 1, period: 1s, on-failure: open,\n    shadow: yes}\n", 3, "policies.a.shadow", `"yes"; want true or false`},
	{"a shadow in quotes", "policies:\n  a: {algorithm: fixed-window, limit: 1, period: 1s, on-failure: open,\n    shadow: \"true\"}\n", 3, "policies.a.shadow", `"true"; want true or false`},
	{"no failure mode", "policies:\n  a: {algorithm: fixed-window, limit: 1, period: 1s}\n", 2, "policies.a.on-failure", "missing"},
	{"unknown failure mode", "policies:\n  a: {algorithm: fixed-window, limit: 1, period: 1s,\n    on-failure: maybe}\n", 3, "policies.a.on-failure", `unknown failure mode "maybe"`},
	{"a borrow that is too long", "policies:\n  a: {algorithm: fixed-window, limit: 10, period: 1s, on-failure: open}\nborrow: 2s\n", 3, "borrow", "10ms to 1s"},
	{"a borrow of calls in flight", "policies:\n  a: {algorithm: in-flight, limit: 10, on-failure: open}\nborrow: 50ms\n", 3, "borrow", "not lent"},
	{"too many shards", "policies:\n  a: {algorithm: fixed-window, limit: 10, period: 1s, on-failure: open}\nshards: 11\n", 3, "shards", "shards"},
	{"shards beyond 32 bits", "policies:\n  a: {algorithm: fixed-window, limit: 10, period: 1s, on-failure: open}\nshards: 9999999999\n", 3, "shards", "9999999999"},
	{"a bad name", "policies:\n  a b: {algorithm: fixed-window, limit: 1, period: 1s, on-failure: open}\n", 2, "policies.a b", "policy name"},
	{"unknown field", "policies:\n  a:\n    algorithm: fixed-window\n    rate: 1\n", 4, "policies.a.rate", `unknown field "rate"`},
	{"plan of an unknown policy", good + "tenants: {}\nplanz: {}\n", 10, "planz", "unknown field"},
	{"unknown policy in a list", "policies:\n  a: &a {algorithm: fixed-window, limit: 1, period: 1s, on-failure: open}\nplans:\n  free: [a,\n    b]\ndefault: free\n", 5, "plans.free.1", `unknown policy "b"; want a`},
	{"unknown policy in a plan", "policies:\n  a: {algorithm: fixed-window, limit: 1, period: 1s, on-failure: open}\nplans:\n  free:\n    b: {limit: 2}\ndefault: free\n", 5, "plans.free.b", `unknown policy "b"; want a`},
	{"a plan's number", "policies:\n  a: {algorithm: fixed-window, limit: 1, period: 1s, on-failure: open}\nplans:\n  free:\n    a: {limit: -2}\ndefault: free\n", 5, "plans.free.a.limit", "limit -2"},
	{"a plan of nothing", "policies:\n  a: {algorithm: fixed-window, limit: 1, period: 1s, on-failure: open}\nplans:\n  free: []\ndefault: free\n", 4, "plans.free", "at least one"},
	{"shards of a plan that is not there", "policies:\n  a: {algorithm: fixed-window, limit: 10, period: 1s, on-failure: open}\nplans: {x: [a]}\ndefault: x\nshards: {y: 2}\n", 5, "shards.y", "unknown plan"},
	{"shards of a plan, and no plans", "policies:\n  a: {algorithm: fixed-window, limit: 10, period: 1s, on-failure: open}\nshards: {y: 2}\n", 3, "shards.y", "unknown plan"},
	{"shards of a policy", "policies:\n  a: {algorithm: fixed-window, limit: 10, period: 1s, on-failure: open,\n    shards: 2}\n", 3, "policies.a.shards", "unknown field"},
	{"a tenant's borrow that is too long", "policies:\n  a: {algorithm: fixed-window, limit: 10, period: 1s, on-failure: open}\ntenants:\n  one: {borrow: 2s}\n", 4, "tenants.one.borrow", "10ms to 1s"},
	{"no default", "policies:\n  a: {algorithm: fixed-window, limit: 1, period: 1s, on-failure: open}\nplans: {free: [a]}\n", 1, "default", "missing; want free"},
	{"unknown default", "policies:\n  a: {algorithm: fixed-window, limit: 1, period: 1s, on-failure: open}\nplans: {free: [a]}\ndefault: paid\n", 4, "default", `unknown plan "paid"; want free`},
	{"unknown plan of a tenant", good + "tenants:\n  acme: gold\n", 10, "tenants.acme", `unknown plan "gold"`},
	{"unknown field of a tenant", good + "tenants:\n  acme: {plam: paid}\n", 10, "tenants.acme.plam", `unknown field "plam"`},
	{"a policy that the tenant's plan lacks", good + "tenants:\n  acme: {policies: {tokens: {limit: 5}}}\n", 10, "tenants.acme.policies.tokens", `unknown policy "tokens"; want requests`},
	{"a tenant's number", good + "tenants:\n  acme:\n    policies:\n      requests:\n        limit: 0x10\n", 13, "tenants.acme.policies.requests.limit", "whole number"},
	{"a tenant twice", good + "tenants:\n  acme: free\n  acme: paid\n", 11, "tenants.acme", "given twice"},
	{"service: unknown algorithm", "rate-limiter:\n  use-algo: leaky-algo\n  window-size: 60\n  max-requests: 5\n", 2, "rate-limiter.use-algo", "unknown algorithm"},
	{"service: no window", "rate-limiter:\n  use-algo: fixed-window-algo\n  max-requests: 5\n", 2, "rate-limiter.window-size", "missing"},
	{"service: a window of nothing", "rate-limiter:\n  use-algo: fixed-window-algo\n  window-size: 0\n  max-requests: 5\n", 3, "rate-limiter.window-size", "0; want 1 to 34560000 seconds"},
	{"service: a window that no duration holds", "rate-limiter:\n  use-algo: fixed-window-algo\n  window-size: 9_999_999_999_999\n  max-requests: 5\n", 3, "rate-limiter.window-size", "want 1 to 34560000 seconds"},
	{"a newer YAML", "%YAML 1.3\n---\n" + good, 1, "", "incompatible"},
	{"a mistake below a directive", "# limits\n%YAML 1.2\n---\npolicies:\n  a: {limit: 1, period: 1s}\n", 5, "policies.a.algorithm", "missing"},
	{"a period that no duration holds", "policies:\n  a: {algorithm: fixed-window, limit: 1, period: 9999999999h}\n", 2, "policies.a.period", "at most 400d"},
	{"service: a window with a unit", "rate-limiter:\n  use-algo: fixed-window-algo\n  window-size: 1m\n  max-requests: 5\n", 3, "rate-limiter.window-size", "whole number"},
	{"service: too many requests", "rate-limiter:\n  use-algo: sliding-window-algo\n  window-size: 60\n  max-requests: 1000001\n", 4, "rate-limiter.max-requests", "limit 1000001"},
	{"service: unknown field", "rate-limiter:\n  use-algo: fixed-window-algo\n  window: 60\n", 3, "rate-limiter.window", "unknown field"},
	{"service: beside its own name", "rate-limiter: {use-algo: fixed-window-algo, window-size: 60, max-requests: 5}\npolicies:\n  rate-limiter: {algorithm: fixed-window, limit: 1, period: 1s, on-failure: open}\n", 3, "policies.rate-limiter", "given twice"},
}

const good = `policies:
  requests: {algorithm: sliding-window, limit: 100, period: 1m, on-failure: open}
  tokens: {algorithm: token-bucket, limit: 1000, period: 1s, burst: 5000, on-failure: closed}
plans:
  free: [requests]
  paid:
    {requests: {limit: 1000}, tokens: {}}
default: free
`

// options of the broken files: those of a service name no failure mode.
func options(name string) *Options {
	if len(name) > 8 && name[:8] == "service:" {
		return &Options{OnFailure: headgate.FailOpen}
	}
	return nil
}

func TestBrokenFilesNameLineAndField(t *testing.T) {
	require.GreaterOrEqual(t, len(broken), 30)
	for _, c := range broken {
		t.Run(c.name, func(t *testing.T) {
			f, err := Parse("limits.yaml", []byte(c.text), options(c.name))
			require.Nil(t, f)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.line, e.Line, "%v", err)
			require.Equal(t, c.field, e.Field, "%v", err)
			require.Equal(t, "limits.yaml", e.File)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, "limits.yaml:"[:len("limits.yaml")+min(1, c.line)])
		})
	}
}

// TestSameErrorEachTime: of two mistakes the same one is returned every time.
func TestSameErrorEachTime(t *testing.T) {
	text := []byte("policies:\n  a: {algorithm: calendar, limit: 1, period: day, zone: UTC, on-failure: open,\n    week-start: monday,\n    anchor: 2}\n")
	for range 100 {
		_, err := Parse("limits.yaml", text, nil)
		require.ErrorContains(t, err, "limits.yaml:3:17: policies.a.week-start: given; a day has none")
	}
}

func TestBrokenFilesChangeNothing(t *testing.T) {
	for _, c := range broken {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "limits.yaml")
			require.NoError(t, os.WriteFile(path, []byte(good), 0o600))
			w, reports := watch(t, path)
			before := w.Limiters()

			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			w.poll()
			w.poll()
			var e *Error
			if c.name[:min(8, len(c.name))] == "service:" { // the watcher has no failure mode for it: broken all the more
				require.Error(t, w.Err())
			} else {
				require.ErrorAs(t, w.Err(), &e)
				require.Equal(t, c.field, e.Field)
			}
			require.Same(t, before, w.Limiters())
			require.Len(t, *reports, 1)
			require.Equal(t, w.Err(), (*reports)[0])
			w.poll()
			require.Len(t, *reports, 1, "one report for one change")

			require.NoError(t, os.WriteFile(path, []byte(good+"# mended\n"), 0o600))
			w.poll()
			w.poll()
			require.NoError(t, w.Err())
			require.NotSame(t, before, w.Limiters())
			require.Len(t, *reports, 2)
		})
	}
}

// watch returns a watcher whose reads are the test's to make.
func watch(t *testing.T, path string) (*Watcher, *[]error) {
	t.Helper()
	reports := &[]error{}
	w, err := Watch(path, memory.New(nil), &Options{
		Interval: 1 << 62,
		Reloaded: func(err error) { *reports = append(*reports, err) },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, errors.Join(w.Close(), w.Close())) })
	return w, reports
}

// TestShardsOfReservations: a service that reserves finds out about a spread key when it reads
// the file.
func TestShardsOfReservations(t *testing.T) {
	file := []byte("policies:\n  a: {algorithm: fixed-window, limit: 9, period: 1h, on-failure: open}\nshards: 3\n")
	_, err := Parse("f", file, nil)
	require.NoError(t, err)
	_, err = Parse("f", file, &Options{Reserves: true})
	require.ErrorIs(t, err, headgate.ErrUnsupported)
	require.ErrorContains(t, err, "Options.Borrow")
	_, err = Parse("f", []byte(good), &Options{Reserves: true})
	require.NoError(t, err)
}
