package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/cluster"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/backend/postgres"
	"github.com/headgate-go/headgate/backend/standalone"
	"github.com/headgate-go/headgate/internal/file"
	"github.com/headgate-go/headgate/internal/nodes"
	"github.com/redis/go-redis/v9"
)

// store is where the counts are, with what has to be closed. It is no backend.Store: a
// limiter finds the circuits and the deny cache by the type of its store.
type store struct {
	counts backend.Store
	close  func() error
}

// openStore makes the store of the settings. It does no I/O but to read certificates, and the
// file of a store in memory.
func openStore(s *settings) (store, error) {
	switch {
	case s.cluster != "":
		return s.openCluster()
	case s.sentinel != "":
		return s.openSentinel()
	case s.redis != "":
		return s.openServer()
	case s.postgres != "":
		st, err := postgres.Open(s.postgres, &postgres.Options{Budget: s.budget, Schema: s.postgresSchema, Prefix: s.prefix})
		if err != nil {
			return store{}, fmt.Errorf("-postgres: %w", err)
		}
		return store{st, st.Close}, nil
	}
	// A bad file is kept under another name: the server limits anew rather than not at all. It
	// waits for the process that it replaces.
	m := memory.New(&memory.Options{File: s.memoryFile, Every: s.memoryFileEvery, FileWait: s.memoryFileWait, OnBadFile: memory.SetAside})
	return store{m, m.Close}, nil
}

// openServer leaves the client to the library where a URL says all of it.
func (s *settings) openServer() (store, error) {
	url := s.redis
	if !strings.Contains(url, "://") {
		url = "redis://" + url
	}
	opts := &standalone.Options{Budget: s.budget, Prefix: s.prefix}
	if s.redisUser+s.redisPassword+s.redisCA+s.redisCert == "" && !s.redisSkipVerify {
		st, err := standalone.Open(url, opts)
		if err != nil {
			return store{}, err
		}
		return store{st, st.Close}, nil
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		return store{}, errors.New("-redis: want redis://host:port, rediss://host:port or unix:///socket")
	}
	if o.Username, o.Password = login(o.Username, o.Password, s); err != nil {
		return store{}, err
	}
	if o.TLSConfig, err = s.storeTLS(o.TLSConfig); err != nil {
		return store{}, err
	}
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DisableIdentity = -1, 1, true, true
	c := redis.NewClient(o)
	st := standalone.New(c, opts)
	return store{st, func() error { return errors.Join(st.Close(), c.Close()) }}, nil
}

func (s *settings) openSentinel() (store, error) {
	f := &redis.FailoverOptions{MasterName: s.sentinel, SentinelUsername: s.sentinelUser, SentinelPassword: s.sentinelPassword,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true}
	var o *redis.Options
	for i, a := range strings.Split(s.redis, ",") {
		if !strings.Contains(a, "://") {
			a = "redis://" + a
		}
		one, err := redis.ParseURL(a)
		if err != nil {
			return store{}, errors.New("-redis: want the addresses of Sentinels: redis://host:port, or host:port,host:port")
		}
		if f.SentinelAddrs = append(f.SentinelAddrs, one.Addr); i == 0 { // of the first is the rest
			o, f.DB = one, one.DB
		}
	}
	f.Username, f.Password = login(o.Username, o.Password, s)
	var err error
	if f.TLSConfig, err = s.storeTLS(o.TLSConfig); err != nil {
		return store{}, err
	}
	if f.TLSConfig != nil {
		f.TLSConfig.ServerName = "" // each node by its own
	}
	c := redis.NewFailoverClient(f)
	st := standalone.New(c, &standalone.Options{Name: s.sentinel, Budget: s.budget, Prefix: s.prefix})
	return store{st, func() error { return errors.Join(st.Close(), c.Close()) }}, nil
}

func (s *settings) openCluster() (store, error) {
	opts := &cluster.Options{Budget: s.budget, Prefix: s.prefix}
	o, err := nodes.Parse(s.cluster)
	if err != nil {
		return store{}, fmt.Errorf("-cluster: %w", err)
	}
	opts.Username, opts.Password = login(o.Username, o.Password, s)
	if opts.TLSConfig, err = s.storeTLS(o.TLSConfig); err != nil {
		return store{}, err
	}
	st, err := cluster.Open(o.Addrs, opts)
	if err != nil {
		return store{}, err
	}
	return store{st, st.Close}, nil
}

// login returns the user and the password: those of the flags stand above those of a URL.
func login(user, password string, s *settings) (string, string) {
	if s.redisUser != "" {
		user = s.redisUser
	}
	if s.redisPassword != "" {
		password = s.redisPassword
	}
	return user, password
}

// storeTLS adds the files of the flags to the TLS of a URL.
func (s *settings) storeTLS(c *tls.Config) (*tls.Config, error) {
	if c == nil && s.redisCA+s.redisCert == "" && !s.redisSkipVerify {
		return nil, nil
	}
	if c == nil {
		c = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if s.redisCert != "" {
		pair, err := file.KeyPair(s.redisCert, s.redisKey)
		if err != nil {
			return nil, fmt.Errorf("-redis-cert and -redis-key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if s.redisCA != "" {
		var err error
		if c.RootCAs, err = file.Authorities(s.redisCA); err != nil {
			return nil, fmt.Errorf("-redis-ca: %w", err)
		}
	}
	if s.redisSkipVerify {
		//mutant:authority-verified
		c.InsecureSkipVerify, c.VerifyConnection = true, verifyWithoutName(c.RootCAs) //nolint:gosec // only of the name
	}
	return c, nil
}

// verifyWithoutName verifies a certificate's authority, and not the name in it.
func verifyWithoutName(roots *x509.CertPool) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, c := range state.PeerCertificates[1:] {
			opts.Intermediates.AddCert(c)
		}
		_, err := state.PeerCertificates[0].Verify(opts)
		return err
	}
}
