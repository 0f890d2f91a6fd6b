package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// Sentinel runs a Redis Sentinel that watches the server under a name, and
// returns its address. It ends with the test.
func (s *Server) Sentinel(t testing.TB, name string) (addr string) {
	t.Helper()
	dir := t.TempDir()
	conf := filepath.Join(dir, "sentinel.conf")
	watch := fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1\n", name, s.port)
	if err := os.WriteFile(conf, []byte(watch), 0o600); err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	p, err := begin(s.bin, port, []string{conf, "--sentinel", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return address(port)
}

// Dialer returns a dialer that leads to the proxy instead of to target, and
// elsewhere as it is asked.
func (p *Proxy) Dialer(target string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == target {
			addr = p.Addr()
		}
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
}
