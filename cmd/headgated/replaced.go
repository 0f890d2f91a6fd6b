package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// translate sets flags by the variables of envoyproxy/ratelimit, with its defaults. It
// returns a warning with the variables that have no meaning here, and an error for one
// whose effect on decisions is missing here.
func (e variables) translate(f *flag.FlagSet) (warnings []string, err error) {
	if warnings, err = e.readReplaced(); err != nil {
		return nil, err
	}
	if err := e.refuse(); err != nil {
		return nil, err
	}
	for _, set := range []func() map[string]string{e.addresses, e.tls, e.limits, e.plain, e.store} {
		for name, value := range set() {
			if err := f.Set(name, value); err != nil {
				return nil, fmt.Errorf("the environment: -%s: %w", name, err)
			}
		}
	}
	return warnings, nil
}

// or returns a variable, or its default.
func (e variables) or(name, unset string) string {
	if v, ok := e[name]; ok {
		return v
	}
	return unset
}

// truth returns a variable that is read already.
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
	if e.truth("GRPC_SERVER_USE_TLS") && (e["GRPC_SERVER_TLS_CERT"] == "" || e["GRPC_SERVER_TLS_KEY"] == "") {
		return errors.New("GRPC_SERVER_USE_TLS: want GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY")
	}
	//mutant:redis-url-given
	if url, ok := e["REDIS_URL"]; ok && url == "" {
		return errors.New("REDIS_URL: is empty, as that of a missing secret; want host:port")
	}
	if url := e.or("REDIS_URL", ""); strings.EqualFold(e["REDIS_TYPE"], "sentinel") && !strings.Contains(url, ",") {
		return errors.New("REDIS_URL: want the name of the master, and the Sentinels after it: mymaster,host:26379")
	}
	for _, v := range []struct {
		name, value string
		want        []string
	}{
		{"BACKEND_TYPE", e.or("BACKEND_TYPE", "redis"), []string{"redis", ""}},
		{"CONFIG_TYPE", e.or("CONFIG_TYPE", "FILE"), []string{"FILE", "GRPC_XDS_SOTW"}},
		{"REDIS_TYPE", strings.ToLower(e.or("REDIS_TYPE", "SINGLE")), []string{"single", "cluster", "sentinel"}},
		{"REDIS_SOCKET_TYPE", e.socketType(), []string{"unix", "tcp", "tcp4", "tcp6"}},
	} {
		if !slices.Contains(v.want, v.value) {
			return fmt.Errorf("%s: %q is not supported: want %s", v.name, v.value, strings.Join(v.want, ", "))
		}
	}
	return nil
}

// socketType is that of a single Redis. For others envoyproxy/ratelimit does not read it.
func (e variables) socketType() string {
	//mutant:socket-type-of-one
	if !strings.EqualFold(e.or("REDIS_TYPE", "SINGLE"), "single") {
		return "tcp"
	}
	return e.or("REDIS_SOCKET_TYPE", "unix")
}

// port returns a variable that is read already, as a decimal: 0x1F90 is 8080.
func (e variables) port(name, unset string) string {
	n, _ := strconv.ParseInt(e.or(name, unset), 0, 64)
	return strconv.FormatInt(n, 10)
}

// metricsAddress is where metrics are if PROMETHEUS_ADDR names no address.
const metricsAddress = "0.0.0.0:19001"

func (e variables) addresses() map[string]string {
	flags := map[string]string{
		"http":    net.JoinHostPort(e.or("HOST", "0.0.0.0"), e.port("PORT", "8080")),
		"grpc":    net.JoinHostPort(e.or("GRPC_HOST", "0.0.0.0"), e.port("GRPC_PORT", "8081")),
		"metrics": metricsAddress, "reuse-port": "true",
	}
	if path := e["GRPC_UDS"]; path != "" {
		flags["grpc"] = "unix:" + path
	}
	if e.truth("USE_PROMETHEUS") {
		if host, port, err := net.SplitHostPort(e.prometheus()); err == nil {
			flags["metrics"] = net.JoinHostPort(cmp.Or(host, "0.0.0.0"), port)
		}
	}
	return flags
}

// prometheus is the address of metrics there.
func (e variables) prometheus() string { return cmp.Or(e["PROMETHEUS_ADDR"], ":9090") }

// tls is that of gRPC: HTTP has none there.
func (e variables) tls() map[string]string {
	if !e.truth("GRPC_SERVER_USE_TLS") {
		return nil
	}
	return map[string]string{"tls-cert": e["GRPC_SERVER_TLS_CERT"], "tls-key": e["GRPC_SERVER_TLS_KEY"],
		"tls-client-ca": e["GRPC_CLIENT_TLS_CACERT"], "plain-http": "true"}
}

