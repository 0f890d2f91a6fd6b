package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// translate sets flags by the variables of envoyproxy/ratelimit, with its defaults. It
// returns a warning for each variable that has no meaning here, and an error for one
// whose effect on decisions is missing here.
func (e variables) translate(f *flag.FlagSet) (warnings []string, err error) {
	if err := e.refuse(); err != nil {
		return nil, err
	}
	for _, set := range []func() map[string]string{e.addresses, e.folder, e.plain, e.store} {
		for name, value := range set() {
			if err := f.Set(name, value); err != nil {
				return nil, fmt.Errorf("the environment: -%s: %w", name, err)
			}
		}
	}
	for name := range e {
		if slices.Contains(meaningless, name) || strings.HasPrefix(name, "REDIS_PERSECOND") || strings.HasPrefix(name, "MEMCACHE_") {
			warnings = append(warnings, name+" has no meaning here and is ignored")
		}
	}
	slices.Sort(warnings)
	return warnings, nil
}

// or returns a variable, or its default.
func (e variables) or(name, unset string) string {
	if v, ok := e[name]; ok {
		return v
	}
	return unset
}

func (e variables) truth(name string) bool {
	v, _ := strconv.ParseBool(e[name])
	return v
}

// refuse returns an error for the variables that would change decisions, or who gets in.
func (e variables) refuse() error {
	if e.truth("REDIS_PERSECOND") {
		return errors.New("REDIS_PERSECOND: a second store for limits per second is not supported: one store has all limits")
	}
	if e["GRPC_CLIENT_TLS_SAN"] != "" {
		return errors.New("GRPC_CLIENT_TLS_SAN: is not supported: want a GRPC_CLIENT_TLS_CACERT of these clients alone")
	}
	for _, v := range []struct{ name, unset, want string }{
		{"BACKEND_TYPE", "redis", "redis"}, {"CONFIG_TYPE", "FILE", "FILE GRPC_XDS_SOTW"}, {"REDIS_TYPE", "SINGLE", "SINGLE CLUSTER SENTINEL"},
	} {
		if value := e.or(v.name, v.unset); !slices.Contains(strings.Fields(v.want), strings.TrimSpace(value)) {
			return fmt.Errorf("%s: %q is not supported: want %s", v.name, value, strings.ReplaceAll(v.want, " ", ", "))
		}
	}
	return nil
}

func (e variables) addresses() map[string]string {
	flags := map[string]string{
		"http":    net.JoinHostPort(e.or("HOST", "0.0.0.0"), e.or("PORT", "8080")),
		"grpc":    net.JoinHostPort(e.or("GRPC_HOST", "0.0.0.0"), e.or("GRPC_PORT", "8081")),
		"metrics": "0.0.0.0:19001", "reuse-port": "true",
	}
	if path := e["GRPC_UDS"]; path != "" {
		flags["grpc"] = "unix:" + path
	}
	if e.truth("USE_PROMETHEUS") {
		if host, port, err := net.SplitHostPort(e.or("PROMETHEUS_ADDR", ":9090")); err == nil {
			if host == "" {
				host = "0.0.0.0"
			}
			flags["metrics"] = net.JoinHostPort(host, port)
		}
	}
	return flags
}

// folder is where the files are: ROOT/SUBDIRECTORY/config, whether the root is watched
// or not.
func (e variables) folder() map[string]string {
	if e["CONFIG_TYPE"] == "GRPC_XDS_SOTW" {
		flags := map[string]string{"xds": e.or("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"), "xds-node": e.or("CONFIG_GRPC_XDS_NODE_ID", "default")}
		if e.truth("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
			flags["xds-tls"], flags["xds-server-name"] = "true", e["CONFIG_GRPC_XDS_SERVER_TLS_SAN"]
			flags["xds-ca"], flags["xds-cert"], flags["xds-key"] = e["CONFIG_GRPC_XDS_SERVER_TLS_CACERT"], e["CONFIG_GRPC_XDS_CLIENT_TLS_CERT"], e["CONFIG_GRPC_XDS_CLIENT_TLS_KEY"]
		}
		return flags
	}
	return map[string]string{"config": filepath.Join(e.or("RUNTIME_ROOT", "/srv/runtime_data/current"),
		e["RUNTIME_SUBDIRECTORY"], e.or("RUNTIME_APPDIRECTORY", "config"))}
}

