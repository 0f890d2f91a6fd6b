package rls

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/stretchr/testify/require"
)

// What a program does in an environment.
const (
	limited = "limits requests"
	ends    = "ends"
	errs    = "answers with errors" // no request is decided
	passes  = "lets all requests pass"
)

// environment is a row: what people start envoyproxy/ratelimit with.
type environment struct {
	name       string
	env        []string // {…} is one of the stores
	reference  string
	headgated  string
	difference string // why they differ; "" if they do not
}

var environments = []environment{
	{name: "one server", env: []string{"REDIS_URL={plain}"}, reference: limited, headgated: limited},
	{name: "the type in small letters", env: []string{"REDIS_TYPE=single", "REDIS_URL={plain}"}, reference: limited, headgated: limited},
	{name: "a URL", env: []string{"REDIS_URL=redis://{plain}/0"}, reference: limited, headgated: limited},
	{name: "an empty backend", env: []string{"BACKEND_TYPE=", "REDIS_URL={plain}"}, reference: limited, headgated: limited},
	{name: "JSON in capitals", env: []string{"LOG_FORMAT=JSON", "REDIS_URL={plain}"}, reference: limited, headgated: limited},
	{name: "a log format that is none", env: []string{"LOG_FORMAT=xml", "REDIS_URL={plain}"}, reference: limited, headgated: limited},
	{name: "a log level in capitals", env: []string{"LOG_LEVEL=ERROR", "REDIS_URL={plain}"}, reference: limited, headgated: limited},
	{name: "a log level that is none", env: []string{"LOG_LEVEL=loud", "REDIS_URL={plain}"}, reference: ends, headgated: ends},
	{name: "yes is no truth value", env: []string{"REDIS_TLS=yes", "REDIS_URL={plain}"}, reference: ends, headgated: ends},
	{name: "an empty truth value", env: []string{"SHADOW_MODE=", "REDIS_URL={plain}"}, reference: ends, headgated: ends},
	{name: "a duration without a unit", env: []string{"GRPC_MAX_CONNECTION_AGE=5", "REDIS_URL={plain}"}, reference: ends, headgated: ends},
	{name: "a duration", env: []string{"GRPC_MAX_CONNECTION_AGE=5m", "GRPC_MAX_CONNECTION_AGE_GRACE=10s", "REDIS_URL={plain}"}, reference: limited, headgated: limited},
	{name: "a number that is none", env: []string{"REDIS_POOL_SIZE=many", "REDIS_URL={plain}"}, reference: ends, headgated: ends},
	{name: "tags that are none", env: []string{"EXTRA_TAGS=a=b", "REDIS_URL={plain}"}, reference: ends, headgated: ends},
	{name: "a type that is none", env: []string{"REDIS_TYPE=ring", "REDIS_URL={plain}"}, reference: ends, headgated: ends},
	{name: "an empty type", env: []string{"REDIS_TYPE=", "REDIS_URL={plain}"}, reference: ends, headgated: ends},
	{name: "an empty configuration type", env: []string{"CONFIG_TYPE=", "REDIS_URL={plain}"}, reference: ends, headgated: ends},
	{name: "a socket type of TLS", env: []string{"REDIS_SOCKET_TYPE=tls", "REDIS_URL={plain}"}, reference: ends, headgated: ends},
	{name: "the cluster in capitals", env: []string{"REDIS_TYPE=CLUSTER", "REDIS_URL={cluster}"}, reference: limited, headgated: limited},
	{name: "the cluster in small letters", env: []string{"REDIS_TYPE=cluster", "REDIS_URL={cluster}", "REDIS_PIPELINE_WINDOW=150us"}, reference: limited, headgated: limited},
	{name: "the cluster by URLs", env: []string{"REDIS_TYPE=CLUSTER", "REDIS_URL={clusterURLs}"}, reference: limited, headgated: limited},
	{name: "a password", env: []string{"REDIS_AUTH=secret", "REDIS_URL={password}"}, reference: limited, headgated: limited},
	{name: "a user and a password", env: []string{"REDIS_AUTH=default:secret", "REDIS_URL={password}"}, reference: limited, headgated: limited},
	{name: "a password in the URL", env: []string{"REDIS_URL=redis://:secret@{password}"}, reference: limited, headgated: limited},
	{name: "a wrong password", env: []string{"REDIS_AUTH=wrong", "REDIS_URL={password}"}, reference: ends, headgated: errs, difference: "the store at the start"},
	{name: "no server", env: []string{"REDIS_URL=127.0.0.1:1"}, reference: ends, headgated: errs, difference: "the store at the start"},
	{name: "Sentinel", env: []string{"REDIS_TYPE=SENTINEL", "REDIS_URL=mymaster,{sentinel}"}, reference: limited, headgated: limited},
	{name: "Sentinel with a password of Redis", env: []string{"REDIS_TYPE=sentinel", "REDIS_URL=mymaster,{sentinelBoth}", "REDIS_AUTH=secret", "REDIS_SENTINEL_AUTH=guard"}, reference: limited, headgated: limited},
	{name: "Sentinel's password in the first URL", env: []string{"REDIS_TYPE=SENTINEL", "REDIS_URL=mymaster,redis://:guard@{sentinelBoth}", "REDIS_AUTH=secret"}, reference: limited, headgated: limited},
	{name: "several Sentinels as URLs", env: []string{"REDIS_TYPE=SENTINEL", "REDIS_URL=mymaster,redis://127.0.0.1:1,redis://{sentinel}"}, reference: limited, headgated: limited},
	{name: "Sentinel without a master", env: []string{"REDIS_TYPE=SENTINEL", "REDIS_URL={sentinel}"}, reference: ends, headgated: ends},
	{name: "TLS", env: []string{"REDIS_TLS=true", "REDIS_TLS_CACERT={ca}", "REDIS_URL={tls}"}, reference: limited, headgated: limited},
	{name: "TLS and a URL", env: []string{"REDIS_TLS=true", "REDIS_TLS_CACERT={ca}", "REDIS_URL=redis://{tls}"}, reference: limited, headgated: limited},
	{name: "TLS without the authority", env: []string{"REDIS_TLS=true", "REDIS_URL={tls}"}, reference: ends, headgated: errs, difference: "the store at the start"},
	{name: "TLS, the name not verified", env: []string{"REDIS_TLS=true", "REDIS_TLS_CACERT={ca}", "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true", "REDIS_URL=localhost:{tlsPort}"}, reference: limited, headgated: limited},
	{name: "TLS, neither", env: []string{"REDIS_TLS=true", "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true", "REDIS_URL={tls}"}, reference: ends, headgated: errs, difference: "the store at the start"},
	{name: "a Unix socket", env: []string{"REDIS_SOCKET_TYPE=unix", "REDIS_URL={socket}"}, reference: limited, headgated: limited},
	{name: "Sentinel without its type", env: []string{"REDIS_URL=mymaster,{sentinel}"}, reference: ends, headgated: ends},
	{name: "two addresses of one server", env: []string{"REDIS_URL={plain},{plain}"}, reference: ends, headgated: ends},
	{name: "an empty address", env: []string{"REDIS_URL="}, reference: ends, headgated: ends},
	{name: "a password in the query of the URL", env: []string{"REDIS_URL=redis://{password}?password=secret"}, reference: limited, headgated: ends, difference: "a query in a URL of Redis"},
	{name: "a prefix with braces", env: []string{"CACHE_KEY_PREFIX={tag}", "REDIS_URL={plain}"}, reference: limited, headgated: ends, difference: "a prefix with spaces or braces"},
	{name: "a pool of a negative size", env: []string{"REDIS_POOL_SIZE=-1", "REDIS_URL={plain}"}, reference: ends, headgated: limited, difference: "variables without a meaning"},
	{name: "rediss", env: []string{"REDIS_TLS=true", "REDIS_TLS_CACERT={ca}", "REDIS_URL=rediss://{tls}"}, reference: ends, headgated: limited, difference: "rediss:// is read"},
	{name: "a Redis for limits per second", env: []string{"REDIS_PERSECOND=true", "REDIS_PERSECOND_SOCKET_TYPE=tcp", "REDIS_PERSECOND_URL={plain}", "REDIS_URL={plain}"}, reference: limited, headgated: ends, difference: "one store"},
	{name: "memcache that is away", env: []string{"BACKEND_TYPE=memcache", "MEMCACHE_HOST_PORT=127.0.0.1:1", "REDIS_URL={plain}"}, reference: passes, headgated: ends, difference: "one store"},
	{name: "a pool that makes connections", env: []string{"REDIS_POOL_ON_EMPTY_BEHAVIOR=CREATE", "REDIS_URL={plain}"}, reference: ends, headgated: limited, difference: "variables without a meaning"},
	{name: "two sinks of statistics", env: []string{"USE_STATSD=true", "REDIS_URL={plain}"}, reference: ends, headgated: limited, difference: "variables without a meaning"},
	{name: "TLS of gRPC without a certificate", env: []string{"GRPC_SERVER_USE_TLS=true", "REDIS_URL={plain}"}, reference: ends, headgated: ends},
	{name: "TLS of gRPC, plain HTTP", env: []string{"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT={ca}", "GRPC_SERVER_TLS_KEY={key}", "REDIS_URL={plain}"}, reference: limited, headgated: limited},
	{name: "a port in hexadecimal", env: []string{"PORT={port}", "REDIS_URL={plain}"}, reference: limited, headgated: limited},
	{name: "a socket type that is none, of a cluster", env: []string{"REDIS_TYPE=CLUSTER", "REDIS_SOCKET_TYPE=tls", "REDIS_URL={cluster}"}, reference: limited, headgated: limited},
	{name: "a socket type that is none, of Sentinel", env: []string{"REDIS_TYPE=SENTINEL", "REDIS_SOCKET_TYPE=tls", "REDIS_URL=mymaster,{sentinel}"}, reference: limited, headgated: limited},
	{name: "metrics at a port alone", env: []string{"PROMETHEUS_ADDR=9999", "REDIS_URL={plain}"}, reference: limited, headgated: limited},
	{name: "no subdirectory, the root watched", env: []string{"RUNTIME_WATCH_ROOT=true", "REDIS_URL={plain}"}, reference: passes, headgated: limited, difference: "no RUNTIME_SUBDIRECTORY"},
	{name: "hidden files, ignored", env: []string{"RUNTIME_APPDIRECTORY=hidden", "RUNTIME_IGNOREDOTFILES=true", "REDIS_URL={plain}"}, reference: limited, headgated: limited},
	{name: "hidden files", env: []string{"RUNTIME_APPDIRECTORY=hidden", "REDIS_URL={plain}"}, reference: errs, headgated: limited, difference: "hidden files"},
	{name: "files in a folder of the folder", env: []string{"RUNTIME_APPDIRECTORY=nested", "REDIS_URL={plain}"}, reference: limited, headgated: limited},
	{name: "files that are none", env: []string{"RUNTIME_APPDIRECTORY=broken", "REDIS_URL={plain}"}, reference: errs, headgated: ends, difference: "a mistake at the start"},
	{name: "files that are none, by force", env: []string{"RUNTIME_APPDIRECTORY=broken", "FORCE_START_WITHOUT_INITIAL_CONFIG=true", "REDIS_URL={plain}"}, reference: errs, headgated: errs},
}

