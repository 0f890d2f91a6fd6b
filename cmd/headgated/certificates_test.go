package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A certificate that is renewed is served, and a client without one is refused.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := certificate(t, dir, "one"), certificate(t, dir, "two")
	copyPair := func(p pair) {
		replaceFile(t, filepath.Join(dir, "key"), string(p.key))
		replaceFile(t, filepath.Join(dir, "cert"), string(p.cert))
	}
	copyPair(one)
	s := startServer(t, userLimits, "-resp", "127.0.0.1:0", "-tls-cert", filepath.Join(dir, "cert"), "-tls-key", filepath.Join(dir, "key"),
		"-tls-client-ca", filepath.Join(dir, "one.cert"))
	mine, err := tls.X509KeyPair(one.cert, one.key)
	require.NoError(t, err)
	for _, flag := range []string{"grpc", "http", "resp"} {
		config := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{mine}, NextProtos: []string{"h2", "http/1.1"}}
		require.NoError(t, handshake(s.listeners[flag].Addr().String(), config, 300*time.Millisecond), flag)
		config.Certificates = nil
		require.Error(t, handshake(s.listeners[flag].Addr().String(), config, 20*time.Second), flag)
	}
	copyPair(two)
	require.Eventually(t, func() bool {
		c, err := tls.Dial("tcp", s.grpcAddr(), &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{mine}, NextProtos: []string{"h2"}})
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName == "two"
	}, 20*time.Second, 50*time.Millisecond)
}

// handshake reads too, since a server of TLS 1.3 refuses a client after the handshake. It
// returns nil if the server has not refused the client after so long.
func handshake(addr string, config *tls.Config, after time.Duration) error {
	c, err := tls.Dial("tcp", addr, config)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetReadDeadline(time.Now().Add(after))
	if _, err = c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

type pair struct{ cert, key []byte }

// certificate makes a certificate that signs itself, and writes it to name.cert.
func certificate(t testing.TB, dir, name string) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	p := pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}
	require.NoError(t, os.WriteFile(filepath.Join(dir, name+".cert"), p.cert, 0o600))
	return p
}
