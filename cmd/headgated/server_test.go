package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

const userLimits = "domain: d\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 2}}]"

func userRequest(value string) *rlspb.RateLimitRequest {
	return &rlspb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: value}}}}}
}

func read(t testing.TB, resp *http.Response, err error) (int, string) {
	t.Helper()
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	s := startServer(t, userLimits)
	post := func(body string) (int, string) {
		resp, err := http.Post(s.httpURL()+"/json", "application/json", strings.NewReader(body))
		return read(t, resp, err)
	}
	const user = `{"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "x"}]}]}`
	for _, want := range []int{200, 200, 429} {
		code, body := post(user)
		require.Equal(t, want, code, body)
		require.Contains(t, body, `"requestsPerUnit":2`)
	}
	for body, want := range map[string]int{
		"": 400, "{": 400, "[]": 400, `{"domain": "d"}`: 400, `{"unknown": 1}`: 400,
		`{"domain": "` + strings.Repeat("x", 2<<20) + `"}`: 413,
	} {
		code, _ := post(body)
		require.Equal(t, want, code, body[:min(50, len(body))])
	}
	for _, path := range []string{"/healthcheck", "/ready"} {
		resp, err := http.Get(s.httpURL() + path)
		code, body := read(t, resp, err)
		require.Equal(t, 200, code)
		require.Equal(t, "OK", body)
	}
	resp, err := http.Get("http://" + s.listeners["metrics"].Addr().String() + "/metrics")
	_, metrics := read(t, resp, err)
	for _, line := range []string{
		`headgated_requests_total{result="ok"} 2`, `headgated_requests_total{result="over_limit"} 1`, `headgated_requests_total{result="invalid"} 6`, `headgated_invalid_requests_total{reason="json"} 5`,
		`headgated_descriptor_decisions_total{descriptor="d.user",result="ok"} 2`, `headgated_config_loads_total{files="limits",result="ok"} 1`,
		`headgate_decisions_total{headgate_operation="take",headgate_policy="rls",headgate_result="denied",headgate_source="store"} 1`,
	} {
		require.Contains(t, metrics, line)
	}
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
	require.Contains(t, metrics, `headgate_source="fail-closed"`, "docs/server.md: the store's metrics have these as such")
	redis.Restart(t)
	require.Eventually(t, serving, 20*time.Second, 10*time.Millisecond, "ready again, without a request")
	require.Eventually(t, func() bool { // on a busy machine a connection may take longer than the budget
		_, err := c.ShouldRateLimit(context.Background(), userRequest("y"))
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
}

// While every circuit is open a server is ready if each of its limits lets requests pass.
func TestReadyByFile(t *testing.T) {
	t.Parallel()
	const text = "domain: d\ndescriptors:\n- {key: user, rate_limit: {unit: day, requests_per_unit: 2, on_failure: open}}\n" +
		"- {key: none, rate_limit: {unlimited: true}}\n- {key: b, rate_limit: {unit: day, requests_per_unit: 2%s}}\n"
	for mode, want := range map[string]bool{", on_failure: local": true, ", on_failure: open": true, ", on_failure: closed": false, "": false} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			s := startServer(t, fmt.Sprintf(text, mode), "-redis", redis.Addr(), "-instances", "2")
			c := s.client(t)
			_, err := c.ShouldRateLimit(context.Background(), userRequest("x"))
			require.NoError(t, err)
			redis.Kill()
			require.Eventually(t, func() bool {
				_, err := c.ShouldRateLimit(context.Background(), userRequest("y"))
				require.NoError(t, err)
				return s.readiness.down()
			}, 20*time.Second, 10*time.Millisecond)
			s.readiness.update(context.Background())
			require.Equal(t, want, s.readiness.ready.Load())
		})
	}
}

// A limit that is local names the flag that it needs, with the file's line or without.
func TestLocalNeedsInstances(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "limits.yaml")
	for text, args := range map[string][]string{
		strings.Replace(userLimits, "2}", "2, on_failure: local}", 1): nil,
		userLimits: {"-on-failure", "local"},
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		s, _, err := settingsOf(append([]string{"headgated", "-config", file}, args...), nil, io.Discard)
		require.NoError(t, err)
		_, err = newServer(s, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, "-instances")
		t.Log(err)
	}
}

