package main

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kind reads a value as envoyproxy/ratelimit does. What it can't read ends that service, and
// this one too: a value that is misspelled is never the default.
type kind func(value string) error

func kindText(string) error       { return nil }
func kindTruth(v string) error    { _, err := strconv.ParseBool(v); return err }
func kindWhole(v string) error    { _, err := strconv.ParseInt(v, 0, 64); return err }
func kindFraction(v string) error { _, err := strconv.ParseFloat(v, 64); return err }
func kindLength(v string) error   { _, err := time.ParseDuration(v); return err }
func kindPairs(v string) error { // "name:value,…"
	for _, pair := range strings.Split(v, ",") {
		if strings.TrimSpace(v) != "" && strings.Count(pair, ":") != 1 {
			return fmt.Errorf("%q is no name:value", pair)
		}
	}
	return nil
}

// replacedVariables are those of envoyproxy/ratelimit, by their kind.
var replacedVariables = []struct {
	kind  kind
	names string
}{
	{kindText, "HOST DEBUG_HOST GRPC_UDS GRPC_HOST GRPC_SERVER_TLS_CERT GRPC_SERVER_TLS_KEY GRPC_CLIENT_TLS_CACERT GRPC_CLIENT_TLS_SAN " +
		"LOG_LEVEL LOG_FORMAT CONFIG_TYPE CONFIG_GRPC_XDS_NODE_ID CONFIG_GRPC_XDS_NODE_METADATA CONFIG_GRPC_XDS_SERVER_URL " +
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT CONFIG_GRPC_XDS_CLIENT_TLS_KEY CONFIG_GRPC_XDS_SERVER_TLS_CACERT CONFIG_GRPC_XDS_SERVER_TLS_SAN " +
		"USE_DOG_STATSD_MOGRIFIERS STATSD_HOST PROMETHEUS_ADDR PROMETHEUS_PATH PROMETHEUS_MAPPER_YAML RUNTIME_ROOT RUNTIME_SUBDIRECTORY " +
		"RUNTIME_APPDIRECTORY CACHE_KEY_PREFIX BACKEND_TYPE LIMIT_LIMIT_HEADER LIMIT_REMAINING_HEADER LIMIT_RESET_HEADER " +
		"REDIS_SOCKET_TYPE REDIS_TYPE REDIS_URL REDIS_AUTH REDIS_TLS_CLIENT_CERT REDIS_TLS_CLIENT_KEY REDIS_TLS_CACERT REDIS_SENTINEL_AUTH " +
		"REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_PERSECOND_SOCKET_TYPE REDIS_PERSECOND_TYPE REDIS_PERSECOND_URL REDIS_PERSECOND_AUTH " +
		"REDIS_PERSECOND_SENTINEL_AUTH REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR MEMCACHE_HOST_PORT MEMCACHE_SRV MEMCACHE_TLS_CLIENT_CERT " +
		"MEMCACHE_TLS_CLIENT_KEY MEMCACHE_TLS_CACERT TRACING_SERVICE_NAME TRACING_SERVICE_NAMESPACE TRACING_SERVICE_INSTANCE_ID TRACING_EXPORTER_PROTOCOL"},
	{kindTruth, "GRPC_SERVER_USE_TLS FORCE_START_WITHOUT_INITIAL_CONFIG CONFIG_GRPC_XDS_SERVER_USE_TLS XDS_CLIENT_BACKOFF_JITTER USE_DOG_STATSD USE_STATSD " +
		"DISABLE_STATS USE_PROMETHEUS RUNTIME_IGNOREDOTFILES RUNTIME_WATCH_ROOT STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT LIMIT_RESPONSE_HEADERS_ENABLED " +
		"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED REDIS_TLS REDIS_TLS_SKIP_HOSTNAME_VERIFICATION REDIS_PERSECOND REDIS_PERSECOND_TLS " +
		"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION MEMCACHE_TLS MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION SHADOW_MODE QUOTA_MODE RESPONSE_DYNAMIC_METADATA " +
		"MERGE_DOMAIN_CONFIG TRACING_ENABLED"},
	{kindWhole, "PORT DEBUG_PORT GRPC_PORT XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES STATSD_PORT EXPIRATION_JITTER_MAX_SECONDS LOCAL_CACHE_SIZE_IN_BYTES " +
		"REDIS_POOL_SIZE REDIS_PIPELINE_LIMIT REDIS_PERSECOND_POOL_SIZE REDIS_PERSECOND_PIPELINE_LIMIT MEMCACHE_MAX_IDLE_CONNS"},
	{kindFraction, "XDS_CLIENT_BACKOFF_RANDOM_FACTOR NEAR_LIMIT_RATIO TRACING_SAMPLING_RATE"},
	{kindLength, "GRPC_MAX_CONNECTION_AGE GRPC_MAX_CONNECTION_AGE_GRACE CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL XDS_CLIENT_BACKOFF_INITIAL_INTERVAL " +
		"XDS_CLIENT_BACKOFF_MAX_INTERVAL STATS_FLUSH_INTERVAL REDIS_PIPELINE_WINDOW REDIS_PERSECOND_PIPELINE_WINDOW REDIS_TIMEOUT REDIS_PERSECOND_TIMEOUT " +
		"MEMCACHE_SRV_REFRESH"},
	{kindPairs, "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS EXTRA_TAGS"},
}

