package main

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/headgate-go/headgate/internal/file"
)

// certificates serve a pair of files, which are read again when they have changed: a
// certificate is renewed without a restart.
type certificates struct {
	cert, key string
	mu        struct {
		sync.Mutex
		pair    *tls.Certificate
		written time.Time // of the certificate's file
		looked  time.Time
	}
}

// lookEvery is how often a handshake looks whether the files have changed.
const lookEvery = time.Second

// serverTLS returns the TLS of the listeners, nil if there is none.
func (s *settings) serverTLS() (*tls.Config, error) {
	if s.cert == "" {
		return nil, nil
	}
	c := &certificates{cert: s.cert, key: s.key}
	if _, err := c.get(nil); err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
	if s.clientCA == "" {
		return config, nil
	}
	var err error
	if config.ClientCAs, err = file.Authorities(s.clientCA); err != nil {
		return nil, fmt.Errorf("-tls-client-ca: %w", err)
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	return config, nil
}

// get returns the pair. Files that can't be read leave the last pair in use.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.pair != nil && time.Since(c.mu.looked) < lookEvery {
		return c.mu.pair, nil
	}
	c.mu.looked = time.Now()
	info, err := os.Stat(c.cert)
	if err == nil && (c.mu.pair == nil || !info.ModTime().Equal(c.mu.written)) {
		var pair tls.Certificate
		if pair, err = file.KeyPair(c.cert, c.key); err == nil {
			c.mu.pair, c.mu.written = &pair, info.ModTime()
		}
	}
	if c.mu.pair == nil {
		return nil, fmt.Errorf("-tls-cert and -tls-key: %w", err)
	}
	return c.mu.pair, nil
}
