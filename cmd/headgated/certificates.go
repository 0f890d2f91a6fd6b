package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate-go/headgate/internal/file"
)

// admittance is who gets in: the certificate of the listeners, the authorities of client
// certificates, and the password of -resp. The files are read again while the server runs, so
// that each may be renewed without a restart. Files that are wrong leave those before in use.
type admittance struct {
	settings *settings
	log      *slog.Logger
	metrics  *metrics
	now      atomic.Pointer[admitted]
	again    chan struct{} // read now
	failed   string        // why the last reading failed; the reader's
}

// admitted is one reading of the files.
type admitted struct {
	pair        *tls.Certificate
	authorities *x509.CertPool
	password    string
}

// lookEvery is how often the files are read.
const lookEvery = time.Second

// load reads the files for the first time.
func (a *admittance) load() error {
	now, err := a.read()
	if err != nil {
		return err
	}
	a.now.Store(now)
	a.metrics.expiry(a.expiry)
	return nil
}

// expiry returns when the certificate ends, in seconds of the Unix epoch; 0 if there is none.
func (a *admittance) expiry() int64 {
	if pair := a.now.Load().pair; pair != nil {
		return pair.Leaf.NotAfter.Unix()
	}
	return 0
}

func (a *admittance) read() (*admitted, error) {
	s, now := a.settings, &admitted{}
	if s.cert != "" {
		pair, err := file.KeyPair(s.cert, s.key)
		if err != nil {
			return nil, fmt.Errorf("-tls-cert and -tls-key: %w", err)
		}
		now.pair = &pair
	}
	var err error
	if s.clientCA != "" {
		if now.authorities, err = file.Authorities(s.clientCA); err != nil {
			return nil, fmt.Errorf("-tls-client-ca: %w", err)
		}
	}
	if s.passwordFile != "" {
		if now.password, err = readPassword(s.passwordFile); err != nil {
			return nil, fmt.Errorf("-resp-password-file: %w", err)
		}
	}
	return now, nil
}

// readPassword returns the first line of a file.
func readPassword(name string) (string, error) {
	text, err := file.Read(name)
	if err != nil {
		return "", err
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	//mutant:no-empty-password
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return "", errors.New("want a password in the first line")
	}
	return string(line), nil
}

// follow reads the files each second until ctx ends.
func (a *admittance) follow(ctx context.Context) { follow(ctx, lookEvery, a.look, a.again, a.look) }

// look reads the files, and logs a failure that is not the last one's.
func (a *admittance) look() {
	now, err := a.read()
	if err != nil {
		if err.Error() != a.failed {
			a.failed = err.Error()
			a.log.Error("certificates: the files are not used, those before them are", "error", err)
			a.metrics.load("certificates", err)
		}
		return
	}
	before := a.now.Load()
	changed := now.password != before.password || !now.authorities.Equal(before.authorities) ||
		now.pair != nil && !now.pair.Leaf.Equal(before.pair.Leaf)
	if changed || a.failed != "" {
		a.now.Store(now)
		a.failed = ""
		a.log.Info("certificates: loaded")
		a.metrics.load("certificates", nil)
	}
}

func (a *admittance) password() string { return a.now.Load().password }

// tls returns the TLS of a listener, nil if there is none. The names are those of the
// protocols that a client may choose.
func (a *admittance) tls(protocols ...string) *tls.Config {
	if a.now.Load().pair == nil {
		return nil
	}
	var used atomic.Pointer[configOf] // one for all handshakes, so that sessions are resumed
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now, last := a.now.Load(), used.Load()
		if last == nil || last.of != now {
			last = &configOf{now, now.config(protocols)}
			used.Store(last)
		}
		return last.config, nil
	}}
}

// configOf is the TLS of one reading.
type configOf struct {
	of     *admitted
	config *tls.Config
}

func (a *admitted) config(protocols []string) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, Certificates: []tls.Certificate{*a.pair}}
	//mutant:client-certificate-wanted
	if a.authorities != nil {
		c.ClientCAs, c.ClientAuth = a.authorities, tls.RequireAndVerifyClientCert
	}
	return c
}
