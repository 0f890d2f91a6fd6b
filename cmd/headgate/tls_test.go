package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/internal/lab/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// authority signs the certificates of a test's servers and clients.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{dir: t.TempDir()}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	a.key = a.sign(t, "ca", a.cert)
	return a
}

// sign writes a certificate and its key.
func (a *authority) sign(t *testing.T, name string, of *x509.Certificate) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	by := a.key
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, of, a.cert, &key.PublicKey, by)
	require.NoError(t, err)
	secret, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(a.file(name+".cert"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(a.file(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600))
	return key
}

// of signs a certificate for hosts.
func (a *authority) of(t *testing.T, hosts ...string) (cert, key string) {
	t.Helper()
	c := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: hosts[0]}, NotAfter: time.Now().Add(time.Hour)}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, host)
		}
	}
	name := strings.Join(hosts, "+")
	a.sign(t, name, c)
	return a.file(name + ".cert"), a.file(name + ".key")
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// args are the options of a server that has a certificate for the hosts, and wants one of its
// clients.
func (a *authority) args(t *testing.T, hosts ...string) []string {
	t.Helper()
	cert, key := a.of(t, hosts...)
	return []string{"--tls-port", redistest.AnyPort, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", a.file("ca.cert"), "--tls-auth-clients", "yes"}
}

// TestTLS: each node, a Sentinel too, is verified by its own name, and gets the client's
// certificate.
func TestTLS(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.of(t, "client")
	flags := []string{"-cert", cert, "-key", key, "-ca", a.file("ca.cert")}
	port := redistest.Start(t, a.args(t, "127.0.0.1")...).TLSPort()
	at := func(host string, more ...string) []string {
		return append(append([]string{"keys", "-redis", "rediss://" + host}, flags...), more...)
	}
	require.Empty(t, exec(t, 0, at("127.0.0.1:"+port)...))
	require.Contains(t, exec(t, 1, at("localhost:"+port)...), "wanted to match localhost")
	exec(t, 1, "keys", "-redis", "rediss://127.0.0.1:"+port, "-ca", a.file("ca.cert")) // it wants the client's certificate
	require.Contains(t, exec(t, 1, "keys", "-redis", "rediss://127.0.0.1:"+port), "authority")

	for flag, says := range map[string]string{"-cert": "want both", "-key": "want both", "-ca": "no certificate in PEM"} {
		require.Contains(t, exec(t, 2, "keys", "-redis", "rediss://127.0.0.1:"+port, flag, key), says)
	}
	require.Contains(t, exec(t, 2, "keys", "-ca", cert), "want TLS, as -redis rediss://host:port")
}

// TestTLSOfSentinel: the primary is found as 127.0.0.1, by a Sentinel that is called localhost.
func TestTLSOfSentinel(t *testing.T) {
	a := newAuthority(t)
	server := redistest.Start(t, a.args(t, "127.0.0.1")...)
	sentinel := server.Sentinel(t, "plain", append(a.args(t, "localhost"), "--tls-replication", "yes")...)
	admin := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr()})
	t.Cleanup(func() { require.NoError(t, admin.Close()) })
	require.NoError(t, admin.Monitor(t.Context(), "mymaster", "127.0.0.1", server.TLSPort(), "1").Err())
	cert, key := a.of(t, "client")
	require.Empty(t, exec(t, 0, "keys", "-redis", "rediss://localhost:"+sentinel.TLSPort(), "-sentinel", "mymaster", "-cert", cert, "-key", key, "-ca", a.file("ca.cert")))
}

// TestTLSOfACluster: the node that is named is called localhost, and announces the others by
// their address.
func TestTLSOfACluster(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	cert, key := a.of(t, "client")
	var ports []string
	var admins []*redis.Client
	for i, hosts := range [][]string{{"localhost", "127.0.0.1"}, {"127.0.0.1"}} {
		s := redistest.Start(t, append(a.args(t, hosts...), "--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-announce-ip", "127.0.0.1")...)
		admins, ports = append(admins, s.Client(t)), append(ports, s.TLSPort())
		require.NoError(t, admins[i].ClusterAddSlotsRange(t.Context(), i*8192, i*8192+8191).Err())
	}
	require.NoError(t, admins[0].ClusterMeet(t.Context(), "127.0.0.1", ports[1]).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(admins[0].ClusterInfo(t.Context()).Val(), "cluster_state:ok") &&
			strings.Contains(admins[1].ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	}, 20*time.Second, 20*time.Millisecond)
	node, flags := "rediss://localhost:"+ports[0], []string{"-cert", cert, "-key", key, "-ca", a.file("ca.cert")}
	require.Empty(t, exec(t, 0, append(flags, "keys", "-redis", node)...))
	require.Empty(t, exec(t, 0, append(flags, "keys", "-cluster", node)...))
}
