package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"github.com/headgate-go/headgate/internal/lab/faulttest"
	"github.com/headgate-go/headgate/internal/lab/postgrestest"
	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// logged runs a server with these flags, and returns it with its log.
func logged(t *testing.T, limits string, args ...string) (*server, *faulttest.Log) {
	t.Helper()
	file, log := filepath.Join(t.TempDir(), "limits.yaml"), &faulttest.Log{}
	replaceFile(t, file, limits)
	s, _, err := settingsOf(append([]string{"headgated", "-config", file, "-grpc", "127.0.0.1:0", "-http", "127.0.0.1:0", "-metrics", "127.0.0.1:0"}, args...), nil, io.Discard)
	require.NoError(t, err)
	v, err := newServer(s, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- v.serve(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	return v, log
}

// TestReadyAfterAnAnswer: a server whose store has never answered is not ready, by -metrics
// too, unless requests pass then. The log has the reason.
func TestReadyAfterAnAnswer(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Kill()
	v, log := logged(t, userLimits, "-redis", redis.Addr())
	code := func(flag string) int {
		resp, err := http.Get("http://" + v.listeners[flag].Addr().String() + "/ready")
		code, _ := read(t, resp, err)
		return code
	}
	for range 5 {
		require.Equal(t, 503, code("http"))
		require.Equal(t, 503, code("metrics"))
	}
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "store: not fit to serve") }, 20*time.Second, 10*time.Millisecond)
	redis.Restart(t)
	require.Eventually(t, func() bool { return code("http") == 200 && code("metrics") == 200 }, 20*time.Second, 10*time.Millisecond)

	redis.Kill()
	open, _ := logged(t, userLimits, "-redis", redis.Addr(), "-on-failure", "open")
	require.True(t, open.readiness.ready.Load(), "requests pass")
}

// TestUndecidedIsLogged: calls that pass since no store decided them are in the log, once
// per second.
func TestUndecidedIsLogged(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Kill()
	v, log := logged(t, userLimits, "-redis", redis.Addr(), "-on-failure", "open")
	begin := time.Now()
	for range 40 {
		_, err := v.service.ShouldRateLimit(context.Background(), userRequest("x"))
		require.NoError(t, err)
	}
	n := strings.Count(log.String(), "no store decided a call")
	require.Positive(t, n, log.String())
	require.LessOrEqual(t, n, 1+int(time.Since(begin)/undecidedEvery))
	require.Contains(t, log.String(), "source=fail_open")
}

// TestBorrowMetrics: what the limits borrow is in the metrics.
func TestBorrowMetrics(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits, "-borrow", "50ms")
	require.Contains(t, scrape(t, s), "headgate_borrow_keys")
}

// TestBorrowMetricsOfPlans: the units that policies of HG.TAKE borrow are exported too.
func TestBorrowMetricsOfPlans(t *testing.T) {
	t.Parallel()
	server, policies := redistest.Start(t), filepath.Join(t.TempDir(), "policies.yaml")
	replaceFile(t, policies, "policies:\n  calls: {algorithm: fixed-window, limit: 1000000, period: 1d, on-failure: open}\nborrow: 1s\n"+
		"plans:\n  a: {calls: {limit: unlimited}}\n  b: [calls]\ndefault: a\n")
	s := startServer(t, userLimits, "-redis", server.Addr(), "-resp", "127.0.0.1:0", "-policies", policies)
	c := redis.NewClient(&redis.Options{Addr: s.listeners["resp"].Addr().String()})
	defer c.Close()
	lent := regexp.MustCompile(`headgate_borrow_units_total\{headgate_units="lent"[^}]*\} [1-9]`)
	require.Eventually(t, func() bool {
		for range 10 {
			if c.Do(context.Background(), "HG.TAKE", "b", "k").Err() != nil {
				return false
			}
		}
		return lent.MatchString(scrape(t, s))
	}, 20*time.Second, 5*time.Millisecond)
}

