package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A variable that looks like a flag and is none is a warning, with the nearest flag. Those
// that Kubernetes sets for a service of this name are none.
func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	_, warnings, err := settingsOf([]string{"headgated", "-config", "x"}, []string{
		"HEADGATED_ON_FAIL=open", "HEADGATED_REDIS=r:1", "HEADGATED_REUSE_PORT=true", "HEADGATED_BUGDET=1s", "HOME=/",
		"HEADGATED_GRPC_PORT=9000", "HEADGATED_HTTP_PORT=0.0.0.0:9001", "HEADGATED_RESP_PORT_80_TCP=80", "HEADGATED_X=SERVICE_PORT=1",
		"HEADGATED_SERVICE_HOST=10.0.0.1", "HEADGATED_SERVICE_PORT=8081", "HEADGATED_SERVICE_PORT_GRPC=8081", "HEADGATED_PORT=tcp://10.0.0.1:8081",
		"HEADGATED_PORT_8081_TCP=tcp://10.0.0.1:8081", "HEADGATED_PORT_8081_TCP_PROTO=tcp", "HEADGATED_PORT_8081_TCP_PORT=8081",
		"HEADGATED_PORT_8081_TCP_ADDR=10.0.0.1", "HEADGATED_GRPC_SERVICE_HOST=10.0.0.1", "HEADGATED_GRPC_PORT_80_TCP_ADDR=10.0.0.1",
		"HEADGATED_GRPC_SERVICE_PORT=80", "HEADGATED_WEB_PORT=tcp://[fd00::1]:80", "HEADGATED_GRPC_PORT_80_UDP=udp://10.0.0.1:80",
	}, io.Discard)
	require.NoError(t, err)
	var names []string
	for _, w := range warnings {
		name, _, _ := strings.Cut(w, " ")
		names = append(names, name)
	}
	require.Equal(t, []string{"HEADGATED_BUGDET", "HEADGATED_GRPC_PORT", "HEADGATED_HTTP_PORT", "HEADGATED_ON_FAIL", "HEADGATED_RESP_PORT_80_TCP", "HEADGATED_X"}, names)
	require.Equal(t, "HEADGATED_BUGDET is no variable of this server and is ignored; the nearest is HEADGATED_BUDGET", warnings[0])
	require.Equal(t, "HEADGATED_ON_FAIL is no variable of this server and is ignored; the nearest is HEADGATED_ON_FAILURE", warnings[3])
}

// The manifest switches those links off: one of them could be a flag some day.
func TestManifestHasNoServiceLinks(t *testing.T) {
	t.Parallel()
	manifest, err := os.ReadFile("../../deploy/kubernetes.yaml")
	require.NoError(t, err)
	require.Contains(t, string(manifest), "enableServiceLinks: false")
}

// envoyGateway is the environment in which Envoy Gateway starts its rate limit service
// (internal/infrastructure/kubernetes/ratelimit/resource.go of github.com/envoyproxy/gateway).
var envoyGateway = []string{
	"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false", "LOG_LEVEL=info",
	"USE_STATSD=false", "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001", "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
	"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=/certs/tls.crt", "GRPC_SERVER_TLS_KEY=/certs/tls.key", "GRPC_SERVER_TLS_CA_CERT=/certs/ca.crt",
	"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/certs/tls.crt", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/certs/tls.key",
	"CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/certs/ca.crt", "FORCE_START_WITHOUT_INITIAL_CONFIG=true", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=redis:6379",
	"REDIS_TLS=true", "REDIS_TLS_CLIENT_CERT=/redis-certs/tls.crt", "REDIS_TLS_CLIENT_KEY=/redis-certs/tls.key",
	"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=:19001", "PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml",
	"TRACING_ENABLED=true", "TRACING_SERVICE_NAME=envoy-ratelimit", "TRACING_SERVICE_NAMESPACE=envoy-gateway-system", "TRACING_SERVICE_INSTANCE_ID=pod",
	"TRACING_SAMPLING_RATE=1.0", "OTEL_EXPORTER_OTLP_ENDPOINT=http://otel:4318",
}