// Each environment has one result in both programs, or a difference that docs/server.md
// states.
func TestEnvironments(t *testing.T) {
	if !*withReference {
		t.Skip("NOT TESTED: without -reference the service that headgated replaces is not built")
	}
	docs, err := os.ReadFile("../../docs/server.md")
	require.NoError(t, err)
	stores, equal := storesOf(t), 0
	for _, e := range environments {
		e := e
		require.Equal(t, e.reference != e.headgated, e.difference != "", e.name)
		require.Contains(t, string(docs), e.difference)
		if e.difference == "" {
			equal++
		}
		t.Run(e.name, func(t *testing.T) {
			for i, v := range e.env {
				e.env[i] = stores.Replace(v)
			}
			require.Equal(t, e.reference, outcome(t, "reference", e.env), "envoyproxy/ratelimit")
			require.Equal(t, e.headgated, outcome(t, "ratelimit", e.env), "headgated")
		})
	}
	t.Logf("%d environments, the same result in %d", len(environments), equal)
}

// storesOf starts what the environments name.
func storesOf(t *testing.T) *strings.Replacer {
	t.Helper()
	certificate, _ := redistest.Certificate(t) // "--tls-cert-file", its path, "--tls-key-file", its path, …
	socket := filepath.Join(t.TempDir(), "redis")
	plain, password := redistest.Start(t, "--unixsocket", socket), redistest.Start(t, "--requirepass", "secret", "--masterauth", "secret")
	secure := redistest.Start(t, append([]string{"--tls-port", redistest.AnyPort}, certificate...)...)
	cluster := redistest.StartCluster(t)
	sentinel := plain.Sentinel(t, "mymaster")
	both := password.Sentinel(t, "mymaster", "--requirepass", "guard", "--sentinel", "auth-pass", "mymaster", "secret")
	tls := net.JoinHostPort("127.0.0.1", secure.TLSPort())
	return strings.NewReplacer("{plain}", plain.Addr(), "{socket}", socket, "{password}", password.Addr(), "{tls}", tls, "{tlsPort}", secure.TLSPort(),
		"{ca}", certificate[1], "{key}", certificate[3], "{sentinel}", sentinel.Addr(), "{sentinelBoth}", both.Addr(),
		"{cluster}", strings.Join(cluster.Addrs(), ","), "{clusterURLs}", "redis://"+strings.Join(cluster.Addrs(), ",redis://"))
}