// Hits that were used are charged, however many they are and whatever the algorithm is.
func TestLateHitsOfEachAlgorithm(t *testing.T) {
	t.Parallel()
	for _, a := range []string{"fixed-window", "sliding-window", "bucketed-window", "token-bucket", "sliding-log", "compact-log"} {
		s := startServer(t, userLimits, "-algorithm", a)
		late := userRequest("x")
		late.HitsAddend = 2_000_000
		for range 2 {
			resp, err := s.client(t).ShouldRateLimit(context.Background(), late)
			require.NoError(t, err, a)
			require.Equal(t, rlspb.RateLimitResponse_OVER_LIMIT, resp.OverallCode, a)
			late.HitsAddend = 1
		}
	}
}

// -redis-skip-verify leaves out the name of a certificate, and not its authority.
func TestSkipVerify(t *testing.T) {
	t.Parallel()
	certificate, _ := redistest.Certificate(t) // for 127.0.0.1
	redis := redistest.Start(t, append([]string{"--tls-port", redistest.AnyPort}, certificate...)...)
	url := "rediss://localhost:" + redis.TLSPort()
	decided := func(flags ...string) bool {
		s := startServer(t, userLimits, append([]string{"-redis", url}, flags...)...)
		for begin := time.Now(); time.Since(begin) < time.Second; time.Sleep(10 * time.Millisecond) {
			if _, err := s.client(t).ShouldRateLimit(t.Context(), userRequest("x")); err == nil {
				return true
			}
		}
		return false
	}
	require.Eventually(t, func() bool { return decided("-redis-ca", certificate[1], "-redis-skip-verify") }, 20*time.Second, time.Millisecond)
	require.False(t, decided("-redis-ca", certificate[1]), "the name")
	require.False(t, decided("-redis-skip-verify"), "the authority")
}

// TestReadyOnAReplica: a server whose store became a replica is not ready: it looks, and it
// can't take.
func TestReadyOnAReplica(t *testing.T) {
	t.Parallel()
	other, redis := redistest.Start(t), redistest.Start(t)
	v, _ := logged(t, userLimits, "-redis", redis.Addr())
	require.Eventually(t, v.readiness.ready.Load, 20*time.Second, 10*time.Millisecond)
	host, port, err := net.SplitHostPort(other.Addr())
	require.NoError(t, err)
	admin := redis.Client(t)
	require.NoError(t, admin.SlaveOf(context.Background(), host, port).Err())
	require.Eventually(t, func() bool { return !v.readiness.ready.Load() }, 20*time.Second, 10*time.Millisecond)
	time.Sleep(300 * time.Millisecond)
	require.False(t, v.readiness.ready.Load(), "it stays so")
	require.NoError(t, admin.SlaveOf(context.Background(), "NO", "ONE").Err())
	require.Eventually(t, v.readiness.ready.Load, 20*time.Second, 10*time.Millisecond)
}