// limits is where they come from. Files are in ROOT/SUBDIRECTORY/config, whether the root is
// watched or not.
func (e variables) limits() map[string]string {
	if e["CONFIG_TYPE"] != "GRPC_XDS_SOTW" {
		return map[string]string{"config": filepath.Join(e.or("RUNTIME_ROOT", "/srv/runtime_data/current"),
			e["RUNTIME_SUBDIRECTORY"], e.or("RUNTIME_APPDIRECTORY", "config"))}
	}
	flags := map[string]string{
		"xds": e.or("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"), "xds-node": e.or("CONFIG_GRPC_XDS_NODE_ID", "default"),
		"xds-metadata": withPairs(e["CONFIG_GRPC_XDS_NODE_METADATA"]),
		"xds-headers":  strings.ReplaceAll(e["CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"], ":", "="), // a colon stands between name and value alone
	}
	if size := e["XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES"]; size != "" && size != "0" {
		flags["xds-max-message"] = size
	}
	if e.truth("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
		flags["xds-tls"], flags["xds-server-name"] = "true", e["CONFIG_GRPC_XDS_SERVER_TLS_SAN"]
		flags["xds-ca"], flags["xds-cert"], flags["xds-key"] = e["CONFIG_GRPC_XDS_SERVER_TLS_CACERT"], e["CONFIG_GRPC_XDS_CLIENT_TLS_CERT"], e["CONFIG_GRPC_XDS_CLIENT_TLS_KEY"]
	}
	return flags
}

// withPairs leaves out the entries that are no "name=value", as envoyproxy/ratelimit does.
func withPairs(list string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(list, ","), func(entry string) bool { return !strings.Contains(entry, "=") }), ",")
}

// plain are the variables that are flags under another name.
func (e variables) plain() map[string]string {
	flags := map[string]string{"log-level": level(e.or("LOG_LEVEL", "WARN")), "log-format": "text"}
	if strings.EqualFold(e["LOG_FORMAT"], "json") {
		flags["log-format"] = "json"
	}
	for variable, name := range map[string]string{
		"MERGE_DOMAIN_CONFIG": "merge-domains", "SHADOW_MODE": "shadow", "QUOTA_MODE": "quota",
		"LIMIT_RESPONSE_HEADERS_ENABLED": "headers", "LIMIT_LIMIT_HEADER": "header-limit",
		"LIMIT_REMAINING_HEADER": "header-remaining", "LIMIT_RESET_HEADER": "header-reset",
		"RESPONSE_DYNAMIC_METADATA": "dynamic-metadata", "CACHE_KEY_PREFIX": "prefix",
		"GRPC_MAX_CONNECTION_AGE": "max-connection-age", "GRPC_MAX_CONNECTION_AGE_GRACE": "max-connection-grace",
		"FORCE_START_WITHOUT_INITIAL_CONFIG": "force-start", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": "health-limits",
		"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION": "health-store",
	} {
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
	flags["redis-user"], flags["redis-password"] = userOf(e["REDIS_AUTH"])
	scheme := "redis"
	if e.truth("REDIS_TLS") {
		scheme = "rediss"
		flags["redis-ca"], flags["redis-cert"], flags["redis-key"] = e["REDIS_TLS_CACERT"], e["REDIS_TLS_CLIENT_CERT"], e["REDIS_TLS_CLIENT_KEY"]
		flags["redis-skip-verify"] = strconv.FormatBool(e.truth("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"))
	}
	address := e.or("REDIS_URL", "/var/run/nutcracker/ratelimit.sock")
	switch strings.ToLower(e.or("REDIS_TYPE", "SINGLE")) {
	case "cluster":
		flags["cluster"] = withScheme(scheme, address)
	case "sentinel":
		e.sentinel(flags, scheme, address)
	default:
		if e.socketType() == "unix" {
			scheme = "unix"
		}
		flags["redis"] = withScheme(scheme, address)
	}
	return flags
}

// sentinel sets the flags of "master,sentinel,sentinel". A user and a password in the first
// Sentinel's URL are those of the Sentinels, unless a variable has them.
func (e variables) sentinel(flags map[string]string, scheme, address string) {
	name, list, _ := strings.Cut(address, ",")
	user, password := userOf(e["REDIS_SENTINEL_AUTH"])
	var hosts []string
	for i, s := range strings.Split(list, ",") {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" {
			hosts = append(hosts, s)
			continue
		}
		if hosts = append(hosts, u.Host); i == 0 && user+password == "" {
			user = u.User.Username()
			password, _ = u.User.Password()
		}
	}
	flags["sentinel"], flags["redis"] = name, withScheme(scheme, strings.Join(hosts, ","))
	flags["sentinel-user"], flags["sentinel-password"] = user, password
}

// userOf splits "user:password", or "password".
func userOf(auth string) (user, password string) {
	if user, password, ok := strings.Cut(auth, ":"); ok {
		return user, password
	}
	return "", auth
}

// withScheme gives addresses a scheme, also in place of that for a connection without TLS:
// the variable for TLS stands above it.
func withScheme(scheme, addresses string) string {
	list := strings.Split(addresses, ",")
	for i, a := range list {
		switch {
		case !strings.Contains(a, "://"):
			list[i] = scheme + "://" + a
		case scheme == "rediss":
			list[i] = strings.Replace(a, "redis://", "rediss://", 1)
		}
	}
	return strings.Join(list, ",")
}