// Each of its variables is read, or is named as one without a meaning, or is none of the
// replaced service either; docs/server.md has all of them.
func TestEnvoyGatewayEnvironment(t *testing.T) {
	t.Parallel()
	s, warnings, err := settingsOf([]string{"/bin/ratelimit"}, envoyGateway, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "envoy-gateway:18001 envoy-ratelimit true /certs/ca.crt", fmt.Sprint(s.xds, " ", s.xdsNode, " ", s.xdsTLS, " ", s.xdsCA))
	require.Equal(t, "/certs/tls.crt /certs/tls.key", s.cert+" "+s.key)
	require.True(t, s.plainHTTP && s.forceStart)
	require.Equal(t, "rediss://redis:6379 /redis-certs/tls.crt", s.redis+" "+s.redisCert)
	require.Equal(t, "0.0.0.0:8081 0.0.0.0:8080 0.0.0.0:19001 info", s.grpc+" "+s.http+" "+s.metrics+" "+s.logLevel)
	require.Equal(t, []string{"no meaning here, and ignored: PROMETHEUS_MAPPER_YAML, RUNTIME_IGNOREDOTFILES, RUNTIME_WATCH_ROOT, TRACING_ENABLED, " +
		"TRACING_SAMPLING_RATE, TRACING_SERVICE_INSTANCE_ID, TRACING_SERVICE_NAME, TRACING_SERVICE_NAMESPACE, USE_STATSD"}, warnings)
	docs, err := os.ReadFile("../../docs/server.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(docs), "\n## Envoy Gateway\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, variable := range envoyGateway {
		name, _, _ := strings.Cut(variable, "=")
		require.Regexp(t, regexp.MustCompile("`"+name+"`"), section)
	}
}

// A value that the replaced service can't read ends this one too.
func TestMisspelledValues(t *testing.T) {
	t.Parallel()
	of := func(environ ...string) (*settings, []string, error) {
		return settingsOf([]string{"ratelimit"}, append([]string{"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=r:1"}, environ...), io.Discard)
	}
	for _, variable := range []string{"REDIS_TLS=yes", "USE_STATSD=", "GRPC_PORT=grpc", "NEAR_LIMIT_RATIO=most", "GRPC_MAX_CONNECTION_AGE=1d",
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=a=b", "GRPC_SERVER_USE_TLS=true", "REDIS_SOCKET_TYPE=tls", "REDIS_TYPE=", "REDIS_URL=", "LOG_LEVEL="} {
		_, _, err := of(variable)
		name, _, _ := strings.Cut(variable, "=")
		require.Error(t, err, variable)
		if name != "LOG_LEVEL" {
			require.ErrorContains(t, err, name)
		}
	}
	s, _, err := of("REDIS_TYPE=Cluster", "LOG_FORMAT=JSON", "BACKEND_TYPE=", "REDIS_URL=a:1,redis://u:p@b:2", "REDIS_TLS=1", "GRPC_MAX_CONNECTION_AGE=5m",
		"GRPC_MAX_CONNECTION_AGE_GRACE=7s", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true", "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true")
	require.NoError(t, err)
	require.Equal(t, "rediss://a:1,rediss://u:p@b:2 json 5m0s 7s true true",
		fmt.Sprint(s.cluster, " ", s.logFormat, " ", s.maxConnectionAge, " ", s.maxConnectionGrace, " ", s.healthLimits, " ", s.healthStore))
	s, _, err = of("REDIS_TYPE=sentinel", "REDIS_URL=m,redis://su:sp@a:1/3,b:2", "REDIS_AUTH=u:p")
	require.NoError(t, err)
	require.Equal(t, "m redis://a:1,redis://b:2 su/sp u/p", s.sentinel+" "+s.redis+" "+s.sentinelUser+"/"+s.sentinelPassword+" "+s.redisUser+"/"+s.redisPassword)
	s, _, err = of("REDIS_TYPE=SENTINEL", "REDIS_URL=m,redis://:sp@a:1", "REDIS_SENTINEL_AUTH=x:y")
	require.NoError(t, err)
	require.Equal(t, "x/y", s.sentinelUser+"/"+s.sentinelPassword)
	s, _, err = of("REDIS_TYPE=CLUSTER", "REDIS_SOCKET_TYPE=tls", "PORT=0x1F90", "GRPC_PORT=0o17", "USE_PROMETHEUS=true", "PROMETHEUS_ADDR=")
	require.NoError(t, err)
	require.Equal(t, "redis://r:1 0.0.0.0:8080 0.0.0.0:15 0.0.0.0:9090", s.cluster+" "+s.http+" "+s.grpc+" "+s.metrics)
	s, warnings, err := of("USE_PROMETHEUS=true", "PROMETHEUS_ADDR=9999")
	require.NoError(t, err)
	require.Equal(t, metricsAddress, s.metrics)
	require.Equal(t, []string{`PROMETHEUS_ADDR: "9999" is no host:port: metrics are at 0.0.0.0:19001`}, warnings)
	s, _, err = of("CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_NODE_METADATA=a=b,c,d=e=f", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=x:y,z:w",
		"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=9000000")
	require.NoError(t, err)
	require.Equal(t, "a=b,d=e=f x=y,z=w 9000000", fmt.Sprint(s.xdsMetadata, " ", s.xdsHeaders, " ", s.xdsMaxMessage))
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
	require.Equal(t, []string{"no meaning here, and ignored: USE_STATSD"}, warnings)
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