// outcome starts a program, and returns what it does: a limit of 2 that a fresh domain has
// is what it was started for.
func outcome(t *testing.T, name string, env []string) string {
	t.Helper()
	dir, err := binaries()
	require.NoError(t, err)
	root, domain := t.TempDir(), fmt.Sprint("d", time.Now().UnixNano())
	limits := "domain: " + domain + "\ndescriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 2}}]"
	for file, text := range map[string]string{
		"config/limits.yaml": limits, "broken/limits.yaml": "domain: ", "nested/team/limits.yaml": limits,
		"hidden/limits.yaml": limits, "hidden/.old.yaml": limits,
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o600))
	}
	ports := freePorts(t, 4)
	cmd := exec.Command(filepath.Join(dir, name))
	cmd.Env = append([]string{
		"REDIS_SOCKET_TYPE=tcp", "RUNTIME_ROOT=" + root, "RUNTIME_WATCH_ROOT=false", "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"GRPC_PORT=" + ports[0], "PORT=" + ports[1], "DEBUG_PORT=" + ports[2], "USE_STATSD=false", "USE_PROMETHEUS=true", "PROMETHEUS_ADDR=127.0.0.1:" + ports[3],
	}, env...)
	port, err := strconv.Atoi(ports[1])
	require.NoError(t, err)
	for i, v := range cmd.Env {
		cmd.Env[i] = strings.ReplaceAll(v, "{port}", fmt.Sprintf("%#x", port))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	defer func() { _ = cmd.Process.Kill(); <-ended }()
	body := `{"domain": "` + domain + `", "descriptors": [{"entries": [{"key": "user", "value": "x"}]}]}`
	passed, failures := 0, 0
	for begin := time.Now(); time.Since(begin) < 20*time.Second && failures < 30; {
		switch code := post("http://127.0.0.1:"+ports[1]+"/json", body); code {
		case http.StatusTooManyRequests:
			return limited
		case 0:
		case http.StatusOK:
			passed++
		default:
			failures++ // and not the first ones alone
		}
		select {
		case <-ended:
			return ends
		case <-time.After(50 * time.Millisecond):
		}
	}
	if failures == 0 && passed > 0 {
		return passes
	}
	return errs
}

// post returns the status, 0 if there is none.
func post(url, body string) int {
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); errors.Is(err, io.ErrUnexpectedEOF) {
		return 0
	}
	return resp.StatusCode
}
