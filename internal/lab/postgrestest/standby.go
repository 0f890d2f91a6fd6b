package postgrestest

import (
	"fmt"
	"net"
	"testing"
)

// Standby runs a standby of the server for this test only, and kills it when the test ends. Its
// copy comes from an address, the server's own or that of a proxy, and so does what is
// replicated to it.
func (s *Server) Standby(t testing.TB, addr string) *Server {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	standby := open(t, []string{"wal_retrieve_retry_interval=100ms"}, func(b *Server) error {
		// Without offers of encryption, whose answers are no messages that a Proxy reads.
		from := fmt.Sprintf("host=%s port=%s user=postgres sslmode=disable gssencmode=disable", host, port)
		return b.execute("pg_basebackup", "-D", b.data(), "-d", from, "-R", "-X", "stream", "-c", "fast", "--no-sync")
	})
	t.Cleanup(standby.Remove)
	return standby
}

// Promote makes a standby take writes, and waits for that.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	if err := s.execute("pg_ctl", "promote", "-D", s.data()); err != nil {
		t.Fatal(err)
	}
}