// meaningless are the variables that have no counterpart and change no decision. So are those of
// a second Redis and of Memcache, which are refused where they would change one.
const meaningless = " CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL XDS_CLIENT_BACKOFF_INITIAL_INTERVAL XDS_CLIENT_BACKOFF_MAX_INTERVAL " +
	"XDS_CLIENT_BACKOFF_RANDOM_FACTOR XDS_CLIENT_BACKOFF_JITTER DEBUG_HOST DEBUG_PORT USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS USE_STATSD STATSD_HOST " +
	"STATSD_PORT EXTRA_TAGS STATS_FLUSH_INTERVAL DISABLE_STATS PROMETHEUS_PATH PROMETHEUS_MAPPER_YAML RUNTIME_IGNOREDOTFILES RUNTIME_WATCH_ROOT " +
	"EXPIRATION_JITTER_MAX_SECONDS LOCAL_CACHE_SIZE_IN_BYTES NEAR_LIMIT_RATIO STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT REDIS_POOL_SIZE " +
	"REDIS_PIPELINE_WINDOW REDIS_PIPELINE_LIMIT REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_TIMEOUT TRACING_ENABLED TRACING_SERVICE_NAME " +
	"TRACING_SERVICE_NAMESPACE TRACING_SERVICE_INSTANCE_ID TRACING_EXPORTER_PROTOCOL TRACING_SAMPLING_RATE "

// readReplaced checks each variable of envoyproxy/ratelimit that is set, and returns a warning
// with those that have no meaning here.
func (e variables) readReplaced() (warnings []string, err error) {
	var ignored []string
	for _, v := range replacedVariables {
		for name := range strings.FieldsSeq(v.names) {
			value, ok := e[name]
			if !ok {
				continue
			}
			//mutant:misspelled-value
			if err := v.kind(value); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if strings.Contains(meaningless, " "+name+" ") || strings.HasPrefix(name, "REDIS_PERSECOND") || strings.HasPrefix(name, "MEMCACHE_") {
				ignored = append(ignored, name)
			}
		}
	}
	//mutant:no-address-of-metrics
	if _, _, err := net.SplitHostPort(e.prometheus()); e.truth("USE_PROMETHEUS") && err != nil {
		warnings = append(warnings, fmt.Sprintf("PROMETHEUS_ADDR: %q is no host:port: metrics are at %s", e.prometheus(), metricsAddress))
	}
	if len(ignored) > 0 {
		slices.Sort(ignored)
		warnings = append(warnings, "no meaning here, and ignored: "+strings.Join(ignored, ", "))
	}
	return warnings, nil
}