// plain are the variables that are flags under another name.
func (e variables) plain() map[string]string {
	names := map[string]string{
		"MERGE_DOMAIN_CONFIG": "merge-domains", "SHADOW_MODE": "shadow", "QUOTA_MODE": "quota",
		"LIMIT_RESPONSE_HEADERS_ENABLED": "headers", "LIMIT_LIMIT_HEADER": "header-limit",
		"LIMIT_REMAINING_HEADER": "header-remaining", "LIMIT_RESET_HEADER": "header-reset",
		"RESPONSE_DYNAMIC_METADATA": "dynamic-metadata", "LOG_FORMAT": "log-format",
		"GRPC_CLIENT_TLS_CACERT": "tls-client-ca", "CACHE_KEY_PREFIX": "prefix",
	}
	if e.truth("GRPC_SERVER_USE_TLS") {
		names["GRPC_SERVER_TLS_CERT"], names["GRPC_SERVER_TLS_KEY"] = "tls-cert", "tls-key"
	} else {
		delete(names, "GRPC_CLIENT_TLS_CACERT")
	}
	flags := map[string]string{"log-level": level(e.or("LOG_LEVEL", "WARN"))}
	for variable, name := range names {
		if value := e[variable]; value != "" {
			flags[name] = value
		}
	}
	return flags
}

// level returns the level of slog for one of logrus.
func level(word string) string {
	switch word = strings.ToLower(word); word {
	case "trace", "debug":
		return "debug"
	case "warning":
		return "warn"
	case "fatal", "panic":
		return "error"
	}
	return word
}

// store returns the flags of the Redis.
func (e variables) store() map[string]string {
	flags := map[string]string{}
	url := e.or("REDIS_URL", "/var/run/nutcracker/ratelimit.sock")
	user, password, both := strings.Cut(e["REDIS_AUTH"], ":")
	if !both {
		user, password = "", user
	}
	flags["redis-user"], flags["redis-password"] = user, password
	if e.truth("REDIS_TLS") {
		flags["redis-ca"], flags["redis-cert"], flags["redis-key"] = e["REDIS_TLS_CACERT"], e["REDIS_TLS_CLIENT_CERT"], e["REDIS_TLS_CLIENT_KEY"]
		flags["redis-skip-verify"] = strconv.FormatBool(e.truth("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"))
	}
	scheme := "redis://"
	if e.truth("REDIS_TLS") {
		scheme = "rediss://"
	}
	switch strings.TrimSpace(e.or("REDIS_TYPE", "SINGLE")) {
	case "CLUSTER":
		flags["cluster"] = withScheme(scheme, url)
	case "SENTINEL":
		name, addrs, _ := strings.Cut(url, ",")
		flags["sentinel"], flags["redis"], flags["sentinel-password"] = name, withScheme(scheme, addrs), e["REDIS_SENTINEL_AUTH"]
	default:
		if e.or("REDIS_SOCKET_TYPE", "unix") == "unix" {
			scheme = "unix://"
		}
		flags["redis"] = withScheme(scheme, url)
	}
	return flags
}

func withScheme(scheme, url string) string {
	if strings.Contains(url, "://") {
		return url
	}
	return scheme + url
}

// meaningless are the variables of envoyproxy/ratelimit that have no counterpart and
// change no decision.
var meaningless = []string{
	"CONFIG_GRPC_XDS_NODE_METADATA", "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
	"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "XDS_CLIENT_BACKOFF_MAX_INTERVAL", "XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "XDS_CLIENT_BACKOFF_JITTER",
	"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "DEBUG_HOST", "DEBUG_PORT", "GRPC_MAX_CONNECTION_AGE", "GRPC_MAX_CONNECTION_AGE_GRACE",
	"FORCE_START_WITHOUT_INITIAL_CONFIG", "USE_DOG_STATSD", "USE_DOG_STATSD_MOGRIFIERS", "USE_STATSD", "STATSD_HOST", "STATSD_PORT",
	"EXTRA_TAGS", "STATS_FLUSH_INTERVAL", "DISABLE_STATS", "PROMETHEUS_PATH", "PROMETHEUS_MAPPER_YAML", "RUNTIME_IGNOREDOTFILES",
	"RUNTIME_WATCH_ROOT", "EXPIRATION_JITTER_MAX_SECONDS", "LOCAL_CACHE_SIZE_IN_BYTES", "NEAR_LIMIT_RATIO",
	"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "REDIS_POOL_SIZE", "REDIS_PIPELINE_WINDOW",
	"REDIS_PIPELINE_LIMIT", "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "REDIS_POOL_ON_EMPTY_BEHAVIOR", "REDIS_TIMEOUT",
	"TRACING_ENABLED", "TRACING_SERVICE_NAME", "TRACING_SERVICE_NAMESPACE", "TRACING_SERVICE_INSTANCE_ID", "TRACING_EXPORTER_PROTOCOL",
	"TRACING_SAMPLING_RATE",
}