// A Redis that is killed makes errors within the budget, and the server not ready.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startServer(t, userLimits, "-redis", redis.Addr())
	c, serving := s.client(t), s.readiness.ready.Load
	require.Eventually(t, func() bool { // on a busy machine a connection may take longer than the budget
		_, err := c.ShouldRateLimit(context.Background(), userRequest("x"))
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.Eventually(t, serving, 20*time.Second, 10*time.Millisecond)
	redis.Kill()
	require.Eventually(t, func() bool {
		_, err := c.ShouldRateLimit(context.Background(), userRequest("y"))
		require.Equal(t, codes.Unavailable, status.Code(err))
		return !serving()
	}, 20*time.Second, 10*time.Millisecond, "not ready while no store decides")
	metrics := scrape(t, s)
	require.NotContains(t, metrics, `headgated_requests_total{result="undecided"} 0`)
	require.Contains(t, metrics, `headgated_requests_total{result="over_limit"} 0`)
	require.Contains(t, metrics, `headgate_source="fail_closed"`, "docs/server.md: the store's metrics have these as such")
	redis.Restart(t)
	require.Eventually(t, serving, 20*time.Second, 10*time.Millisecond, "ready again, without a request")
	require.Eventually(t, func() bool { // on a busy machine a connection may take longer than the budget
		_, err := c.ShouldRateLimit(context.Background(), userRequest("y"))
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
}

// On a cluster the keys of a request lie on several nodes, and are decided all or nothing. The
// password is in the first node's URL.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	for _, node := range cluster.Nodes() {
		require.NoError(t, node.Client(t).ConfigSet(context.Background(), "requirepass", "pw").Err())
	}
	s := startServer(t, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 100}}, {key: b, rate_limit: {unit: day, requests_per_unit: 3}}]",
		"-cluster", "redis://:pw@"+strings.Join(cluster.Addrs(), ",redis://"), "-budget", "5s")
	c := s.client(t)
	ask := func(user string) *rlspb.RateLimitResponse {
		resp, err := c.ShouldRateLimit(context.Background(), &rlspb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
			{Entries: []*common.RateLimitDescriptor_Entry{{Key: "a", Value: user}}}, {Entries: []*common.RateLimitDescriptor_Entry{{Key: "b", Value: "all of " + user}}}}})
		require.NoError(t, err)
		return resp
	}
	for _, user := range []string{"x", "y", "z"} { // some of them on two nodes
		for i := range 3 {
			resp := ask(user)
			require.Equal(t, rlspb.RateLimitResponse_OK, resp.OverallCode)
			require.EqualValues(t, 99-i, resp.Statuses[0].LimitRemaining)
			require.EqualValues(t, 2-i, resp.Statuses[1].LimitRemaining)
		}
		resp := ask(user)
		require.Equal(t, rlspb.RateLimitResponse_OVER_LIMIT, resp.OverallCode)
		require.Equal(t, rlspb.RateLimitResponse_OVER_LIMIT, resp.Statuses[1].Code)
	}
}

// A denial that is known is answered without the store: with its numbers, and without
// any of the other descriptors.
func TestKnownDenial(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startServer(t, "domain: d\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 2}}, {key: all, rate_limit: {unit: day, requests_per_unit: 9}}]",
		"-redis", redis.Addr(), "-budget", "5s")
	c, req := s.client(t), userRequest("x")
	req.Descriptors = append(req.Descriptors, &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: "all"}}})
	known := false
	for range 20 { // the first denials are the store's
		resp, err := c.ShouldRateLimit(context.Background(), req)
		require.NoError(t, err)
		if resp.OverallCode == rlspb.RateLimitResponse_OK {
			continue
		}
		require.Equal(t, rlspb.RateLimitResponse_OVER_LIMIT, resp.Statuses[0].Code)
		require.EqualValues(t, 2, resp.Statuses[0].CurrentLimit.GetRequestsPerUnit())
		require.Positive(t, resp.Statuses[0].DurationUntilReset.GetSeconds())
		require.Equal(t, rlspb.RateLimitResponse_OK, resp.Statuses[1].Code)
		if resp.Statuses[1].CurrentLimit == nil {
			known = true
		} else {
			require.EqualValues(t, 7, resp.Statuses[1].LimitRemaining)
		}
	}
	require.True(t, known)
	require.Contains(t, scrape(t, s), `headgate_source="deny_cache"`)
}

// -memory-file: counts survive a restart. A bad file is kept under another name, which the log
// reports, and the server limits anew.
func TestMemoryFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "counts")
	over := func() bool {
		s := startServer(t, userLimits, "-memory-file", name)
		defer s.stop()
		resp, err := s.client(t).ShouldRateLimit(context.Background(), userRequest("a"))
		require.NoError(t, err)
		return resp.OverallCode == rlspb.RateLimitResponse_OVER_LIMIT
	}
	require.False(t, over())
	require.False(t, over())
	require.True(t, over(), "the third since the first start")

	replaceFile(t, name, "no counts")
	v, log := logged(t, userLimits, "-memory-file", name)
	require.Contains(t, log.String(), "is no snapshot of a memory store")
	require.Contains(t, log.String(), name+".bad-1")
	resp, err := v.service.ShouldRateLimit(context.Background(), userRequest("a"))
	require.NoError(t, err)
	require.Equal(t, rlspb.RateLimitResponse_OK, resp.OverallCode)

	for _, other := range []string{"-redis", "-cluster", "-postgres"} {
		_, _, err := settingsOf([]string{"headgated", "-config", name, "-memory-file", name, other, "localhost:6379"}, nil, io.Discard)
		require.ErrorContains(t, err, "-memory-file: want one of them")
	}
}

