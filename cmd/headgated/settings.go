package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/backend/postgres"
)

// settings are those of one server.
type settings struct {
	config, policies          string
	checks                    bool
	xds, xdsNode, xdsName     string
	xdsTLS                    bool
	xdsMetadata, xdsHeaders   string
	xdsMaxMessage             int
	xdsPing                   time.Duration // no flag
	forceStart                bool
	healthLimits, healthStore bool
	plainHTTP                 bool
	maxConnectionAge          time.Duration
	maxConnectionGrace        time.Duration
	xdsCA, xdsCert, xdsKey    string
	mergeDomains              bool
	interval                  time.Duration
	redis, cluster, sentinel  string
	memoryFile                string
	memoryFileWait            time.Duration
	memoryFileEvery           time.Duration // no flag
	postgres, postgresSchema  string
	prefix                    string
	redisCA, redisCert        string
	redisKey                  string
	redisSkipVerify           bool
	redisUser, redisPassword  string
	sentinelUser              string
	sentinelPassword          string
	budget                    time.Duration
	instances                 int
	algorithm, onFailure      string
	charge, borrow            string
	shadow, quota             bool
	page, pageKeys            bool
	grpc, http, metrics, resp string
	cert, key, clientCA       string
	reusePort                 bool
	maxConnections            int
	maxConnectionsSet         bool // by a flag or a variable
	passwordFile, probe       string
	respOpen                  bool
	maxMessage                int
	headers, draft, metadata  bool
	headerLimit               string
	headerRemaining           string
	headerReset               string
	drainDelay, drainTimeout  time.Duration
	logLevel, logFormat       string
	version                   bool
}

func (s *settings) flags(stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("headgated", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&s.config, "config", "", "regular `file` or folder of limits, in the format of envoyproxy/ratelimit; it is followed while the server runs")
	f.BoolVar(&s.checks, "check", false, "read -config and -policies as a start does, print the domains, and end: with 2 after a mistake; opens no store")
	f.BoolVar(&s.mergeDomains, "merge-domains", false, "files of one domain are merged; otherwise the second is an error")
	f.DurationVar(&s.interval, "config-interval", time.Second, "how often -config is read")
	f.StringVar(&s.xds, "xds", "", "`host:port` of a discovery service that has the limits, in place of -config")
	f.StringVar(&s.xdsNode, "xds-node", "default", "`id` by which the discovery service tells this server")
	f.BoolVar(&s.xdsTLS, "xds-tls", false, "TLS to the discovery service")
	f.StringVar(&s.xdsName, "xds-server-name", "", "`name` in the discovery service's certificate, if it is not the host of -xds")
	f.StringVar(&s.xdsCA, "xds-ca", "", "PEM `file` of the authorities of the discovery service's certificate; means TLS")
	f.StringVar(&s.xdsCert, "xds-cert", "", "PEM `file` of the certificate that is shown to the discovery service")
	f.StringVar(&s.xdsKey, "xds-key", "", "PEM `file` of that certificate's key")
	f.StringVar(&s.xdsMetadata, "xds-metadata", "", "metadata of this server for the discovery service: `name=value,…`")
	f.StringVar(&s.xdsHeaders, "xds-headers", "", "headers of the requests to the discovery service: `name=value,…`")
	f.IntVar(&s.xdsMaxMessage, "xds-max-message", 64<<20, "bytes of one response of the discovery service")
	s.xdsPing = xdsPing
	f.StringVar(&s.policies, "policies", "", "regular policy `file` for the HG commands of -resp; see package policyfile")
	s.healthFlags(f)
	s.storeFlags(f)
	s.answerFlags(f)
	s.listenFlags(f)
	return f
}

func (s *settings) healthFlags(f *flag.FlagSet) {
	f.BoolVar(&s.forceStart, "force-start", false, "start without limits: requests are UNAVAILABLE until there are some, and /healthcheck is 200")
	f.BoolVar(&s.healthLimits, "health-limits", false, "/healthcheck is 503 while there is no domain")
	f.BoolVar(&s.healthStore, "health-store", false, "/healthcheck is 503 while the store does not answer; a liveness probe then restarts every server")
}