// A file whose limits all have one number is replaced under load: no request is decided
// by half of a file, and a broken one changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	text := func(n int) string {
		return fmt.Sprintf("domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: %d}}\n- {key: b, rate_limit: {unit: day, requests_per_unit: %d}}\n", n, n)
	}
	const first = 1_000_000
	s := startServer(t, text(first), "-config-interval", "1ms")
	c, end := s.client(t), make(chan struct{})
	var seen sync.Map
	var halves, asked atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				select {
				case <-end:
					return
				default:
				}
				resp, err := c.ShouldRateLimit(context.Background(), &rlspb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
					{Entries: []*common.RateLimitDescriptor_Entry{{Key: "a"}}}, {Entries: []*common.RateLimitDescriptor_Entry{{Key: "b"}}}}})
				if err != nil || resp.Statuses[0].CurrentLimit.GetRequestsPerUnit() != resp.Statuses[1].CurrentLimit.GetRequestsPerUnit() {
					halves.Add(1)
					continue
				}
				asked.Add(1)
				seen.Store(resp.Statuses[0].CurrentLimit.RequestsPerUnit, true)
			}
		}()
	}
	swaps := redistest.Steps(40, 1000)
	for i := range swaps {
		replaceFile(t, s.file, text(first+1+i))
		time.Sleep(5 * time.Millisecond)
	}
	replaceFile(t, s.file, "domain: [")
	require.Eventually(t, func() bool {
		return strings.Contains(scrape(t, s), `headgated_config_loads_total{files="limits",result="error"} 1`)
	}, 20*time.Second, 5*time.Millisecond)
	close(end)
	wg.Wait()
	require.Zero(t, halves.Load())
	limits := 0
	seen.Range(func(any, any) bool { limits++; return true })
	t.Logf("%d requests met %d of %d files", asked.Load(), limits, swaps)
	require.Greater(t, limits, 1)
	_, err := c.ShouldRateLimit(context.Background(), userRequest("x"))
	require.NoError(t, err, "the file before the broken one is in use")
}

func replaceFile(t testing.TB, file, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(file+".new", file))
}

func scrape(t testing.TB, s *testServer) string {
	t.Helper()
	resp, err := http.Get("http://" + s.listeners["metrics"].Addr().String() + "/metrics")
	_, body := read(t, resp, err)
	return body
}

func TestSettings(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{}, {"-config", "x", "-redis", "a", "-cluster", "b"}, {"-config", "x", "-sentinel", "m"}, {"-config", "x", "-tls-cert", "c"},
		{"-config", "x", "-budget", "0"}, {"-config", "x", "-log-level", "loud"}, {"-config", "x", "-log-format", "xml"}, {"-config", "x", "y"},
		{"-config", "x", "-max-message", "0"}, {"-config", "/does/not/exist"}, {"-config", ".", "-grpc", "nowhere"},
	} {
		var out bytes.Buffer
		code := run(context.Background(), append([]string{"headgated", "-http", "", "-metrics", ""}, args...), nil, io.Discard, &out)
		require.Equal(t, 2, code, args)
		require.NotEmpty(t, out.String(), args)
	}
	s, _, err := settingsOf([]string{"headgated", "-http", "h"}, []string{"HEADGATED_CONFIG=c", "HEADGATED_HTTP=x", "HEADGATED_BUDGET=7ms"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "c", s.config)
	require.Equal(t, "h", s.http, "flags stand above the environment")
	require.Equal(t, 7*time.Millisecond, s.budget)
	require.Equal(t, "127.0.0.1:8081", s.grpc, "loopback alone by default")

	for _, address := range []string{":6380", "0.0.0.0:6380", "[::]:6380", "10.0.0.1:6380", "host:6380"} {
		_, _, err := settingsOf([]string{"headgated", "-resp", address}, nil, io.Discard)
		require.ErrorContains(t, err, "other machines reach it", address)
		for _, more := range [][]string{{"-resp-open"}, {"-resp-password-file", "p"}, {"-tls-cert", "c", "-tls-key", "k", "-tls-client-ca", "a"}} {
			_, _, err := settingsOf(append([]string{"headgated", "-resp", address}, more...), nil, io.Discard)
			require.NoError(t, err)
		}
	}
	for _, address := range []string{"127.0.0.1:6380", "[::1]:6380", "localhost:6380", "unix:/run/headgated"} {
		_, _, err := settingsOf([]string{"headgated", "-resp", address}, nil, io.Discard)
		require.NoError(t, err, address)
	}
}