// TestMemoryFileFails: the log and the metrics show that the file can't be written, and when it
// can again. So does the log of the last write.
func TestMemoryFileFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name, limits, log := filepath.Join(dir, "counts"), filepath.Join(dir, "limits.yaml"), &faulttest.Log{}
	replaceFile(t, limits, userLimits)
	s, _, err := settingsOf([]string{"headgated", "-config", limits, "-memory-file", name, "-grpc", "127.0.0.1:0", "-http", "127.0.0.1:0", "-metrics", "127.0.0.1:0"}, nil, io.Discard)
	require.NoError(t, err)
	s.memoryFileEvery = 5 * time.Millisecond
	v, err := newServer(s, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- v.serve(ctx) }()
	shows := func(pattern string) func() bool {
		return func() bool {
			resp, err := http.Get("http://" + v.listeners["metrics"].Addr().String() + "/metrics")
			_, text := read(t, resp, err)
			return regexp.MustCompile("(?m)^headgated_memory_file_" + pattern + "$").MatchString(text)
		}
	}
	says := func(words string) func() bool { return func() bool { return strings.Contains(log.String(), words) } }
	eventually := func(what func() bool) {
		t.Helper()
		require.Eventually(t, what, 20*time.Second, 10*time.Millisecond, log)
	}
	eventually(shows(`written_timestamp_seconds 1\.\d+e\+09`))
	require.True(t, shows("failed 0")())

	inTheWay := filepath.Join(name+".new", "file") // a folder that is not empty
	block := func() {
		for os.MkdirAll(filepath.Dir(inTheWay), 0o700) != nil || os.WriteFile(inTheWay, nil, 0o600) != nil {
			_ = os.Remove(name + ".new") // of a write that was under way
		}
	}
	block()
	eventually(shows("failed 1"))
	eventually(says("-memory-file can't be written"))
	require.NoError(t, os.RemoveAll(name+".new"))
	eventually(shows("failed 0"))
	eventually(says("-memory-file is written again"))

	block()
	stop()
	require.NoError(t, <-ended)
	require.Contains(t, log.String(), "the store was not closed in order")
}

// TestPostgres: counts in a PostgreSQL are shared. Without tables the server starts, is not ready,
// and its log names the command that makes them.
func TestPostgres(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	v, log := logged(t, userLimits, "-postgres", server.URL(), "-postgres-schema", "limits", "-prefix", "a_", "-budget", "5s")
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "headgate migrate") }, 20*time.Second, 10*time.Millisecond)
	require.False(t, v.readiness.ready.Load())

	st, err := postgres.Open(server.URL(), &postgres.Options{Schema: "limits", Prefix: "a_"})
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close()) }()
	require.NoError(t, st.Migrate(context.Background()))
	require.Eventually(t, v.readiness.ready.Load, 20*time.Second, 10*time.Millisecond)
	other, _ := logged(t, userLimits, "-postgres", server.URL(), "-postgres-schema", "limits", "-prefix", "a_", "-budget", "5s")
	for i, s := range []*rls.Service{v.service, other.service, v.service} {
		resp, err := s.ShouldRateLimit(context.Background(), userRequest("x"))
		require.NoError(t, err)
		require.Equal(t, i == 2, resp.OverallCode == rlspb.RateLimitResponse_OVER_LIMIT)
	}

	_, err = openStore(&settings{postgres: "postgres://user:s3cret@host:x/", budget: time.Second})
	require.ErrorContains(t, err, "-postgres: ")
	require.NotContains(t, err.Error(), "s3cret")
}
