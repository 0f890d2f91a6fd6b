package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	neturl "net/url"
	"strings"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/standalone"
	files "github.com/headgate-go/headgate/internal/file"
	"github.com/headgate-go/headgate/internal/nodes"
	"github.com/headgate-go/headgate/internal/without"
	"github.com/redis/go-redis/v9"
)

// server is what -redis names: one server, the primary behind Sentinels, or nodes of a
// cluster. Its client of one server tries each command once, within -timeout.
type server struct {
	options *redis.Options
	more    []string      // further addresses
	client  *redis.Client // nil of a cluster
}

// openServer parses the addresses and makes the store. It does no I/O.
func (s *session) openServer(url string) (err error) {
	if s.cluster != "" {
		return s.openCluster(url)
	}
	first, more := addresses(url)
	if s.server.options, err = redis.ParseURL(first); err != nil {
		return parseError("redis", first, err)
	}
	o := s.server.options
	s.server.more, s.user = more, o.Username
	if o.TLSConfig, err = s.secure(o.TLSConfig); err != nil {
		return err
	}
	name := o.Addr
	switch {
	case s.sentinel != "":
		name, s.server.client = s.sentinel, redis.NewFailoverClient(s.failover())
	case len(more) > 0:
		return misuse{errors.New("-redis: several addresses: want -cluster or -sentinel")}
	default:
		o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = s.timeout, s.timeout, s.timeout, s.timeout
		s.server.client = redis.NewClient(o)
	}
	s.ends = append(s.ends, s.server.client.Close)
	s.store = standalone.New(s.server.client, &standalone.Options{Name: name, Budget: s.timeout, Prefix: s.prefix})
	return s.usable()
}

// failover gives the credentials of the URL to the primary. Sentinel itself gets none.
func (s *session) failover() *redis.FailoverOptions {
	o := s.server.options
	return &redis.FailoverOptions{
		MasterName: s.sentinel, SentinelAddrs: append([]string{o.Addr}, s.server.more...),
		Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: s.timeout, ReadTimeout: s.timeout, WriteTimeout: s.timeout, PoolTimeout: s.timeout,
	}
}

// openCluster takes a list of nodes.
func (s *session) openCluster(list string) error {
	o, err := nodes.Parse(list)
	if err != nil {
		return misuse{fmt.Errorf("-cluster: %w", err)}
	}
	if o.TLSConfig, err = s.secure(o.TLSConfig); err != nil {
		return err
	}
	s.user = o.Username
	return s.useCluster(o)
}

func (s *session) useCluster(o *redis.ClusterOptions) error {
	s.store = cluster.New(members{o}, &cluster.Options{Budget: s.timeout, Prefix: s.prefix})
	return s.usable()
}

// usable refuses options that the store does not take, such as a prefix.
func (s *session) usable() error {
	if err := s.store.Check(valid); err != nil {
		return misuse{err}
	}
	return nil
}

// members are the options that a cluster's store makes its connections with. A
// ClusterClient would do as well, and would have to be closed.
type members struct{ *redis.ClusterOptions }

func (m members) Options() *redis.ClusterOptions { return m.ClusterOptions }

// valid is a list of policies that every store takes: Check then returns what
// is wrong with the store's options, before the first round trip.
var valid = []backend.Policy{{Name: "valid", Algorithm: algo.FixedWindow(algo.PerDay(1)), OnFailure: backend.FailClosed}}

// connect is every command's first round trip. One node of a cluster has a part of what
// is stored, and would pass for all of it. So a server that is one is looked at as a
// cluster.
func (s *session) connect(ctx context.Context) error {
	if s.server.client == nil {
		return nil
	}
	mode, err := s.mode(ctx)
	o := s.server.options
	switch {
	case err != nil:
		return err
	case mode == "sentinel":
		return errors.New("-redis: the server is a Sentinel: want -sentinel with the name of its master")
	case mode != "cluster":
		return nil
	case s.sentinel != "":
		return &headgate.InvalidError{What: "-sentinel", Value: s.sentinel, Want: "a server of its own, not a member of a Redis Cluster"}
	}
	_ = s.store.Close()
	return s.useCluster(&redis.ClusterOptions{
		Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig, Protocol: o.Protocol,
	})
}

// mode returns what the server is: "standalone", "cluster" or "sentinel". HELLO needs no
// right. A server without HELLO tells it in INFO.
func (s *session) mode(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	hello := redis.NewMapStringInterfaceCmd(ctx, "hello")
	err := s.server.client.Process(ctx, hello)
	mode, _ := hello.Val()["mode"].(string)
	if redis.HasErrorPrefix(err, "unknown command") {
		info := redis.NewStringCmd(ctx, "info", "server")
		err = s.server.client.Process(ctx, info)
		_, after, _ := strings.Cut(info.Val(), "redis_mode:")
		mode, _, _ = strings.Cut(after, "\r\n")
	}
	//mutant:mode-error-hidden
	late, safe := net.Error(nil), without.Password(err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.As(err, &late) && late.Timeout(): // whichever ends first
		return "", fmt.Errorf("%s: no answer within %v: %w", s.address(), s.timeout, safe)
	case err != nil:
		return "", fmt.Errorf("%s: %w", s.address(), safe)
	case mode == "":
		return "", fmt.Errorf("%s: neither HELLO nor INFO tells whether the server is a member of a Redis Cluster", s.address())
	}
	return mode, nil
}

// address is what the user has named.
func (s *session) address() string {
	all := strings.Join(append([]string{s.server.options.Addr}, s.server.more...), ",")
	if s.sentinel != "" {
		return "the primary of " + s.sentinel + " by Sentinel " + all
	}
	return all
}

// secure sets TLS up. The name of a URL's host is cleared: each node, a Sentinel too, is
// verified by the name or address that it is dialled by.
func (s *session) secure(c *tls.Config) (*tls.Config, error) {
	switch {
	case c == nil && s.cert+s.key+s.ca != "":
		return nil, misuse{errors.New("-cert, -key and -ca: want TLS, as -redis rediss://host:port")}
	case c == nil:
		return nil, nil
	case (s.cert == "") != (s.key == ""):
		return nil, misuse{errors.New("-cert and -key: want both")}
	}
	c.ServerName = ""
	if s.cert != "" {
		pair, err := files.KeyPair(s.cert, s.key)
		if err != nil {
			return nil, misuse{fmt.Errorf("-cert and -key: %w", err)}
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if s.ca != "" {
		pool, err := files.Authorities(s.ca)
		if err != nil {
			return nil, misuse{fmt.Errorf("-ca: %w", err)}
		}
		c.RootCAs = pool
	}
	return c, nil
}

// parseError hides an error that may quote a password. A parser that finds the end of
// the host in the password quotes the rest as a port, a path or an option.
func parseError(flag, url string, err error) error {
	if errors.As(err, new(*neturl.Error)) || strings.Contains(url, "@") || strings.Contains(err.Error(), "database") {
		err = errors.New("not a URL of a server: want redis://user:password@host:6379/0, and %25 for a % in the password")
	}
	return misuse{fmt.Errorf("-%s: %w", flag, err)}
}

// addresses divides "a:1,b:2", where the first may be a URL. Commas before the last @
// belong to the password.
func addresses(url string) (first string, more []string) {
	host := strings.LastIndexByte(url, '@') + 1
	all := strings.Split(url[host:], ",")
	all[0] = url[:host] + all[0]
	if !strings.Contains(all[0], "://") {
		all[0] = "redis://" + all[0]
	}
	return all[0], all[1:]
}