// Under the name ratelimit the environment of envoyproxy/ratelimit counts.
func TestReplaced(t *testing.T) {
	t.Parallel()
	of := func(environ ...string) (*settings, []string, error) {
		return settingsOf([]string{"/bin/ratelimit"}, environ, io.Discard)
	}
	s, warnings, err := of("REDIS_SOCKET_TYPE=tcp", "REDIS_URL=redis:6379", "REDIS_AUTH=u:p", "RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit",
		"USE_STATSD=false", "LOG_LEVEL=debug", "SHADOW_MODE=true", "LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_LIMIT_HEADER=L")
	require.NoError(t, err)
	require.Equal(t, []string{"USE_STATSD has no meaning here and is ignored"}, warnings)
	require.Equal(t, "redis://redis:6379", s.redis)
	require.Equal(t, "u/p", s.redisUser+"/"+s.redisPassword)
	require.Equal(t, "/data/ratelimit/config", s.config)
	require.Equal(t, "0.0.0.0:8081 0.0.0.0:8080 0.0.0.0:19001", s.grpc+" "+s.http+" "+s.metrics)
	require.True(t, s.shadow && s.headers)
	require.Equal(t, "L RateLimit-Remaining", s.headerLimit+" "+s.headerRemaining)
	s, _, err = of()
	require.NoError(t, err)
	require.Equal(t, "unix:///var/run/nutcracker/ratelimit.sock /srv/runtime_data/current/config", s.redis+" "+s.config)
	s, _, err = of("REDIS_TYPE=CLUSTER", "REDIS_URL=a:1,b:2", "REDIS_TLS=true", "GRPC_PORT=9", "GRPC_HOST=::1")
	require.NoError(t, err)
	require.Equal(t, "rediss://a:1,rediss://b:2 [::1]:9", s.cluster+" "+s.grpc)
	s, _, err = of("REDIS_TYPE=SENTINEL", "REDIS_URL=m,a:1,b:2", "GRPC_UDS=/tmp/s")
	require.NoError(t, err)
	require.Equal(t, "m redis://a:1,redis://b:2 unix:/tmp/s", s.sentinel+" "+s.redis+" "+s.grpc)
	for _, environ := range []string{"REDIS_PERSECOND=true", "BACKEND_TYPE=memcache", "CONFIG_TYPE=CONSUL", "REDIS_TYPE=ring", "GRPC_CLIENT_TLS_SAN=x", "SHADOW_MODE=perhaps", "LOG_LEVEL=loud"} {
		_, _, err := of(environ)
		name, _, _ := strings.Cut(environ, "=")
		require.Error(t, err, name)
	}
}

func TestRESP(t *testing.T) {
	t.Parallel()
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(policies, []byte("policies:\n  calls: {algorithm: fixed-window, limit: 2, period: 1d}\nplans:\n  free: [calls]\n  open: {calls: {limit: unlimited}}\n  shut: {calls: {limit: blocked}}\ndefault: free\n"), 0o600))
	s := startServer(t, userLimits, "-resp", "127.0.0.1:0", "-policies", policies, "-on-failure", "closed")
	c := redis.NewClient(&redis.Options{Addr: s.listeners["resp"].Addr().String()})
	defer c.Close()
	for i := range 3 {
		got, err := c.Do(context.Background(), "HG.TAKE", "free", "k").Slice()
		require.NoError(t, err)
		require.Equal(t, int64(max(0, 1-i)), got[3])
		cell, err := c.Do(context.Background(), "CL.THROTTLE", "k", "1", "1", "86400").Int64Slice()
		require.NoError(t, err)
		require.Equal(t, []int64{int64(i / 2), 2, int64(max(0, 1-i))}, cell[:3])
	}
	for plan, source := range map[string]string{"open": "unlimited", "shut": "blocked"} {
		got, err := c.Do(context.Background(), "HG.TAKE", plan, "k").Slice()
		require.NoError(t, err)
		require.Equal(t, source, got[6])
	}
	require.ErrorContains(t, c.Do(context.Background(), "HG.TAKE", "none", "k").Err(), `plan "none"`)
	require.Contains(t, scrape(t, s), `headgated_resp_commands_total{command="CL.THROTTLE",result="ok"} 3`)
	s.stop() // while the client's connection is open
}