func (s *settings) storeFlags(f *flag.FlagSet) {
	f.StringVar(&s.memoryFile, "memory-file", "", "`file` in which counts in memory survive a restart; written each 10 s and at the end")
	f.DurationVar(&s.memoryFileWait, "memory-file-wait", 30*time.Second, "how long to wait for another process to give up -memory-file")
	f.StringVar(&s.redis, "redis", "", "`URL` of a Redis: redis://user:password@host:6379/0, rediss:// for TLS, unix:///socket")
	f.StringVar(&s.postgres, "postgres", "", "`URL` of a PostgreSQL: postgres://user:password@host:5432/database, with sslmode and other settings of pgx; the command headgate migrate makes its tables")
	f.StringVar(&s.postgresSchema, "postgres-schema", postgres.DefaultSchema, "`schema` of the tables of -postgres")
	f.StringVar(&s.cluster, "cluster", "", "nodes of a Redis Cluster: `host:port,…`, where each may be a URL: its user, password and TLS are those of all nodes")
	f.StringVar(&s.sentinel, "sentinel", "", "the `name` of the master; -redis then is the URL of a Sentinel, or several host:port")
	f.StringVar(&s.prefix, "prefix", "", "what stored keys begin with (default \"headgate:\"); with -postgres what the names of tables begin with (default nothing)")
	f.StringVar(&s.redisUser, "redis-user", "", "user of -redis, -cluster or -sentinel, beside the URL")
	f.StringVar(&s.redisPassword, "redis-password", "", "password of that user; better by HEADGATED_REDIS_PASSWORD")
	f.StringVar(&s.sentinelUser, "sentinel-user", "", "user of the Sentinels")
	f.StringVar(&s.sentinelPassword, "sentinel-password", "", "password of the Sentinels")
	f.StringVar(&s.redisCA, "redis-ca", "", "PEM `file` of the authorities that sign the store's certificates; means TLS")
	f.StringVar(&s.redisCert, "redis-cert", "", "PEM `file` of the certificate that is shown to the store")
	f.StringVar(&s.redisKey, "redis-key", "", "PEM `file` of that certificate's key")
	f.BoolVar(&s.redisSkipVerify, "redis-skip-verify", false, "TLS to the store, whose certificate may have any name; its authority is verified")
	f.DurationVar(&s.budget, "budget", 100*time.Millisecond, "how long a decision may take; a caller's shorter deadline counts too")
	f.IntVar(&s.instances, "instances", 0, "servers that share the limits, for on_failure: local")
}

func (s *settings) answerFlags(f *flag.FlagSet) {
	f.StringVar(&s.algorithm, "algorithm", "", "algorithm of limits that name none (default fixed-window)")
	f.StringVar(&s.onFailure, "on-failure", "", "open, closed or local, for limits that name none; otherwise the request is UNAVAILABLE")
	f.StringVar(&s.charge, "charge", "", "admitted or always, for limits that name none; otherwise hits above 1 are charged always")
	f.StringVar(&s.borrow, "borrow", "", "for how long this server holds units of a busy key, such as 50ms, for limits that name none; it decides most requests by itself")
	f.BoolVar(&s.shadow, "shadow", false, "answer OK to every request, and count all the same")
	f.BoolVar(&s.quota, "quota", false, "every limit is in quota_mode")
	f.BoolVar(&s.headers, "headers", false, "answer with response headers, named by the following three flags")
	f.StringVar(&s.headerLimit, "header-limit", "RateLimit-Limit", "`name` of the header with the limit")
	f.StringVar(&s.headerRemaining, "header-remaining", "RateLimit-Remaining", "`name` of the header with what is left")
	f.StringVar(&s.headerReset, "header-reset", "RateLimit-Reset", "`name` of the header with the seconds until the reset")
	f.BoolVar(&s.draft, "draft-headers", false, "answer with RateLimit-Policy, RateLimit and Retry-After, by the draft of the IETF")
	f.BoolVar(&s.metadata, "dynamic-metadata", false, "answer with dynamic metadata")
}

func (s *settings) listenFlags(f *flag.FlagSet) {
	f.StringVar(&s.grpc, "grpc", "127.0.0.1:8081", "`address` of the rate limit service, or unix:/path")
	f.StringVar(&s.http, "http", "127.0.0.1:8080", "`address` of /json, /healthcheck and /ready; \"\" is none")
	f.BoolVar(&s.page, "page", true, "serve /page/ at -http: the limits, who is denied, circuits, round trips; read only")
	f.BoolVar(&s.pageKeys, "page-keys", false, "/page/ shows keys as they are; otherwise they are hashed")
	f.StringVar(&s.metrics, "metrics", "127.0.0.1:9464", "`address` of /metrics and /ready, without TLS; \"\" is none")
	f.StringVar(&s.resp, "resp", "", "`address` of the Redis protocol; \"\" is none")
	f.StringVar(&s.passwordFile, "resp-password-file", "", "`file` whose first line is the password of -resp; read again when it changes")
	f.BoolVar(&s.respOpen, "resp-open", false, "-resp may be reached from other machines without a password and without -tls-client-ca")
	f.StringVar(&s.probe, "probe", "", "ask /ready of a server at this `address`, such as that of its -metrics, and end: with 0 if it is ready, else 1")
	f.StringVar(&s.cert, "tls-cert", "", "PEM `file` of the certificate of -grpc, -http and -resp; read again when it changes")
	f.StringVar(&s.key, "tls-key", "", "PEM `file` of its key")
	f.StringVar(&s.clientCA, "tls-client-ca", "", "PEM `file` of the authorities of client certificates, which are then required; read again when it changes")
	f.BoolVar(&s.plainHTTP, "plain-http", false, "no TLS at -http, for probes, whatever -tls-cert is")
	f.DurationVar(&s.maxConnectionAge, "max-connection-age", 24*time.Hour, "how old a connection of -grpc may be; its client then dials again, and finds new servers. 0 is no limit")
	f.DurationVar(&s.maxConnectionGrace, "max-connection-grace", time.Hour, "how long open requests of such a connection may take")
	f.BoolVar(&s.reusePort, "reuse-port", false, "share the addresses with another process, which then can drain while this one serves")
	f.IntVar(&s.maxConnections, "max-connections", 10_000, "open connections of each address; at the bound the one that is idle longest is closed for a new one")
	f.IntVar(&s.maxMessage, "max-message", 4<<20, "bytes of a request")
	f.DurationVar(&s.drainDelay, "drain-delay", 0, "how long the server goes on after it has said that it is not ready")
	f.DurationVar(&s.drainTimeout, "drain-timeout", 20*time.Second, "how long open requests may take after that")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "text", "text or json")
	f.BoolVar(&s.version, "version", false, "print the version, and end")
}

