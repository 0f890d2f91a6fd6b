package redistest

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
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificate makes a key and a certificate that signs itself, for loopback. It
// returns the arguments with which a server can listen by TLS, and the configuration of
// clients that trust it.
func Certificate(t testing.TB) (args []string, trusting *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "headgate"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	check(t, err)
	secret, err := x509.MarshalECPrivateKey(key)
	check(t, err)
	pool, dir := x509.NewCertPool(), t.TempDir()
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if !pool.AppendCertsFromPEM(cert) {
		t.Fatal("redistest: a certificate that is none")
	}
	check(t, os.WriteFile(filepath.Join(dir, "cert"), cert, 0o600))
	check(t, os.WriteFile(filepath.Join(dir, "key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600))
	args = []string{
		"--tls-cert-file", dir + "/cert", "--tls-key-file", dir + "/key", "--tls-ca-cert-file", dir + "/cert", "--tls-auth-clients", "no",
	}
	return args, &tls.Config{RootCAs: pool}
}

// ListenTLS makes a server with the arguments of Certificate listen by TLS too, and
// returns that address.
func (s *Server) ListenTLS(t testing.TB) (addr string) {
	t.Helper()
	err := errTaken
	for i := 0; i < 10 && err != nil; i++ {
		l, e := net.Listen("tcp", "127.0.0.1:0")
		check(t, e)
		addr = l.Addr().String()
		_ = l.Close()
		_, port, _ := net.SplitHostPort(addr)
		c := s.Client(t)
		if err = c.ConfigSet(t.Context(), "tls-port", port).Err(); err != nil {
			err = errors.Join(errTaken, err)
		}
	}
	check(t, err)
	return addr
}