// TestPoliciesOfTheDocs: the policy file of docs/server.md serves the call beside it.
func TestPoliciesOfTheDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/server.md")
	require.NoError(t, err)
	_, text, found := bytes.Cut(text, []byte("`HG.TAKE free user:42` takes a unit:\n\n```yaml\n"))
	require.True(t, found)
	file, _, _ := bytes.Cut(text, []byte("```"))
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(policies, file, 0o600))
	s := startServer(t, userLimits, "-resp", "127.0.0.1:0", "-policies", policies)
	c := redis.NewClient(&redis.Options{Addr: s.listeners["resp"].Addr().String()})
	defer c.Close()
	got, err := c.Do(context.Background(), "HG.TAKE", "free", "user:42").Slice()
	require.NoError(t, err)
	require.Equal(t, []any{int64(1), "api", int64(3), int64(2)}, got[:4])
}

// A policy file that turns invalid is counted, and shown until it is mended.
func TestPoliciesReload(t *testing.T) {
	t.Parallel()
	const text = "policies:\n  calls: {algorithm: fixed-window, limit: %s, period: 1d, on-failure: open}\n"
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	replaceFile(t, policies, fmt.Sprintf(text, "2"))
	s := startServer(t, userLimits, "-resp", "127.0.0.1:0", "-policies", policies)
	has := func(lines ...string) func() bool {
		return func() bool {
			metrics := scrape(t, s)
			return !slices.ContainsFunc(lines, func(line string) bool { return !strings.Contains(metrics, line+"\n") })
		}
	}
	const ok, refused = `headgated_config_loads_total{files="policies",result="ok"} `, `headgated_config_refused{files="policies"} `
	require.True(t, has(ok+"1", refused+"0", `headgated_config_refused{files="limits"} 0`)())
	replaceFile(t, policies, fmt.Sprintf(text, "many"))
	require.Eventually(t, has(ok+"1", refused+"1", `headgated_config_loads_total{files="policies",result="error"} 1`), 20*time.Second, 5*time.Millisecond)
	replaceFile(t, policies, fmt.Sprintf(text, "3"))
	require.Eventually(t, has(ok+"2", refused+"0"), 20*time.Second, 5*time.Millisecond)
}

// A certificate that is renewed is served, and a client without one is refused.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := certificate(t, dir, "one"), certificate(t, dir, "two")
	copyPair := func(p pair) {
		replaceFile(t, filepath.Join(dir, "key"), string(p.key))
		replaceFile(t, filepath.Join(dir, "cert"), string(p.cert))
	}
	copyPair(one)
	s := startServer(t, userLimits, "-resp", "127.0.0.1:0", "-tls-cert", filepath.Join(dir, "cert"), "-tls-key", filepath.Join(dir, "key"),
		"-tls-client-ca", filepath.Join(dir, "one.cert"))
	mine, err := tls.X509KeyPair(one.cert, one.key)
	require.NoError(t, err)
	for _, flag := range []string{"grpc", "http", "resp"} {
		config := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{mine}, NextProtos: []string{"h2", "http/1.1"}}
		require.NoError(t, handshake(s.listeners[flag].Addr().String(), config, 300*time.Millisecond), flag)
		config.Certificates = nil
		require.Error(t, handshake(s.listeners[flag].Addr().String(), config, 20*time.Second), flag)
	}
	copyPair(two)
	require.Eventually(t, func() bool {
		c, err := tls.Dial("tcp", s.grpcAddr(), &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{mine}, NextProtos: []string{"h2"}})
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName == "two"
	}, 20*time.Second, 50*time.Millisecond)
}

// handshake reads too, since a server of TLS 1.3 refuses a client after the handshake. It
// returns nil if the server has not refused the client after so long.
func handshake(addr string, config *tls.Config, after time.Duration) error {
	c, err := tls.Dial("tcp", addr, config)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetReadDeadline(time.Now().Add(after))
	if _, err = c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

type pair struct{ cert, key []byte }

// certificate makes a certificate that signs itself, and writes it to name.cert.
func certificate(t testing.TB, dir, name string) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	p := pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}
	require.NoError(t, os.WriteFile(filepath.Join(dir, name+".cert"), p.cert, 0o600))
	return p
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
	require.Contains(t, scrape(t, s), `headgate_source="deny-cache"`)
}