// settingsOf reads the command line over the environment. Warnings are for the log.
func settingsOf(args, environ []string, stderr io.Writer) (*settings, []string, error) {
	s := &settings{}
	f := s.flags(stderr)
	env := variablesOf(environ)
	var warnings []string
	if replaces(args[0]) {
		var err error
		if warnings, err = env.translate(f); err != nil {
			return nil, nil, err
		}
	}
	if err := env.flags(f); err != nil {
		return nil, nil, err
	}
	warnings = append(warnings, env.unknown(f)...)
	if err := f.Parse(args[1:]); err != nil {
		return nil, nil, err
	}
	if f.NArg() > 0 {
		return nil, nil, fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	f.Visit(func(set *flag.Flag) { s.maxConnectionsSet = s.maxConnectionsSet || set.Name == "max-connections" })
	return s, warnings, s.check()
}

// limited reports whether there are limits for the rate limit service.
func (s *settings) limited() bool { return s.config != "" || s.xds != "" }

func (s *settings) check() error {
	switch {
	case s.probe != "" || s.version:
		return nil
	case s.checks && s.config+s.policies == "":
		return errors.New("-check: want -config or -policies")
	case !s.limited() && s.resp == "" && !s.checks:
		return errors.New("-config: want a file or a folder of limits")
	case s.config != "" && s.xds != "":
		return errors.New("-config and -xds: want one of them")
	case (s.xdsCert == "") != (s.xdsKey == ""):
		return errors.New("-xds-cert and -xds-key: want both")
	//mutant:one-store
	case several(s.redis, s.cluster, s.memoryFile, s.postgres):
		return errors.New("-redis, -cluster, -postgres and -memory-file: want one of them")
	case s.sentinel != "" && s.redis == "":
		return errors.New("-sentinel: want -redis with the address of a Sentinel")
	case (s.cert == "") != (s.key == "") || s.clientCA != "" && s.cert == "":
		return errors.New("-tls-cert, -tls-key and -tls-client-ca: want a certificate with its key")
	case (s.redisCert == "") != (s.redisKey == ""):
		return errors.New("-redis-cert and -redis-key: want both")
	case s.budget < time.Millisecond || s.budget > time.Minute:
		return &headgate.InvalidError{What: "-budget", Value: s.budget, Want: "1ms to 1m"}
	case s.interval < time.Millisecond:
		return &headgate.InvalidError{What: "-config-interval", Value: s.interval, Want: "at least 1ms"}
	case s.maxConnections < 1 || s.maxMessage < 1:
		return errors.New("-max-connections and -max-message: want at least 1")
	case s.maxConnectionAge < 0 || s.maxConnectionGrace < 0:
		return errors.New("-max-connection-age and -max-connection-grace: want at least 0")
	case !pairs(s.xdsMetadata) || !pairs(s.xdsHeaders):
		return errors.New("-xds-metadata and -xds-headers: want name=value,…")
	case s.xdsMaxMessage < 1:
		return errors.New("-xds-max-message: want at least 1")
	//mutant:resp-asks-who
	case s.resp != "" && !s.respOpen && s.passwordFile+s.clientCA == "" && !onThisMachine(s.resp):
		return fmt.Errorf("-resp %s: other machines reach it, and anybody may charge and reset: want -resp-password-file, -tls-client-ca, or -resp-open", s.resp)
	case s.logFormat != "text" && s.logFormat != "json":
		return &headgate.InvalidError{What: "-log-format", Value: s.logFormat, Want: "text or json"}
	}
	return new(slog.Level).UnmarshalText([]byte(s.logLevel))
}

// several reports whether more than one of the words is set.
func several(words ...string) bool {
	return len(slices.DeleteFunc(words, func(w string) bool { return w == "" })) > 1
}

// pairs reports whether a list is empty or "name=value,…".
func pairs(list string) bool {
	return list == "" || len(pairsOf(list)) == strings.Count(list, ",")+1
}

// onThisMachine reports whether no other machine reaches an address.
func onThisMachine(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return strings.HasPrefix(address, "unix:") || err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

func (s *settings) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(s.logLevel)) // check has read it
	o := &slog.HandlerOptions{Level: level}
	if s.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
